"""Statistics of throughput samples, and the ratio of two arms with its interval.

Throughput of a sample is batch size / step time, in examples per second, where every example of a
step counts once, whatever the number of losses computed on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from erase_core.bench.parameters import require


@dataclass(frozen=True)
class Summary:
    """What one arm did over its windows, in examples per second.

    Attributes:
        median: half of the samples are faster.
        mean: arithmetic mean of the samples.
        p90: 90th percentile, the *fast* tail. The paper's QPS is this one, over per-step samples
            after warm-up; here a sample is the mean of a window's steps.
        samples: how many there were.
    """

    median: float
    mean: float
    p90: float
    samples: int


@dataclass(frozen=True)
class Interval:
    """A point estimate and the interval around it."""

    estimate: float
    low: float
    high: float


def summarize(examples_per_s: Sequence[float]) -> Summary:
    """Summarize one arm's samples of throughput; percentiles are interpolated linearly.

    Raises:
        ParameterError: there is no sample, or one is not a positive number.
    """
    values = _positive("examples_per_s", examples_per_s, least=1)
    return Summary(
        median=float(np.median(values)),
        mean=float(values.mean()),
        p90=float(np.percentile(values, 90)),
        samples=values.size,
    )


def ratio(
    examples_per_s: Sequence[float],
    reference: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Return how many times as fast as the reference an arm is, with a bootstrap interval.

    With x_w and r_w the throughput of the arm and of the reference in window w,

        R = median_w(x_w) / median_w(r_w).

    The interval is the percentile bootstrap: windows are drawn with replacement, *the same draw for
    both arms*, so that what slowed both in a window cancels; R is computed for each of the
    `resamples` draws, and its (1 ± confidence)/2 quantiles are the ends. A fixed `seed` makes it a
    function of the samples.

    It speaks of the variation between windows of one process, not between machines or processes.

    Args:
        examples_per_s: the arm's samples, one a window.
        reference: the reference's samples of the same windows in the same order.
        confidence: in (0, 1).
        resamples: number of draws.
        seed: of the draws.

    Raises:
        ParameterError: the two differ in length, there are fewer than 2 windows, a sample is not a
            positive number, or `confidence` or `resamples` is out of range.
    """
    values = _positive("examples_per_s", examples_per_s, least=2)
    others = _positive("reference", reference, least=2)
    require(
        values.size == others.size,
        "reference",
        others.size,
        f"must have one sample for each of the {values.size} windows of the arm.",
    )
    require(0 < confidence < 1, "confidence", confidence, "must lie between 0 and 1.")
    require(resamples >= 1, "resamples", resamples, "must be at least 1.")
    draws = np.random.default_rng(seed).integers(0, values.size, size=(resamples, values.size))
    ratios = np.median(values[draws], axis=1) / np.median(others[draws], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Interval(float(np.median(values) / np.median(others)), float(low), float(high))


def _positive(name: str, values: Sequence[float], least: int) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    require(
        array.ndim == 1 and array.size >= least,
        name,
        array.shape,
        f"must be a flat sequence of at least {least} sample(s).",
    )
    bad = array[~(np.isfinite(array) & (array > 0))]
    require(bad.size == 0, name, bad.tolist(), "must hold only positive, finite numbers.")
    return array
