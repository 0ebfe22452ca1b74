"""Reference rows: made of complete runs, and whole."""

import csv
import io
import json
from pathlib import Path

import pytest

from erase_core.bench.records import RunRecord
from erase_core.bench.throughput import COLUMNS
from erase_core.bench.timeline import occupancy, overlaps, read_trace
from figures.collect import collect
from figures.errors import MissingRowsError, RowsError
from figures.registry import DATA, FIGURES

EXPERIMENT = FIGURES["throughput"].experiment


def run(directory: Path, batch_size: int, fail: bool = False) -> None:
    row = dict.fromkeys(COLUMNS, "x") | {"batch_size": batch_size, "window": 0}
    with RunRecord(directory, "throughput", {"batch_size": batch_size}) as record:
        if fail:
            raise RuntimeError("boom")
        record.write_rows([row, row | {"window": 1}], COLUMNS)


def test_complete_runs_become_one_table_in_natural_order(tmp_path):
    for size in (4096, 512):
        run(tmp_path / "runs" / f"b-{size}", size)
    with pytest.raises(RuntimeError):
        run(tmp_path / "runs" / "b-1", 1, fail=True)
    table, sidecars = collect(EXPERIMENT, tmp_path / "runs", tmp_path / "out")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["batch_size"], row["window"]) for row in rows] == [
        ("512", "0"),
        ("512", "1"),
        ("4096", "0"),
        ("4096", "1"),
    ]
    assert tuple(rows[0]) == COLUMNS
    assert [sidecar["run"] for sidecar in json.loads(sidecars.read_text())] == ["b-512", "b-4096"]


def test_no_runs_and_changed_rows_are_refused(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(MissingRowsError, match="no complete run of throughput"):
        collect(EXPERIMENT, tmp_path / "runs", tmp_path / "out")
    run(tmp_path / "runs" / "a", 1)
    rows = tmp_path / "runs" / "a" / "rows.csv"
    rows.write_text(rows.read_text().replace("x", "y"))
    with pytest.raises(RowsError, match="not the file that its run wrote"):
        collect(EXPERIMENT, tmp_path / "runs", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", sorted(DATA.glob("*.csv")), ids=lambda path: path.stem)
def test_every_reference_row_has_its_sidecar(path):
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    sidecars = json.loads(path.with_suffix(".json").read_text())
    assert sum(sidecar["rows"]["count"] for sidecar in sidecars) == len(rows)
    commits = {sidecar["commit"][:12] for sidecar in sidecars}
    assert {row["commit"] for row in rows} == commits
    for sidecar in sidecars:
        assert sidecar["experiment"] == path.stem
        assert sidecar["status"] == "complete"
        assert not sidecar["dirty"], f"{sidecar['run']} was run on changed files"


def test_reference_traces_hold_what_their_summaries_say():
    """On the GPU that they name, threads overlap backward with the next forward."""
    for path in sorted((DATA / "traces").glob("*.json.gz")):
        summary = json.loads(
            path.with_name(path.name.replace(".json.gz", ".summary.json")).read_text()
        )
        kernels = read_trace(path)
        found = overlaps(kernels)
        assert len(found) == summary["overlaps"]
        assert occupancy(kernels).busy_us == pytest.approx(summary["occupancy"]["busy_us"])
        if summary["parameters"]["arms"] == ["erase-threaded"]:
            neighbours = [
                o
                for o in found
                if o.backward.label == "backward:block0" and o.forward.label == "forward:block1"
            ]
            assert neighbours, "no backward kernel of a block beside a forward kernel of the next"
