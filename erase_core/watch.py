"""Noticing a non-finite loss without stopping the device at every step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .errors import NonFiniteLossError

_NEVER = torch.iinfo(torch.int64).max


class LossWatch:
    """Keeps, on the device, the first step at which each block's loss was not finite.

    `record` costs four small kernels and no host sync; `check` reads the answer.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._first: Tensor | None = None

    def record(self, losses: Mapping[str, Tensor], step: int) -> None:
        """Take note of one step's scalar losses."""
        values = torch.stack(list(losses.values()))
        if self._first is None:
            self._names = tuple(losses)
            self._first = torch.full_like(values, _NEVER, dtype=torch.int64)
        seen = torch.where(values.isfinite(), _NEVER, step)
        self._first = torch.minimum(self._first, seen)

    def forget(self) -> None:
        """Drop what was noted: the steps that it is about have been taken back."""
        self._first = None

    def check(self) -> None:
        """Raise for the earliest non-finite loss since the last check, and forget it.

        Raises:
            NonFiniteLossError: names the block and the step.
        """
        if self._first is None:
            return
        steps, self._first = self._first.tolist(), None
        step, name = min(zip(steps, self._names, strict=True), key=lambda pair: pair[0])
        if step != _NEVER:
            raise NonFiniteLossError(
                f"the loss of block {name!r} was not finite at step {step}: lower its learning "
                "rate or weight, look at that batch, or go back to an earlier state_dict",
                name,
                step,
            )
