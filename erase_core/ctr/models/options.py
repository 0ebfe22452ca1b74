"""Options that all CTR models share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Head = Literal["linear", "mlp"]
CutRule = Literal["default", "every", "none"]
Cuts = CutRule | Sequence[str | int]


def check_count(name: str, value: object, least: int) -> None:
    """Raise `TypeError` unless `value` is an integer, `ValueError` if it is too small."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` (={value!r}) must be an integer")
    if value < least:
        raise ValueError(f"`{name}` (={value}) must be at least {least}")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}` (={value!r}) must be a number")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Size, regularisation, local objectives and cuts of a model.

    Attributes:
        blocks: depth; each model's page says what it counts.
        width: units of a hidden layer; at least 2, since layers are normalised.
        embedding_dim: columns of the embedding tables; at least 2, for the same reason.
        dropout: probability of dropping a hidden unit of a residual block; cross layers have none.
        head: local objective of a cut block: a "linear" head, or an "mlp" with one hidden layer of
            `width` units. The main loss always has a linear head, so that the exact arms do not
            depend on this option.
        local_weight: λ of every local objective; the main loss has weight 1. A block that no other
            gradient reaches has its own gradient scaled by λ, which Adam undoes.
        cuts: blocks whose readers see the stop-gradient of their output: "every" block that another
            one reads, "none", a list of block names or positions, or the model's "default".

    Raises:
        TypeError, ValueError: where a value is of the wrong type or out of range; the message names
            it.
    """

    blocks: int
    width: int = 256
    embedding_dim: int = 16
    dropout: float = 0.0
    head: Head = "linear"
    local_weight: float = 1.0
    cuts: Cuts = "default"

    def __post_init__(self) -> None:
        """Refuse values that no model can be built with."""
        check_count("blocks", self.blocks, 1)
        check_count("width", self.width, 2)
        check_count("embedding_dim", self.embedding_dim, 2)
        _check_number("dropout", self.dropout)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` (={self.dropout}) must lie in [0, 1)")
        if self.head not in get_args(Head):
            raise ValueError(f"`head` (={self.head!r}) must be one of {get_args(Head)}")
        _check_number("local_weight", self.local_weight)
        if not 0 < self.local_weight < math.inf:
            raise ValueError(
                f"`local_weight` (={self.local_weight}) must be positive and finite: a block "
                "behind a cut learns from its local objective alone"
            )
        if isinstance(self.cuts, str):
            if self.cuts not in get_args(CutRule):
                raise ValueError(
                    f"`cuts` (={self.cuts!r}) must be one of {get_args(CutRule)}, or a list of "
                    "block names or positions"
                )
        elif not isinstance(self.cuts, Sequence):
            raise TypeError(
                f"`cuts` (={self.cuts!r}) must be text or a list of block names or positions"
            )
