"""The normalized-entropy experiment: one arm, one model, one seed, evaluated through training."""

from erase_core.ctr.experiment.config import (
    CRITEO_SAMPLE,
    SYNTHETIC,
    NormalizedEntropyConfig,
    open_data,
)
from erase_core.ctr.experiment.rows import COLUMNS, linear_rows
from erase_core.ctr.experiment.running import NormalizedEntropyResult, run

__all__ = [
    "COLUMNS",
    "CRITEO_SAMPLE",
    "SYNTHETIC",
    "NormalizedEntropyConfig",
    "NormalizedEntropyResult",
    "linear_rows",
    "open_data",
    "run",
]
