"""Rows of the normalized-entropy experiment."""

from __future__ import annotations

from dataclasses import asdict

import torch

from erase_core.bench.environment import commit_label, device_name
from erase_core.ctr.linear import LinearReference
from erase_core.ctr.prepared import ClickData
from erase_core.ctr.training import Scores

Row = dict[str, object]

COLUMNS = (
    "device",
    "torch",
    "commit",
    "dataset",
    "model",
    "blocks",
    "arm",
    "gradients",
    "seed",
    "examples_seen",
    "split",
    "normalized_entropy",
    "log_loss",
    "auc",
    "calibration",
)
"""Columns of the experiment's rows. NE is against the entropy of the split's own click rate."""


def linear_rows(data: ClickData, reference: LinearReference) -> list[Row]:
    """Return a logistic regression's scores as rows: model "logistic-regression" of one block.

    `examples_seen` is the number of training rows, though the fit reads them many times.
    """
    common = identity(data, reference.device) | {
        "model": "logistic-regression",
        "blocks": 1,
        "arm": "baseline",
        "gradients": "exact",
        "seed": 0,
    }
    return [
        row(common, reference.training_rows, name, scores)
        for name, scores in reference.scores.items()
    ]


def row(common: Row, seen: int, split: str, scores: Scores) -> Row:
    """Return one row with the columns `COLUMNS`; see `identity` for `common`."""
    values = common | {"examples_seen": seen, "split": split} | asdict(scores)
    return {column: values[column] for column in COLUMNS}


def identity(data: ClickData, device: torch.device) -> Row:
    """Return the columns that say where rows come from; the caller adds model, arm and seed."""
    return {
        "device": device_name(device),
        "torch": str(torch.__version__),
        "commit": commit_label(),
        "dataset": data.schema.dataset,
    }
