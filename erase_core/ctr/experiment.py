"""The normalized-entropy experiment: one arm, one model, one seed, evaluated through training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from erase_core import LADDER, BlockGraph, Engine, schedule
from erase_core.bench.environment import commit_label, device_name
from erase_core.bench.parameters import (
    ParameterError,
    conform_fields,
    from_parameters,
    require,
)
from erase_core.bench.records import RunRecord
from erase_core.bench.throughput import resolve_device
from erase_core.ctr.feed import ResidentFeed
from erase_core.ctr.linear import LinearReference
from erase_core.ctr.models import build_model, model_options
from erase_core.ctr.optimizers import optimizers
from erase_core.ctr.prepared import ClickData, Split, load
from erase_core.ctr.synthetic import SyntheticClicks, SyntheticDataset
from erase_core.ctr.training import Decay, Prediction, Scores, evaluate, train

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

SYNTHETIC = ("synthetic-criteo", "synthetic-avazu")
"""Data sets that are generated where they are needed instead of being read."""

CRITEO_SAMPLE: Mapping[str, object] = {}
"""Parameters for a uniform sample of about 137,000 Criteo rows."""


@dataclass(frozen=True)
class NormalizedEntropyConfig:
    """What to train and how; every field is JSON-typed.

    Attributes:
        dataset: directory of a prepared data set, or "synthetic-criteo" or "synthetic-avazu".
        model: a key of `erase_core.ctr.MODELS`.
        model_options: options of the model, such as {"blocks": 8, "width": 256}.
        arm: a key of `erase_core.LADDER`.
        prediction: "output", the output block's head, or "mean", the mean of all heads' logits.
        seed: of initial parameters, order of rows and dropout; the same for every arm, so that
            arms can be compared in pairs.
        epochs: passes over the training split.
        batch_size: rows of a step.
        learning_rate: of Adam, which trains everything but the embedding table.
        table_learning_rate: of row-wise Adagrad, which trains the embedding table.
        weight_decay: decoupled, of matrices.
        table_weight_decay: added to the gradient of the embedding rows of a batch.
        decay: "linear" takes both learning rates to zero over the run, "none" keeps them.
        evaluations: how often to evaluate on the validation and test splits, evenly spread; the
            last time is at the end.
        precision: "bfloat16" runs forwards under autocast; parameters stay float32.
        device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:1".
        synthetic_rows: training rows of a synthetic set; its other splits have a quarter each.
        synthetic_seed: of a synthetic set's rows.
        synthetic_table_rows: bound on the embedding rows of a synthetic set.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    dataset: str = "synthetic-criteo"
    model: str = "proxy"
    model_options: Mapping[str, object] = field(default_factory=dict)
    arm: str = "detached"
    prediction: Prediction = "output"
    seed: int = 0
    epochs: int = 1
    batch_size: int = 512
    learning_rate: float = 1e-3
    table_learning_rate: float = 1e-2
    weight_decay: float = 0.0
    table_weight_decay: float = 0.0
    decay: Decay = "none"
    evaluations: int = 5
    precision: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    synthetic_rows: int = 200_000
    synthetic_seed: int = 0
    synthetic_table_rows: int = 1 << 20

    def __post_init__(self) -> None:
        """Check types, names and ranges before anything is read or built."""
        conform_fields(self)
        require(
            self.dataset in SYNTHETIC or Path(self.dataset).is_dir(),
            "dataset",
            self.dataset,
            f"must be one of {', '.join(SYNTHETIC)}, or a directory written by "
            "`python -m data_prep`.",
        )
        try:
            model_options(self.model, **self.model_options)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"`model` (={self.model!r}) or its options: {error}") from error
        require(self.arm in LADDER, "arm", self.arm, f"must be one of: {', '.join(LADDER)}.")
        for name, least in (
            ("seed", 0),
            ("epochs", 1),
            ("batch_size", 1),
            ("evaluations", 1),
            ("synthetic_rows", 100),
            ("synthetic_seed", 0),
            ("synthetic_table_rows", 200),
        ):
            value = getattr(self, name)
            require(value >= least, name, value, f"must be at least {least}.")
        for name in ("learning_rate", "table_learning_rate"):
            value = getattr(self, name)
            require(value > 0, name, value, "must be positive.")
        for name in ("weight_decay", "table_weight_decay"):
            value = getattr(self, name)
            require(value >= 0, name, value, "must not be negative; 0 turns it off.")
        resolve_device(self.device)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> NormalizedEntropyConfig:
        """Return a configuration from JSON-typed values; see `erase_core.bench.from_parameters`."""
        return from_parameters(cls, parameters)


@dataclass(frozen=True)
class NormalizedEntropyResult:
    """What an experiment measured.

    Attributes:
        rows: one for each evaluation and split, with the columns `COLUMNS`.
        summary: JSON-typed facts beside the rows: the data's fingerprint, click rates and, where
            known, Bayes-optimal normalized entropies; the scores of the last evaluation and of the
            one with the least validation log loss, with NE against the training split's click rate.
    """

    rows: list[Row]
    summary: dict[str, Any]


def open_data(config: NormalizedEntropyConfig) -> ClickData:
    """Return the data of a configuration; nothing is put on a device yet.

    Raises:
        PreparedDatasetError: if the directory is not a complete prepared data set.
    """
    if config.dataset not in SYNTHETIC:
        return load(config.dataset)
    clicks = SyntheticClicks(
        config.dataset.removeprefix("synthetic-"),
        config.synthetic_seed,
        max_rows=config.synthetic_table_rows,
    )
    held_out = config.synthetic_rows // 4
    return SyntheticDataset(clicks, (config.synthetic_rows, held_out, held_out))


def run(
    config: NormalizedEntropyConfig,
    record: RunRecord | None = None,
    on_row: Callable[[Row], object] | None = None,
) -> NormalizedEntropyResult:
    """Train one arm and evaluate it on the validation and test splits through training.

    The same configuration gives the same rows on the same device; torch's random state is left as
    it was.

    Args:
        config: what to train.
        record: an entered `RunRecord`; rows and summary are written to it.
        on_row: called with each row as it is measured, for a progress display.

    Raises:
        PreparedDatasetError: if the data cannot be read.
        NonFiniteLossError: if training diverges.
    """
    device = resolve_device(config.device)
    data = open_data(config)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        # Built on the CPU: initial parameters depend neither on the device nor on the arm.
        graph = build_model(config.model, data.schema, **dict[str, Any](config.model_options)).to(
            device
        )
        splits = {name: data.split(name, device) for name in ("train", "valid", "test")}
        torch.manual_seed(config.seed + 1)
        common = _identity(data, device) | {
            "model": config.model,
            "blocks": len(graph.names),
            "arm": config.arm,
            "gradients": schedule(config.arm).gradients,
            "seed": config.seed,
        }
        rows, scores = _train(config, graph, splits, common, on_row)
    summary = _summary(config, data, splits, scores)
    if record is not None:
        record.note(**summary)
        record.write_rows(rows, COLUMNS)
    return NormalizedEntropyResult(rows, summary)


def _train(
    config: NormalizedEntropyConfig,
    graph: BlockGraph,
    splits: Mapping[str, Split],
    common: Row,
    on_row: Callable[[Row], object] | None,
) -> tuple[list[Row], dict[int, dict[str, Scores]]]:
    factory = optimizers(
        config.learning_rate,
        config.table_learning_rate,
        weight_decay=config.weight_decay,
        table_weight_decay=config.table_weight_decay,
    )
    autocast = torch.bfloat16 if config.precision == "bfloat16" else None
    feed = ResidentFeed(splits["train"].tensors, config.batch_size, seed=config.seed)
    rows: list[Row] = []
    scores: dict[int, dict[str, Scores]] = {}
    with Engine(graph, factory, schedule(config.arm), autocast=autocast) as engine:
        for seen in train(
            engine,
            feed,
            epochs=config.epochs,
            evaluations=config.evaluations,
            decay=config.decay,
        ):
            scores[seen] = {}
            for name in ("valid", "test"):
                result = evaluate(
                    engine, splits[name].tensors, splits["train"].click_rate, config.prediction
                )
                scores[seen][name] = result
                rows.append(_row(common, seen, name, result))
                if on_row is not None:
                    on_row(rows[-1])
    return rows, scores


def linear_rows(data: ClickData, reference: LinearReference) -> list[Row]:
    """Return a logistic regression's scores as rows: model "logistic-regression" of one block.

    `examples_seen` is the number of training rows, though the fit reads them many times.
    """
    common = _identity(data, reference.device) | {
        "model": "logistic-regression",
        "blocks": 1,
        "arm": "baseline",
        "gradients": "exact",
        "seed": 0,
    }
    return [
        _row(common, reference.training_rows, name, scores)
        for name, scores in reference.scores.items()
    ]


def _row(common: Row, seen: int, split: str, scores: Scores) -> Row:
    row = common | {"examples_seen": seen, "split": split} | asdict(scores)
    return {column: row[column] for column in COLUMNS}


def _identity(data: ClickData, device: torch.device) -> Row:
    return {
        "device": device_name(device),
        "torch": str(torch.__version__),
        "commit": commit_label(),
        "dataset": data.schema.dataset,
    }


def _summary(
    config: NormalizedEntropyConfig,
    data: ClickData,
    splits: Mapping[str, Split],
    scores: Mapping[int, Mapping[str, Scores]],
) -> dict[str, Any]:
    best = min(scores, key=lambda seen: scores[seen]["valid"].log_loss)

    def point(seen: int) -> dict[str, Any]:
        return {"examples_seen": seen} | {
            name: asdict(result) for name, result in scores[seen].items()
        }

    return {
        "fingerprint": data.fingerprint,
        "prediction": config.prediction,
        "splits": {
            name: {
                "rows": split.rows,
                "click_rate": split.click_rate,
                "bayes_normalized_entropy": split.bayes_normalized_entropy,
            }
            for name, split in splits.items()
        },
        "last": point(max(scores)),
        "best_by_validation": point(best),
    }
