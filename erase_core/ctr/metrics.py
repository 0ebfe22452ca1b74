"""How good a click model's logits are: normalized entropy, AUC, calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

BaseRateSource = Literal["evaluated", "given"]


def _check_shapes(logits: Tensor, labels: Tensor) -> None:
    if logits.dim() != 1 or logits.shape != labels.shape:
        raise ValueError(
            f"`logits` {tuple(logits.shape)} and `labels` {tuple(labels.shape)} must both be "
            "[batch]; squeeze a trailing dimension"
        )
    if not logits.is_floating_point():
        raise TypeError(f"`logits` is {logits.dtype}; pass logits, not classes")


def _bad_rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Count, on the device, logits that are not finite and labels that are neither 0 nor 1."""
    return (~logits.isfinite()).sum(), ((labels != 0) & (labels != 1)).sum()


def _refuse_bad(bad_logits: int, bad_labels: int, where: str) -> None:
    if bad_logits:
        raise ValueError(
            f"{bad_logits} logits are NaN or infinite{where}; the model has diverged: lower the "
            "learning rate or look for the first such loss"
        )
    if bad_labels:
        raise ValueError(
            f"{bad_labels} labels are neither 0 nor 1{where}; labels are clicks, not "
            "probabilities or ±1"
        )


def _checked(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return float64 logits, boolean labels and the number of clicks."""
    _check_shapes(logits, labels)
    if logits.numel() == 0:
        raise ValueError("there are no rows to evaluate; `logits` is empty")
    bad_logits, bad_labels = _bad_rows(logits, labels)
    _refuse_bad(int(bad_logits), int(bad_labels), where="")
    clicked = labels.bool()
    return logits.double(), clicked, int(clicked.sum())


@dataclass(frozen=True)
class Evaluation:
    """What `NormalizedEntropy` measured.

    `log_loss` is in nats. `base_rate` is the constant prediction that NE compares with and
    `base_rate_source` says where it comes from: "evaluated", the click rate of the rows
    evaluated, or "given", a rate handed in, such as the training split's.
    """

    rows: int
    clicks: int
    log_loss: float
    mean_prediction: float
    base_rate: float
    base_rate_source: BaseRateSource

    @property
    def click_rate(self) -> float:
        """Clicks among the rows evaluated."""
        return self.clicks / self.rows

    @property
    def base_log_loss(self) -> float:
        """Log loss of predicting `base_rate` for every row, in nats."""
        rate = self.click_rate
        clicked = rate * math.log(self.base_rate) if rate > 0 else 0.0
        ignored = (1 - rate) * math.log1p(-self.base_rate) if rate < 1 else 0.0
        return -(clicked + ignored)

    @property
    def normalized_entropy(self) -> float:
        """Log loss over `base_log_loss`: below 1 is better than a constant."""
        return self.log_loss / self.base_log_loss

    @property
    def calibration(self) -> float:
        """Mean prediction over click rate: 1 is right. `ValueError` where nothing was clicked."""
        if self.clicks == 0:
            raise ValueError("calibration is undefined: none of the rows evaluated was clicked")
        return self.mean_prediction / self.click_rate


class NormalizedEntropy:
    """Normalized entropy over a stream of batches (He et al. 2014).

        NE = [−1/N Σ_i (y_i ln p_i + (1 − y_i) ln(1 − p_i))] / [−(ȳ ln b + (1 − ȳ) ln(1 − b))]

    b is the base rate: the click rate ȳ of the rows evaluated, which makes the denominator their
    entropy, or the rate given as `base_rate`. Sums are kept in float64 on the device of the logits
    and leave it in `compute` alone.

    Args:
        base_rate: constant prediction to compare with, between 0 and 1 exclusive; by default the
            click rate of the rows evaluated.
    """

    def __init__(self, base_rate: float | None = None) -> None:
        if base_rate is not None and not 0 < base_rate < 1:
            raise ValueError(f"`base_rate` (={base_rate}) must lie between 0 and 1, exclusive")
        self.base_rate = base_rate
        self.reset()

    def reset(self) -> None:
        """Forget every row."""
        self._rows = 0
        # Loss, predictions, clicks, bad logits, bad labels: counts are exact up to 2**53.
        self._sums: Tensor | None = None

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits, any float dtype, and 0/1 labels, both `[B]`. No host sync.

        Raises `ValueError` or `TypeError` where shapes or dtypes are wrong; NaN logits and
        labels other than 0 and 1 are reported by `compute`.
        """
        _check_shapes(logits, labels)
        wide, clicked = logits.double(), labels.double()
        sums = torch.stack(
            [
                F.binary_cross_entropy_with_logits(wide, clicked, reduction="sum"),
                wide.sigmoid().sum(),
                clicked.sum(),
                *(count.double() for count in _bad_rows(logits, labels)),
            ]
        )
        self._sums = sums if self._sums is None else self._sums + sums
        self._rows += logits.numel()

    def compute(self) -> Evaluation:
        """Return the evaluation of all rows so far. Waits for the device.

        Raises `ValueError` if there are no rows, a logit was not finite, a label neither 0 nor
        1, or all labels are equal while no `base_rate` was given.
        """
        if self._sums is None or self._rows == 0:
            raise ValueError("there are no rows to evaluate; call `update` first")
        loss, predictions, clicks, bad_logits, bad_labels = self._sums.tolist()
        _refuse_bad(int(bad_logits), int(bad_labels), where=f" among {self._rows} rows")
        rate = clicks / self._rows
        if self.base_rate is None and not 0 < rate < 1:
            raise ValueError(
                f"all {self._rows} labels are {int(rate)}: their entropy is zero and NE undefined; "
                "evaluate rows of both classes or give `base_rate`"
            )
        return Evaluation(
            rows=self._rows,
            clicks=int(clicks),
            log_loss=loss / self._rows,
            mean_prediction=predictions / self._rows,
            base_rate=rate if self.base_rate is None else self.base_rate,
            base_rate_source="evaluated" if self.base_rate is None else "given",
        )


@torch.no_grad()
def auc(logits: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve, exact: ties count one half (Mann–Whitney's U).

    Takes finite logits and 0/1 labels, both `[rows]`; raises `ValueError` where they are not,
    or where there are not both classes. Waits for the device.
    """
    wide, clicked, clicks = _checked(logits, labels)
    others = len(wide) - clicks
    if clicks == 0 or others == 0:
        raise ValueError(
            f"AUC is undefined: all {len(wide)} labels are {int(clicks > 0)}; evaluate rows of "
            "both classes"
        )
    negatives = wide[~clicked].sort().values
    positives = wide[clicked]
    below = torch.searchsorted(negatives, positives, right=False).sum()
    not_above = torch.searchsorted(negatives, positives, right=True).sum()
    # Integers until the one division, so that no pair is lost to rounding.
    return int(below + not_above) / (2 * clicks * others)


@torch.no_grad()
def calibration(logits: Tensor, labels: Tensor) -> float:
    """Mean predicted click rate over observed click rate: 1 is right, above 1 too eager.

    Takes finite logits and 0/1 labels, both `[rows]`; raises `ValueError` where they are not,
    or where nothing was clicked. Waits for the device.
    """
    wide, _, clicks = _checked(logits, labels)
    if clicks == 0:
        raise ValueError("calibration is undefined: none of the rows evaluated was clicked")
    return float(wide.sigmoid().sum()) / clicks
