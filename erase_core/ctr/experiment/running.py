"""Running the normalized-entropy experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch

from erase_core import BlockGraph, Engine, schedule
from erase_core.bench.records import RunRecord
from erase_core.bench.throughput import resolve_device
from erase_core.ctr.averaging import ParameterAverage
from erase_core.ctr.experiment.config import NormalizedEntropyConfig, open_data
from erase_core.ctr.experiment.rows import COLUMNS, Row, identity, row
from erase_core.ctr.feed import ResidentFeed
from erase_core.ctr.models import build_model
from erase_core.ctr.optimizers import optimizers
from erase_core.ctr.prepared import ClickData, Split
from erase_core.ctr.training import Scores, evaluate, train


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
        ValueError: if the labels of a split are all equal.
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
        for name, split in splits.items():
            # Now, not at the first evaluation, which may be hours away.
            if not 0 < split.click_rate < 1:
                raise ValueError(
                    f"split {name!r} of {config.dataset} has click rate {split.click_rate}: "
                    "normalized entropy needs both classes; prepare more rows or another split"
                )
        torch.manual_seed(config.seed + 1)
        common = identity(data, device) | {
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
        table_eps=config.table_eps,
    )
    autocast = torch.bfloat16 if config.precision == "bfloat16" else None
    feed = ResidentFeed(splits["train"].tensors, config.batch_size, seed=config.seed)
    rows: list[Row] = []
    scores: dict[int, dict[str, Scores]] = {}
    average = ParameterAverage(graph.parameters(), config.averaging) if config.averaging else None
    with Engine(graph, factory, schedule(config.arm), autocast=autocast) as engine:
        for seen in train(
            engine,
            feed,
            epochs=config.epochs,
            evaluations=config.evaluations,
            decay=config.decay,
            average=average,
        ):
            with nullcontext() if average is None else average.applied():
                scores[seen] = {
                    name: evaluate(
                        engine, splits[name].tensors, splits["train"].click_rate, config.prediction
                    )
                    for name in ("valid", "test")
                }
            for name, result in scores[seen].items():
                rows.append(row(common, seen, name, result))
                if on_row is not None:
                    on_row(rows[-1])
    return rows, scores


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
