import csv
import json

import pytest
import torch

from erase_core import LADDER, BlockError
from erase_core.bench import ParameterError, RunRecord, from_parameters, throughput
from erase_core.bench.throughput import (
    COLUMNS,
    ThroughputConfig,
    make_batches,
    make_graph,
    measure,
    resolve_device,
)

SMALL = {
    "model_options": {"blocks": 2, "width": 8, "embedding_dim": 2},
    "batch_size": 16,
    "windows": 2,
    "steps": 1,
    "warmup": 1,
    "device": "cpu",
}


def config(**changes) -> ThroughputConfig:
    return from_parameters(ThroughputConfig, {**SMALL, **changes})


def test_every_arm_gives_rows_of_the_schema(tmp_path):
    with RunRecord(tmp_path, "throughput", SMALL) as record:
        rows = measure(config(), record)
    assert [(row["window"], row["arm"]) for row in rows[: len(LADDER)]] == [
        (0, arm) for arm in LADDER
    ]
    assert len(rows) == 2 * len(LADDER)
    for row in rows:
        assert tuple(row) == COLUMNS
        assert row["examples_per_s"] == pytest.approx(16e6 / row["step_time_us"])
        assert row["gradients"] == LADDER[row["arm"]].gradients
        assert (row["dataset"], row["model"]) == ("synthetic-criteo", "proxy")
        assert (row["blocks"], row["width"], row["precision"]) == (2, 8, "float32")
    with (tmp_path / "rows.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    sidecar = json.loads((tmp_path / "run.json").read_text())
    assert sidecar["status"] == "complete"
    assert sidecar["details"]["arms"] == {arm: {"status": "complete"} for arm in LADDER}


def test_all_arms_start_from_the_same_parameters_and_batches():
    first, second = make_graph(config()), make_graph(config())
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    batches = make_batches(config(), torch.device("cpu"))
    assert len(batches) == throughput.BATCHES
    again = make_batches(config(), torch.device("cpu"))
    assert torch.equal(batches[3]["ids"], again[3]["ids"])
    assert not torch.equal(batches[0]["ids"], batches[1]["ids"])
    assert not torch.equal(
        batches[0]["ids"], make_batches(config(seed=1), torch.device("cpu"))[0]["ids"]
    )


def out_of_memory_in(*arms):
    """Replace `make_engine` by one whose engines of these arms fail at their first step."""
    make_engine = throughput.make_engine

    def make(config, arm, graph, device):
        engine = make_engine(config, arm, graph, device)
        if arm in arms:

            def step(batch):
                try:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                except torch.OutOfMemoryError as error:
                    raise BlockError("block0 failed", "block0", 0) from error

            engine.step = step
        return engine

    return make


def test_an_arm_that_does_not_fit_leaves_a_row_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "make_engine", out_of_memory_in("auxiliary"))
    chosen = config(arms=["baseline", "auxiliary", "early"])
    with RunRecord(tmp_path, "throughput", {}) as record:
        rows = measure(chosen, record)
    (failed,) = [row for row in rows if row["arm"] == "auxiliary"]
    assert failed["window"] is failed["step_time_us"] is failed["examples_per_s"] is None
    assert {row["arm"] for row in rows if row["step_time_us"]} == {"baseline", "early"}
    sidecar = json.loads((tmp_path / "run.json").read_text())
    assert sidecar["status"] == "complete"
    assert sidecar["details"]["arms"]["auxiliary"]["status"] == "oom"


def test_a_cell_in_which_nothing_fits_is_an_oom_run_with_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "make_engine", out_of_memory_in("baseline"))
    with (
        pytest.raises(torch.OutOfMemoryError, match="batch_size=16"),
        RunRecord(tmp_path, "throughput", {}) as record,
    ):
        measure(config(arms=["baseline"]), record)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "oom"
    assert ",baseline,exact,,,\n" in (tmp_path / "rows.csv").read_text()


def test_another_error_of_an_arm_is_not_taken_for_a_lack_of_memory(monkeypatch):
    def broken(*_):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(throughput, "make_engine", broken)
    with pytest.raises(RuntimeError, match="no kernel image"):
        measure(config())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "criteo"}, "`dataset` .*synthetic-criteo, synthetic-avazu"),
        ({"model": "resnet"}, "`model` .*proxy"),
        ({"model_options": {"widht": 8}}, "`model_options` .*widht"),
        ({"arms": []}, "`arms`"),
        ({"arms": ["baseline", "baseline"]}, "`arms` .* repeat"),
        ({"arms": ["fastest"]}, "`arms` .*baseline"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"windows": 1}, "`windows`"),
        ({"precision": "float16"}, "`precision`"),
        ({"device": "tpu"}, "`device`"),
        ({"device": "cuda:99"}, "`device`"),
        ({"seed": -1}, "`seed`"),
        ({"batchsize": 8}, "did you mean `batch_size`"),
    ],
)
def test_bad_parameters_are_refused_before_anything_runs(changes, message):
    with pytest.raises(ParameterError, match=message):
        config(**changes)


def test_auto_takes_a_gpu_where_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected


@pytest.mark.gpu
def test_on_a_gpu_peak_memory_is_noted(tmp_path):
    with RunRecord(tmp_path, "throughput", {}, device="cuda") as record:
        rows = measure(config(device="cuda", precision="bfloat16"), record)
    assert len(rows) == 2 * len(LADDER)
    arms = json.loads((tmp_path / "run.json").read_text())["details"]["arms"]
    assert all(note["peak_memory_bytes"] > 0 for note in arms.values())
