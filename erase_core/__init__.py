"""Early backpropagation for block-wise trained networks: blocks, schedules and the engine.

The core imports torch alone. `erase_core.ctr` holds click-through-rate models and data feeds,
`erase_core.bench` measurement.
"""

from .blocks import Block
from .engine import Engine
from .errors import (
    BlockError,
    CheckpointError,
    EraseError,
    GraphError,
    NonFiniteLossError,
    ScheduleError,
)
from .graph import BlockGraph, Segment
from .objectives import LocalHead
from .schedules import LADDER, Schedule, schedule

__all__ = [
    "LADDER",
    "Block",
    "BlockError",
    "BlockGraph",
    "CheckpointError",
    "Engine",
    "EraseError",
    "GraphError",
    "LocalHead",
    "NonFiniteLossError",
    "Schedule",
    "ScheduleError",
    "Segment",
    "schedule",
]
