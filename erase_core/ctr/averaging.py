"""Predict with an average of the parameters along the way instead of their last values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_INTERVAL = 4


class ParameterAverage:
    """Exponential moving average of parameters (Polyak and Juditsky 1992).

    Averaging removes most of the noise that a constant learning rate leaves in the parameters. It
    changes what predicts, never what is trained, so every arm can have it. The average starts as
    the plain mean of what it has seen, until that has more weight than the decay gives it.

    Args:
        parameters: to average; read when `step` is called, on the caller's stream.
        decay: weight of the past after one step, between 0 and 1 exclusive. The average spans
            about `1 / (1 - decay)` steps. Parameters are read every fourth step.

    Raises:
        ValueError: if the decay is out of range.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"`decay` (={decay}) must lie between 0 and 1, exclusive")
        self.decay = decay
        self._parameters: list[Tensor] = list(parameters)
        self._average = [parameter.detach().clone() for parameter in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Take note that a training step has ended."""
        self._steps += 1
        if self._steps % _INTERVAL:
            return
        reads = self._steps // _INTERVAL
        past = min(self.decay**_INTERVAL, 1 - 1 / reads)
        torch._foreach_lerp_(self._average, self._parameters, 1 - past)

    @contextmanager
    @torch.no_grad()
    def applied(self) -> Iterator[None]:
        """Hold the average in the parameters inside of the block; training must pause there."""
        if self._steps < _INTERVAL:  # nothing has been read yet
            yield
            return
        trained = [parameter.detach().clone() for parameter in self._parameters]
        torch._foreach_copy_(self._parameters, self._average)
        try:
            yield
        finally:
            torch._foreach_copy_(self._parameters, trained)
