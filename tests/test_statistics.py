import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from erase_core.bench import ParameterError, ratio, summarize


def test_summary_has_the_fast_tail():
    summary = summarize(list(range(1, 12)))
    assert (summary.median, summary.mean, summary.p90, summary.samples) == (6, 6, 10, 11)


def test_ratio_of_a_constant_speed_up_is_exact():
    reference = [100.0, 50.0, 80.0, 120.0, 90.0]
    interval = ratio([1.5 * value for value in reference], reference)
    assert interval.estimate == pytest.approx(1.5)
    # Pairing: what slows both arms in a window does not widen the interval.
    assert interval.low == pytest.approx(1.5)
    assert interval.high == pytest.approx(1.5)


def test_unpaired_noise_widens_the_interval():
    random = np.random.default_rng(0)
    reference = random.normal(100, 5, 40)
    interval = ratio(random.normal(110, 5, 40), reference)
    assert interval.low < interval.estimate < interval.high
    assert interval.high - interval.low > 0.01
    assert interval.low < 1.1 < interval.high


def test_interval_covers_the_true_ratio_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        common = random.normal(1, 0.1, 30)
        reference = 100 * common * random.normal(1, 0.03, 30)
        arm = 120 * common * random.normal(1, 0.03, 30)
        interval = ratio(arm, reference, resamples=500)
        covered += interval.low <= 1.2 <= interval.high
    assert 0.88 <= covered / 200 <= 1.0


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=20), st.integers(0, 9))
def test_ratio_is_a_function_of_the_samples_and_the_seed(values, seed):
    reference = [value * 0.5 + 1 for value in values]
    first = ratio(values, reference, resamples=50, seed=seed)
    assert first == ratio(values, reference, resamples=50, seed=seed)
    assert first.low <= first.high


@pytest.mark.parametrize(
    ("values", "reference", "options", "message"),
    [
        ([1, 2], [1, 2, 3], {}, "one sample for each of the 2 windows"),
        ([1], [1], {}, "at least 2"),
        ([1, 0], [1, 1], {}, "positive"),
        ([1, float("nan")], [1, 1], {}, "positive"),
        ([1, 2], [1, -2], {}, "`reference`"),
        ([1, 2], [1, 2], {"confidence": 95}, "`confidence`"),
        ([1, 2], [1, 2], {"resamples": 0}, "`resamples`"),
    ],
)
def test_bad_samples_are_refused(values, reference, options, message):
    with pytest.raises(ParameterError, match=message):
        ratio(values, reference, **options)


def test_no_samples_no_summary():
    with pytest.raises(ParameterError, match="at least 1"):
        summarize([])
