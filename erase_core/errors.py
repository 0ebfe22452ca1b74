"""Typed errors of the core; every message names the block, parameter or value and the remedy."""

from __future__ import annotations


class EraseError(Exception):
    """Base class of every error that `erase_core` raises on purpose."""


class GraphError(EraseError, ValueError):
    """A `BlockGraph` cannot be built, or a batch lacks what the graph reads."""


class ScheduleError(EraseError, ValueError):
    """A schedule is contradictory, unknown, or cannot be honoured exactly for this graph."""


class BlockError(EraseError, RuntimeError):
    """A block, its objective or its update failed during a step; the cause is chained.

    Attributes:
        block: name of the block (forward) or segment (backward, update) that failed.
        step: zero-based index of the training step.
    """

    def __init__(self, message: str, block: str, step: int) -> None:
        super().__init__(message)
        self.block = block
        self.step = step


class NonFiniteLossError(EraseError, ArithmeticError):
    """A loss became NaN or infinite.

    Attributes:
        block: name of the block whose objective first gave a non-finite loss.
        step: zero-based index of the first training step at which it did.
    """

    def __init__(self, message: str, block: str, step: int) -> None:
        super().__init__(message)
        self.block = block
        self.step = step


class CheckpointError(EraseError, ValueError):
    """A state_dict does not fit this engine; nothing was loaded."""
