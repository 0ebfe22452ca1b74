"""A block: a body, an optional local objective, and the objective's weight."""

from __future__ import annotations

import math

from torch import nn

from .errors import GraphError


class Block(nn.Module):
    """One unit of a `BlockGraph`.

    Block b computes the activation z_b = body(*inputs). Its objective, where it has one, is called
    as `objective(z_b, target)` on the *undetached* activation and returns a scalar loss; `weight`
    is the λ that multiplies this loss in the whole objective.

    Args:
        body: any module; its output is a tensor, or a tuple, list, dict or dataclass of tensors.
        objective: any module that maps (activation, target) to a scalar, `LocalHead` for one. Its
            parameters belong to the block. If it has a method `predict(activation)`, the engine
            uses that for predictions; otherwise the activation itself is the prediction.
        weight: λ > 0.

    Raises:
        GraphError: if body or objective is not a module, or weight is not a positive number.
    """

    def __init__(
        self, body: nn.Module, objective: nn.Module | None = None, weight: float = 1.0
    ) -> None:
        super().__init__()
        if not isinstance(body, nn.Module):
            raise GraphError(f"`body` (={body!r}) must be an nn.Module; wrap a function in one")
        if objective is not None and not isinstance(objective, nn.Module):
            raise GraphError(
                f"`objective` (={objective!r}) must be an nn.Module that maps (activation, target) "
                "to a scalar loss, or None"
            )
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise GraphError(f"`weight` (={weight!r}) must be a number")
        if not (math.isfinite(weight) and weight > 0):
            raise GraphError(
                f"`weight` (={weight}) must be positive and finite; to drop a local objective pass "
                "objective=None"
            )
        self.body = body
        self.objective = objective
        self.weight = float(weight)

    def extra_repr(self) -> str:
        """Show λ beside the sub-modules."""
        return "" if self.objective is None else f"weight={self.weight}"
