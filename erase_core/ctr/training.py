"""Train an engine on a feed, pausing for evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from erase_core import Engine
from erase_core.ctr.averaging import ParameterAverage
from erase_core.ctr.feed import ResidentFeed
from erase_core.ctr.metrics import NormalizedEntropy, auc
from erase_core.ctr.schema import LABEL

Decay = Literal["none", "linear"]
Prediction = Literal["output", "mean"]

EVALUATION_BATCH = 8192
"""Rows of a batch of an evaluation; no result depends on it but by rounding."""


@dataclass(frozen=True)
class Scores:
    """How good predictions are on one split.

    Attributes:
        normalized_entropy: log loss over the entropy of the split's own click rate.
        normalized_entropy_training_rate: log loss over that of predicting the training split's
            click rate for every row.
        log_loss: in nats.
        auc: area under the ROC curve.
        calibration: mean prediction over click rate.
    """

    normalized_entropy: float
    normalized_entropy_training_rate: float
    log_loss: float
    auc: float
    calibration: float


def score(logits: Tensor, labels: Tensor, training_rate: float) -> Scores:
    """Return the scores of logits `[rows]` against 0/1 labels `[rows]`. Waits for the device.

    Raises:
        ValueError: for logits that are not finite, or labels of one class alone.
    """
    own, training = NormalizedEntropy(), NormalizedEntropy(base_rate=training_rate)
    own.update(logits, labels)
    training.update(logits, labels)
    result = own.compute()
    return Scores(
        normalized_entropy=result.normalized_entropy,
        normalized_entropy_training_rate=training.compute().normalized_entropy,
        log_loss=result.log_loss,
        auc=auc(logits, labels),
        calibration=result.calibration,
    )


def predict(
    engine: Engine, tensors: Mapping[str, Tensor], prediction: Prediction = "output"
) -> Tensor:
    """Return float32 logits `[rows]` for every row of a split.

    Args:
        engine: whose graph predicts.
        tensors: a split under the names of a batch, on the engine's device.
        prediction: `"output"`, the output block's head; or `"mean"`, the mean of the logits of
            all heads.
    """
    parts = []
    for batch in ResidentFeed(tensors, EVALUATION_BATCH, shuffle=False):
        if prediction == "output":
            logits = engine.predict(batch)
        else:
            logits = torch.stack(list(engine.predict_each(batch).values())).float().mean(0)
        parts.append(logits.float())
    return torch.cat(parts)


def evaluate(
    engine: Engine,
    tensors: Mapping[str, Tensor],
    training_rate: float,
    prediction: Prediction = "output",
) -> Scores:
    """Score an engine's predictions on a split; see `predict` and `score`."""
    return score(predict(engine, tensors, prediction), tensors[LABEL], training_rate)


def train(
    engine: Engine,
    feed: ResidentFeed,
    *,
    epochs: int,
    evaluations: int,
    decay: Decay = "none",
    average: ParameterAverage | None = None,
) -> Iterator[int]:
    """Train for whole epochs and yield the number of examples seen when an evaluation is due.

    Evaluations are spread evenly over the run and the last one comes after the last step. While the
    generator is suspended every step is finished (flushed).

    Args:
        engine: to train.
        feed: batches of the training split.
        epochs: passes over the feed.
        evaluations: how many times to yield; at most once a step.
        decay: `"linear"` takes every learning rate from its value to zero over the run.
        average: told of every step.

    Raises:
        NonFiniteLossError: if a loss was NaN or infinite; found at the next evaluation.
    """
    steps = epochs * len(feed)
    due = {-(-steps * i // evaluations) for i in range(1, evaluations + 1)}
    rates = [(group, group["lr"]) for opt in engine.optimizers for group in opt.param_groups]
    step = examples = 0
    for _ in range(epochs):
        for batch in feed:
            if decay == "linear":
                for group, rate in rates:
                    group["lr"] = rate * (1 - step / steps)
            engine.step(batch)
            if average is not None:
                average.step()
            step += 1
            examples += len(batch[LABEL])
            if step in due:
                engine.flush()
                yield examples
