import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from erase_core.ctr import NormalizedEntropy, auc, calibration

# A coarse grid, so that ties are common.
logits_and_labels = st.lists(
    st.tuples(st.integers(-12, 12).map(lambda z: z / 4), st.integers(0, 1)), min_size=2, max_size=60
).filter(lambda rows: 0 < sum(y for _, y in rows) < len(rows))


def columns(rows):
    logits, labels = zip(*rows, strict=True)
    return torch.tensor(logits, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)


def entropy(rate):
    return -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)


@given(rows=logits_and_labels, cut=st.integers(0, 60))
def test_agrees_with_scikit_learn(rows, cut):
    logits, labels = columns(rows)
    metric = NormalizedEntropy()
    metric.update(logits[:cut], labels[:cut])
    metric.update(logits[cut:], labels[cut:])
    result = metric.compute()

    probability = logits.double().sigmoid().numpy()
    rate = float(labels.mean(dtype=torch.float64))
    expected = log_loss(labels.numpy(), probability)
    assert result.rows == len(rows)
    assert result.clicks == int(labels.sum())
    assert result.log_loss == pytest.approx(expected, rel=1e-12)
    assert result.normalized_entropy == pytest.approx(expected / entropy(rate), rel=1e-12)
    assert result.calibration == pytest.approx(probability.mean() / rate, rel=1e-12)
    assert (result.base_rate, result.base_rate_source) == (rate, "evaluated")
    assert calibration(logits, labels) == pytest.approx(result.calibration, rel=1e-12)
    assert auc(logits, labels) == pytest.approx(
        roc_auc_score(labels.numpy(), logits.numpy()), abs=1e-12
    )


def test_agrees_with_torcheval():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torcheval.metrics import BinaryNormalizedEntropy

        theirs = BinaryNormalizedEntropy(from_logits=True)
    torch.manual_seed(0)
    ours = NormalizedEntropy()
    for size in (1000, 1, 77):
        logits = torch.randn(size)
        labels = (torch.rand(size) < (logits - 1).sigmoid()).float()
        ours.update(logits, labels)
        theirs.update(logits.double(), labels.double())
    assert ours.compute().normalized_entropy == pytest.approx(theirs.compute().item(), rel=1e-12)


def test_many_rows_lose_no_precision():
    # A float32 sum stops growing at 2**24 times its smallest term.
    logits, labels = torch.full((1_000_000,), -2.0), torch.zeros(1_000_000, dtype=torch.uint8)
    labels[::10] = 1
    metric = NormalizedEntropy()
    for _ in range(20):
        metric.update(logits, labels)
    result = metric.compute()
    p = 1 / (1 + math.exp(2))
    expected = -0.1 * math.log(p) - 0.9 * math.log(1 - p)
    assert result.log_loss == pytest.approx(expected, rel=1e-12)
    assert result.mean_prediction == pytest.approx(p, rel=1e-12)
    assert result.click_rate == 0.1


def test_large_logits_do_not_overflow():
    metric = NormalizedEntropy()
    metric.update(torch.tensor([1000.0, -1000.0]), torch.tensor([0.0, 1.0]))
    assert metric.compute().log_loss == 1000.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_predicting_the_base_rate_has_normalized_entropy_one(dtype):
    labels = torch.tensor([True, False, False, False])
    metric = NormalizedEntropy()
    metric.update(torch.full((4,), math.log(1 / 3), dtype=dtype), labels)
    assert metric.compute().normalized_entropy == pytest.approx(1.0, abs=1e-5)


def test_a_given_base_rate_is_a_constant_predictor_on_the_evaluated_rows():
    logits, labels = torch.zeros(4), torch.tensor([1.0, 0.0, 0.0, 0.0])
    metric = NormalizedEntropy(base_rate=0.4)
    metric.update(logits, labels)
    result = metric.compute()
    constant = -(0.25 * math.log(0.4) + 0.75 * math.log(0.6))
    assert result.normalized_entropy == pytest.approx(math.log(2) / constant, rel=1e-14)
    assert (result.base_rate, result.base_rate_source) == (0.4, "given")


def test_one_class():
    logits, labels = torch.zeros(3), torch.zeros(3)
    metric = NormalizedEntropy()
    metric.update(logits, labels)
    with pytest.raises(ValueError, match="all 3 labels are 0: .* NE undefined"):
        metric.compute()
    with pytest.raises(ValueError, match="all 3 labels are 0; evaluate rows of both"):
        auc(logits, labels)
    with pytest.raises(ValueError, match="all 3 labels are 1"):
        auc(logits, labels + 1)
    with pytest.raises(ValueError, match="none of the rows"):
        calibration(logits, labels)
    given_rate = NormalizedEntropy(base_rate=0.5)
    given_rate.update(logits, labels)
    assert given_rate.compute().normalized_entropy == pytest.approx(1.0, rel=1e-14)
    with pytest.raises(ValueError, match="none of the rows"):
        given_rate.compute().calibration  # noqa: B018


@pytest.mark.parametrize("function", [auc, calibration])
def test_no_rows(function):
    with pytest.raises(ValueError, match="no rows"):
        NormalizedEntropy().compute()
    metric = NormalizedEntropy()
    metric.update(torch.zeros(0), torch.zeros(0))
    with pytest.raises(ValueError, match="no rows"):
        metric.compute()
    with pytest.raises(ValueError, match="no rows"):
        function(torch.zeros(0), torch.zeros(0))


def streamed(logits, labels):
    metric = NormalizedEntropy()
    metric.update(torch.zeros(2), torch.tensor([0.0, 1.0]))
    metric.update(logits, labels)
    return metric.compute()


@pytest.mark.parametrize("function", [streamed, auc, calibration])
def test_bad_rows(function):
    good = torch.tensor([0.0, 1.0, 1.0])
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="2 logits are NaN or infinite"):
            function(torch.tensor([bad, -bad, 0.0]), good)
    for bad in (2.0, -1.0, 0.5, math.nan):
        with pytest.raises(ValueError, match="1 labels are neither 0 nor 1"):
            function(torch.zeros(3), torch.tensor([bad, 0.0, 1.0]))
    with pytest.raises(ValueError, match=r"\(3, 1\) and `labels` \(3,\)"):
        function(torch.zeros(3, 1), good)
    with pytest.raises(TypeError, match="int64"):
        function(torch.zeros(3, dtype=torch.long), good)


def test_reset_forgets_and_bad_base_rates_are_refused():
    metric = NormalizedEntropy()
    metric.update(torch.tensor([math.nan, 0.0]), torch.tensor([0.0, 1.0]))
    metric.reset()
    metric.update(torch.zeros(2), torch.tensor([0.0, 1.0]))
    assert metric.compute().rows == 2
    for rate in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="base_rate"):
            NormalizedEntropy(base_rate=rate)
