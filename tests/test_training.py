import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from erase_core import Engine, NonFiniteLossError
from erase_core.ctr import (
    ParameterAverage,
    ResidentFeed,
    SyntheticClicks,
    SyntheticDataset,
    build_model,
    evaluate,
    logistic_regression,
    optimizers,
    predict,
    score,
    train,
)


@pytest.fixture(scope="module")
def data():
    return SyntheticDataset(SyntheticClicks("criteo", max_rows=1000), (3000, 1500, 1500))


def make(data, arm="detached", **rates):
    torch.manual_seed(0)
    graph = build_model("proxy", data.schema, blocks=2, width=16, embedding_dim=4)
    return Engine(graph, optimizers(**rates), arm)


def test_score_agrees_with_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, generator=generator)
    labels = (torch.rand(500, generator=generator) < 0.3).float()
    scores = score(logits, labels, training_rate=0.4)
    probabilities, rate = torch.sigmoid(logits.double()).numpy(), labels.mean().item()
    assert scores.log_loss == pytest.approx(log_loss(labels, probabilities))
    assert scores.auc == pytest.approx(roc_auc_score(labels, probabilities))
    assert scores.calibration == pytest.approx(probabilities.mean() / rate)
    own = log_loss(labels, np.full(500, rate))
    assert scores.normalized_entropy == pytest.approx(scores.log_loss / own)
    training = log_loss(labels, np.full(500, 0.4))
    assert scores.normalized_entropy_training_rate == pytest.approx(scores.log_loss / training)


def test_predictions_come_in_order_and_can_average_the_heads(data):
    tensors = data.split("valid").tensors
    with make(data) as engine:
        heads = engine.predict_each(tensors)
        assert len(heads) == 2
        whole = predict(engine, tensors)
        assert whole.shape == (1500,) and whole.dtype == torch.float32
        torch.testing.assert_close(whole, engine.predict(tensors))
        torch.testing.assert_close(
            predict(engine, tensors, "mean"), torch.stack(list(heads.values())).mean(0)
        )


@pytest.mark.parametrize("arm", ["baseline", "detached"])
def test_training_beats_the_base_rate(data, arm):
    splits = {name: data.split(name) for name in ("train", "valid")}
    feed = ResidentFeed(splits["train"].tensors, 64)
    with make(data, arm, learning_rate=3e-3, table_learning_rate=0.03) as engine:
        *_, _ = train(engine, feed, epochs=2, evaluations=1)
        scores = evaluate(engine, splits["valid"].tensors, splits["train"].click_rate)
    assert splits["valid"].bayes_normalized_entropy < scores.normalized_entropy < 0.97


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [(1, [6000]), (4, [1536, 3000, 4536, 6000]), (3, [2048, 4024, 6000])],
)
def test_evaluations_are_spread_evenly_and_end_the_run(data, evaluations, expected):
    feed = ResidentFeed(data.split("train").tensors, 512)
    with make(data) as engine:
        assert list(train(engine, feed, epochs=2, evaluations=evaluations)) == expected
        assert engine.steps == 12


def test_more_evaluations_than_steps_is_one_a_step(data):
    feed = ResidentFeed(data.split("train").tensors, 1500)
    with make(data) as engine:
        assert list(train(engine, feed, epochs=1, evaluations=9)) == [1500, 3000]


def test_linear_decay_ends_one_step_above_zero(data):
    feed = ResidentFeed(data.split("train").tensors, 1000)
    with make(data, learning_rate=0.3, table_learning_rate=0.6) as engine:
        groups = [group for opt in engine.optimizers for group in opt.param_groups]
        rates = []
        for _ in train(engine, feed, epochs=1, evaluations=3, decay="linear"):
            rates.append([group["lr"] for group in groups])
    assert [sorted({round(r, 6) for r in step}) for step in rates] == [
        [0.3, 0.6],
        [0.2, 0.4],
        [0.1, 0.2],
    ]


def test_divergence_is_reported_at_the_next_evaluation(data):
    tensors = dict(data.split("train").tensors)
    tensors["dense"] = tensors["dense"].clone()
    tensors["dense"][100] = math.nan
    feed = ResidentFeed(tensors, 64, shuffle=False)
    engine = make(data)
    with pytest.raises(NonFiniteLossError, match="block0"):
        list(train(engine, feed, epochs=1, evaluations=2))
    engine.close()


def test_logistic_regression_agrees_with_scikit_learn(data):
    splits = {name: data.split(name).tensors for name in ("train", "valid", "test")}
    offsets = np.cumsum((0, *data.schema.cardinalities[:-1]))

    def design(tensors):
        rows = np.zeros((len(tensors["label"]), data.schema.rows))
        np.put_along_axis(rows, tensors["ids"].numpy() + offsets, 1.0, axis=1)
        return np.concatenate([rows, tensors["dense"].numpy()], axis=1)

    reference = LogisticRegression(C=1 / 8, max_iter=500, tol=1e-6)
    reference.fit(design(splits["train"]), splits["train"]["label"].numpy())
    fitted = logistic_regression(data, penalties=[8], iterations=200)
    for name in ("valid", "test"):
        expected = log_loss(splits[name]["label"], reference.predict_proba(design(splits[name])))
        assert fitted.scores[name].log_loss == pytest.approx(expected, rel=1e-4)


def test_logistic_regression_chooses_by_validation(data):
    fitted = logistic_regression(data, penalties=(0.01, 16, 100_000), iterations=30)
    assert set(fitted.trials) == {0.01, 16, 100_000}
    assert fitted.penalty == 16
    assert fitted.scores["valid"].log_loss == fitted.trials[16]
    with pytest.raises(ValueError, match="must be positive"):
        logistic_regression(data, penalties=[0])


def test_average_is_the_plain_mean_until_the_decay_gives_the_past_less_weight():
    parameter = torch.nn.Parameter(torch.zeros(3))
    average = ParameterAverage([parameter], decay=0.75)
    past = 0.75**4  # read every fourth step
    expected = 0.0
    for step in range(1, 41):
        parameter.data.fill_(step)
        average.step()
        if step % 4 == 0:
            share = max(1 - past, 1 / (step // 4))
            expected += share * (step - expected)
        with average.applied():
            held = parameter.data.clone()
        assert torch.equal(parameter.data, torch.full((3,), float(step)))
        torch.testing.assert_close(held, torch.full((3,), expected if step >= 4 else float(step)))
    assert expected < 40


def test_average_is_taken_out_again_after_an_error():
    parameter = torch.nn.Parameter(torch.zeros(1))
    average = ParameterAverage([parameter], decay=0.9)
    for value in range(8):
        parameter.data.fill_(value)
        average.step()
    with pytest.raises(RuntimeError, match="stop"), average.applied():
        assert parameter.item() == 5
        raise RuntimeError("stop")
    assert parameter.item() == 7


@pytest.mark.parametrize("decay", [0, 1, math.nan])
def test_average_refuses_a_decay_out_of_range(decay):
    with pytest.raises(ValueError, match="`decay`"):
        ParameterAverage([], decay)


def test_averaging_does_not_change_what_is_trained(data):
    feed = ResidentFeed(data.split("train").tensors, 64)
    states = []
    for averaged in (False, True):
        with make(data) as engine:
            average = ParameterAverage(engine.graph.parameters(), 0.9) if averaged else None
            for _ in train(engine, feed, epochs=1, evaluations=3, average=average):
                if average is not None:
                    with average.applied():
                        evaluate(engine, data.split("valid").tensors, 0.25)
            states.append([parameter.clone() for parameter in engine.graph.parameters()])
        feed = ResidentFeed(data.split("train").tensors, 64)
    assert all(torch.equal(left, right) for left, right in zip(*states, strict=True))


def test_table_eps_reaches_the_tables_alone(data):
    with make(data, table_eps=0.5) as engine:
        eps = {g["name"]: g["eps"] for opt in engine.optimizers for g in opt.param_groups}
    assert eps == {"matrices": 1e-8, "vectors": 1e-8, "tables": 0.5}
