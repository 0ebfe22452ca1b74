"""Logistic regression on one-hot fields: the reference that every network has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from erase_core.ctr.prepared import ClickData
from erase_core.ctr.schema import LABEL, CtrSchema
from erase_core.ctr.training import Scores, score

PENALTIES = (256.0, 64.0, 16.0, 4.0)
"""Default candidates for the L2 penalty, largest first, each the next one's starting point."""


@dataclass(frozen=True)
class LinearReference:
    """A fitted logistic regression's scores.

    Attributes:
        penalty: L2 penalty with the least log loss on the validation split.
        scores: by split, `"valid"` and `"test"`.
        trials: log loss on the validation split by penalty, all that were tried.
        training_rows: rows that were fitted to.
        device: where.
    """

    penalty: float
    scores: Mapping[str, Scores]
    trials: Mapping[float, float]
    training_rows: int
    device: torch.device


def logistic_regression(
    data: ClickData,
    *,
    device: torch.device | str = "cpu",
    penalties: Sequence[float] = PENALTIES,
    iterations: int = 200,
) -> LinearReference:
    """Fit one weight an id and a dense field, choose the penalty on the validation split.

    Minimises the summed log loss plus `penalty / 2` times the squared weights (the bias is
    free) over the training split, by full-batch L-BFGS: deterministic, without a learning rate.

    Args:
        data: with splits `"train"`, `"valid"` and `"test"`.
        device: where to fit.
        penalties: candidates; fitted in decreasing order, each from the last one's weights.
        iterations: of L-BFGS at most, for each candidate; it stops where the loss settles.

    Raises:
        ValueError: if there is no candidate or one is not positive.
    """
    if not penalties or min(penalties) <= 0:
        raise ValueError(f"`penalties` (={tuple(penalties)}) must be positive numbers")
    train = data.split("train", device)
    held_out = {name: data.split(name, device) for name in ("valid", "test")}
    model = _Linear(data.schema, device)
    trials: dict[float, float] = {}
    best: dict[str, Scores] = {}
    for penalty in sorted(penalties, reverse=True):
        model.fit(train.tensors, penalty, iterations)
        scores = {
            name: score(model.logits(split.tensors), split.tensors[LABEL], train.click_rate)
            for name, split in held_out.items()
        }
        trials[penalty] = scores["valid"].log_loss
        if trials[penalty] == min(trials.values()):
            best = scores
    chosen = min(trials, key=trials.__getitem__)
    return LinearReference(chosen, best, trials, train.rows, torch.device(device))


class _Linear:
    """One weight a table row, one a dense field, one bias; float64."""

    def __init__(self, schema: CtrSchema, device: torch.device | str) -> None:
        offsets = (0, *accumulate(schema.cardinalities))[:-1]
        self.offsets = torch.tensor(offsets, dtype=torch.int64, device=device)
        self.table, self.dense, self.bias = (
            torch.zeros(size, dtype=torch.float64, device=device)
            for size in (schema.rows, len(schema.dense), 1)
        )

    def logits(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return float64 logits `[rows]`."""
        return self._logits(tensors["ids"] + self.offsets, self._dense(tensors))

    def _dense(self, tensors: Mapping[str, Tensor]) -> Tensor:
        rows = len(tensors[LABEL])
        return tensors["dense"].double() if "dense" in tensors else self.dense.new_empty(rows, 0)

    def _logits(self, rows: Tensor, dense: Tensor) -> Tensor:
        return self.table[rows].sum(1) + dense @ self.dense + self.bias

    def fit(self, tensors: Mapping[str, Tensor], penalty: float, iterations: int) -> None:
        """Minimise from the present weights on."""
        rows, dense = tensors["ids"] + self.offsets, self._dense(tensors)
        labels = tensors[LABEL].double()
        share = penalty / len(labels)
        optimizer = torch.optim.LBFGS(
            [self.table, self.dense, self.bias],
            max_iter=iterations,
            history_size=10,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        def closure() -> float:
            logits = self._logits(rows, dense)
            residual = (logits.sigmoid() - labels) / len(labels)
            # By hand: autograd's gradient of an indexing is many times slower than counting.
            repeated = residual[:, None].expand_as(rows).reshape(-1)
            counted = torch.bincount(rows.view(-1), repeated, minlength=len(self.table))
            self.table.grad = counted + share * self.table
            self.dense.grad = residual @ dense + share * self.dense
            self.bias.grad = residual.sum(0, keepdim=True)
            squares = self.table.square().sum() + self.dense.square().sum()
            loss = F.binary_cross_entropy_with_logits(logits, labels) + share / 2 * squares
            return float(loss)

        optimizer.step(closure)
