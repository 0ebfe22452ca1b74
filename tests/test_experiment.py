import json

import pytest
import torch

from data_prep.cli import main as data_prep
from erase_core import LADDER
from erase_core.bench.parameters import ParameterError
from erase_core.bench.records import RunRecord
from erase_core.ctr import load, logistic_regression
from erase_core.ctr.experiment import (
    COLUMNS,
    CRITEO_SAMPLE,
    NormalizedEntropyConfig,
    linear_rows,
    open_data,
    run,
    running,
)

SMALL = {
    "synthetic_rows": 3000,
    "synthetic_table_rows": 1000,
    "model_options": {"blocks": 3, "width": 16, "embedding_dim": 4, "dropout": 0.1},
    "batch_size": 128,
    "evaluations": 2,
    "device": "cpu",
}


def make(**changes):
    return NormalizedEntropyConfig.from_parameters(SMALL | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batchsize": 1}, "unknown parameter `batchsize`.*did you mean `batch_size`"),
        ({"batch_size": "128"}, r"`batch_size` \(='128'\) must be an integer"),
        ({"batch_size": 0}, r"`batch_size` \(=0\) must be at least 1"),
        ({"epochs": 1.5}, r"`epochs` \(=1.5\) must be an integer"),
        ({"arm": "erase"}, r"`arm` \(='erase'\) must be one of: baseline"),
        ({"model": "fm"}, "no model 'fm'"),
        ({"model_options": {"depth": 3}}, "no option 'depth'"),
        ({"model_options": {"blocks": 0}}, r"`blocks` \(=0\)"),
        ({"dataset": "/absent"}, r"`dataset` \(='/absent'\) must be one of synthetic-criteo"),
        ({"learning_rate": 0}, r"`learning_rate` \(=0.0\) must be positive"),
        ({"weight_decay": -1}, r"`weight_decay` \(=-1.0\) must not be negative"),
        ({"table_eps": 0}, r"`table_eps` \(=0.0\) must be positive"),
        ({"averaging": 1}, r"`averaging` \(=1.0\) must be at least 0 and less than 1"),
        ({"precision": "fp8"}, r"`precision` \(='fp8'\) must be one of: 'float32'"),
        ({"prediction": "last"}, r"`prediction` \(='last'\) must be one of"),
        ({"decay": "cosine"}, r"`decay` \(='cosine'\) must be one of"),
        ({"device": "tpu"}, "`device`"),
        ({"seed": -1}, r"`seed` \(=-1\)"),
    ],
)
def test_names_a_bad_parameter(changes, message):
    with pytest.raises(ParameterError, match=message):
        make(**changes)


def test_rows_follow_the_schema_and_the_run_is_repeatable():
    before = torch.get_rng_state()
    shown = []
    first = run(make(), on_row=shown.append)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.rows == shown
    assert run(make()) == first
    assert {tuple(row) for row in first.rows} == {COLUMNS}
    assert [(row["examples_seen"], row["split"]) for row in first.rows] == [
        (1536, "valid"),
        (1536, "test"),
        (3000, "valid"),
        (3000, "test"),
    ]
    row = first.rows[-1]
    assert (row["dataset"], row["blocks"], row["gradients"]) == ("synthetic-criteo", 3, "local")
    assert run(make(seed=1)).rows != first.rows


def test_summary_knows_the_optimum_and_both_base_rates():
    summary = run(make()).summary
    assert json.loads(json.dumps(summary)) == summary
    test = summary["splits"]["test"]
    scores = summary["last"]["test"]
    assert test["bayes_normalized_entropy"] < scores["normalized_entropy"]
    assert test["click_rate"] != summary["splits"]["train"]["click_rate"]
    assert scores["normalized_entropy"] != scores["normalized_entropy_training_rate"]
    best = summary["best_by_validation"]
    assert best["valid"]["log_loss"] <= summary["last"]["valid"]["log_loss"]


def test_arms_with_the_same_gradients_give_the_same_curve(one_thread):
    curves = {
        arm: [row["log_loss"] for row in run(make(arm=arm)).rows]
        for arm in ("baseline", "detached", "early", "erase-threaded")
    }
    assert curves["detached"] == curves["early"] == curves["erase-threaded"]
    assert curves["baseline"] != curves["detached"]


def test_mean_of_heads_averaging_and_bfloat16_are_other_numbers():
    plain, mean, short = (
        run(make(**changes)).rows[-1]["log_loss"]
        for changes in ({}, {"prediction": "mean"}, {"precision": "bfloat16"})
    )
    averaged = run(make(averaging=0.9)).rows[-1]["log_loss"]
    assert plain != mean and plain != averaged
    assert short != plain and short == pytest.approx(plain, rel=0.02)


def test_rows_and_summary_go_into_the_record(tmp_path):
    config = make(dataset="synthetic-avazu", model="dcnv2-parallel", model_options={"width": 16})
    with RunRecord(tmp_path, "normalized-entropy", {}) as record:
        result = run(config, record)
    sidecar = json.loads((tmp_path / "run.json").read_text())
    assert sidecar["details"] == result.summary
    assert sidecar["rows"]["count"] == len(result.rows)
    assert (tmp_path / "rows.csv").read_text().splitlines()[0] == ",".join(COLUMNS)


def test_a_split_of_one_class_is_refused_before_training(tmp_path, monkeypatch):
    rows = ["\t".join([str(int(i % 3 == 0 and i < 90)), *["1"] * 39]) for i in range(100)]
    (tmp_path / "train.txt").write_text("\n".join(rows))
    out = str(tmp_path / "out")
    assert data_prep(["criteo", "--source", str(tmp_path / "train.txt"), "--out", out]) == 0
    monkeypatch.setattr(running, "_train", lambda *arguments: pytest.fail("trained"))
    with pytest.raises(ValueError, match="'test' of .*out has click rate 0.0: .*both classes"):
        run(make(dataset=out))


def test_logistic_regression_becomes_rows():
    data = open_data(make())
    reference = logistic_regression(data, penalties=[64], iterations=10)
    rows = linear_rows(data, reference)
    assert [row["split"] for row in rows] == ["valid", "test"]
    assert {tuple(row) for row in rows} == {COLUMNS}
    assert rows[0]["model"] == "logistic-regression" and rows[0]["examples_seen"] == 3000
    assert rows[1]["normalized_entropy"] == reference.scores["test"].normalized_entropy


def test_the_preset_is_valid_for_every_arm():
    for arm in LADDER:
        config = NormalizedEntropyConfig.from_parameters({**CRITEO_SAMPLE, "arm": arm})
        assert config.averaging > 0


@pytest.fixture(scope="module")
def real_criteo(real_data, tmp_path_factory):
    """The Criteo sample, split and encoded as `CRITEO_SAMPLE` says."""
    out = tmp_path_factory.mktemp("real") / "criteo"
    source = real_data / "criteo/w261_train_137139.tsv.xz"
    options = ["--min-count", "2", "--test-fraction", "0.2", "--valid-fraction", "0.1", "--quiet"]
    assert data_prep(["criteo", "--source", str(source), "--out", str(out), *options]) == 0
    return out


def test_real_rows_from_raw_file_to_normalized_entropy(real_criteo):
    preset = dict(CRITEO_SAMPLE) | {"evaluations": 1, "device": "cpu"}
    config = NormalizedEntropyConfig.from_parameters(
        preset | {"dataset": str(real_criteo), "arm": "baseline"}
    )
    result = run(config)
    splits = result.summary["splits"]
    assert sum(split["rows"] for split in splits.values()) == 137_139
    assert splits["test"]["bayes_normalized_entropy"] is None
    assert result.rows[-1]["dataset"] == "criteo-sample"
    assert result.rows[-1]["normalized_entropy"] <= 0.853


def test_real_rows_logistic_regression(real_criteo):
    reference = logistic_regression(load(real_criteo), penalties=[16])
    assert reference.scores["test"].normalized_entropy == pytest.approx(0.8525, abs=0.0005)
