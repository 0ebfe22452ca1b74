"""Profiles are checked before anything runs; Snakemake runs, resumes and goes on after failures."""

import copy
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from erase_core.bench import ParameterError
from erase_core.bench.records import read
from notebooks.grid import PROFILES, load_plan, parse_sources
from notebooks.parameters import load
from notebooks.progress import Progress
from notebooks.reproduce import edited_notebooks, main
from notebooks.run import command

BASE = {
    "description": "a test",
    "datasets": {"tiny": {"kind": "synthetic", "name": "avazu", "rows": 2000, "min_count": 2}},
    "experiments": {
        "speed": {
            "notebook": "throughput",
            "grid": {"batch_size": [16, 32], "model": {"small": {"model_options": {"blocks": 2}}}},
            "parameters": {"windows": 2, "device": "cpu"},
            "alone": True,
        },
        "quality": {"notebook": "normalized_entropy", "grid": {"dataset": ["tiny"], "seed": [3]}},
    },
    "figures": ["throughput"],
}


@pytest.fixture
def profile(tmp_path):
    """Return a function that writes BASE with one value replaced, as a profile."""

    def write(path=(), value=None):
        body = copy.deepcopy(BASE)
        if path:
            inner = body
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        file = tmp_path / "test.yaml"
        file.write_text(yaml.safe_dump(body, sort_keys=False))
        return str(file)

    return write


def test_the_grid_is_the_product_of_its_axes(profile, tmp_path):
    plan = load_plan(profile(), tmp_path / "runs")
    assert plan.root == tmp_path / "runs" / "test"
    assert [cell.name for cell in plan.all_cells] == [
        "speed/batch_size-16_small",
        "speed/batch_size-32_small",
        "quality/tiny_seed-3",
        "figures",
    ]
    first, _, quality, figures = plan.all_cells
    given = {"windows": 2, "device": "cpu", "batch_size": 16, "model_options": {"blocks": 2}}
    assert first.parameters == load("throughput").resolve(given)  # the defaults, too
    assert first.alone and not quality.alone
    assert quality.dataset is not None
    assert quality.parameters["dataset"] == str(quality.dataset.directory)
    assert quality.dataset.arguments == tuple(
        "synthetic --name avazu --rows 2000 --min-count 2".split()
    )
    assert figures.parameters == {"figures": ["throughput"], "runs": str(plan.root)}


def test_commands_carry_every_parameter(profile, tmp_path):
    line = command(load_plan(profile(), tmp_path).cells[0])
    assert line[:3] == ["-m", "notebooks.run", "throughput"]
    assert "-p model_options '{\"blocks\": 2}'" in shlex.join(line)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["figure"], ["throughput"], "unknown parameter `figure`.*did you mean `figures`"),
        (["figures"], ["nonesuch"], "nonesuch"),
        (["description"], 3, "`description`"),
        (["experiments", "speed", "notbook"], "x", "unknown parameter `notbook`"),
        (["experiments", "speed", "notebook"], "x", "there is no notebook `x`"),
        (["experiments", "speed"], ["throughput"], "`experiments.speed` .*mapping"),
        (["experiments", "speed", "timeout_s"], "60", "`timeout_s`"),
        (["experiments", "speed", "parameters"], {"windws": 2}, "no parameter `windws`"),
        (["experiments", "speed", "parameters"], {"windows": "2"}, "`windows` .*integer"),
        (["experiments", "speed", "parameters"], {"run_dir": "x"}, "no parameter `run_dir`"),
        (["experiments", "speed", "grid", "batch_size"], [16, 0], "cell batch_size-0.*at least 1"),
        (["experiments", "speed", "grid", "batch_size"], 16, "`grid.batch_size` .*list"),
        (["experiments", "speed", "grid", "batch_size"], [], "`grid.batch_size`"),
        (["experiments", "speed", "grid", "batch_size"], [16, 16], "two cells are named"),
        (["experiments", "speed", "grid", "model"], {"a/b": {}}, "names a directory"),
        (["experiments", "quality", "grid", "dataset"], ["tinny"], "tinny"),
        (["datasets", "tiny"], {"kind": "criteo"}, "needs the raw file"),
        (["datasets", "tiny"], {"kind": "synthetic", "name": "avazu"}, "`rows` .*needed"),
        (["datasets", "tiny"], {"kind": "avazu", "rows": 5}, "`rows` .*synthetic datasets alone"),
        (["datasets", "tiny", "row"], 5, "unknown parameter `row`"),
    ],
)
def test_a_wrong_profile_is_refused_whole(profile, tmp_path, path, value, message):
    with pytest.raises(ParameterError, match=message):
        load_plan(profile(path, value), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_command_line_refuses_what_the_plan_refuses(profile, tmp_path, capsys):
    wrong = profile(["experiments", "speed", "parameters"], {"windws": 2})
    assert main([wrong, "--runs", str(tmp_path / "runs")]) == 2
    assert "no parameter `windws`" in capsys.readouterr().err
    assert main(["nonesuch"]) == 2
    assert "Known: " in capsys.readouterr().err


def test_a_source_that_the_profile_does_not_take_is_refused(profile, tmp_path, capsys):
    line = [profile(), "criteo=/nope", "--runs", str(tmp_path / "runs")]
    assert main(line) == 2
    error = capsys.readouterr().err
    assert "test.yaml: the profile takes no criteo=/nope" in error
    assert "Profiles that take criteo=PATH: full, sample." in error


@pytest.mark.parametrize("text", ["criteo", "cryteo=x", "=x"])
def test_a_source_is_kind_and_path(text):
    with pytest.raises(ParameterError, match="KIND=PATH"):
        parse_sources([text])


def test_every_shipped_profile_is_valid(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    raw = tmp_path / "raw"
    raw.touch()
    sources = {"criteo": str(raw), "avazu": str(raw)}
    plans = {
        path.stem: load_plan(
            path.stem, tmp_path, sources if path.stem in ("sample", "full") else {}
        )
        for path in PROFILES.glob("*.yaml")
    }
    assert {"smoke", "gpu", "full"} <= plans.keys()
    assert all(cell.gpus == 1 for cell in plans["gpu"].cells)
    assert all(cell.gpus == 0 for cell in plans["smoke"].cells)
    assert not plans["gpu"].datasets  # a GPU host need not have data_prep's requirements
    batches = {
        cell.parameters["batch_size"]
        for cell in plans["gpu"].cells
        if cell.notebook == "throughput"
    }
    assert batches == {2**power for power in range(8, 17)}


def test_a_profile_for_a_gpu_is_refused_where_there_is_none(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ParameterError, match="`device` .*is not here: 0 CUDA devices"):
        load_plan("gpu", tmp_path)


def test_two_at_once_refuse_each_other(profile, tmp_path, capsys):
    root = tmp_path / "runs" / "test"
    root.mkdir(parents=True)
    held = os.open(root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        assert main([profile(), "--runs", str(tmp_path / "runs")]) == 2
    finally:
        os.close(held)
    assert "is in use" in capsys.readouterr().err


def test_edited_notebooks_are_named_with_the_remedy(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    directory = tmp_path / "notebooks"
    directory.mkdir()
    notebook = directory / "a.ipynb"
    notebook.write_text("{}")
    assert edited_notebooks(directory) == ""  # no repository
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for line in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *line], check=True)
    (directory / "untracked.ipynb").touch()
    assert edited_notebooks(directory) == ""
    notebook.write_text("{ }")
    (warning,) = edited_notebooks(directory).splitlines()
    assert "a.ipynb" in warning and "git checkout notebooks" in warning


LOGGED = """
total 4

Job 3: quality/tiny
Job 1: dataset bad
Job 2: late/cell
error: bad: 2 rows
RuleException:
Error in rule dataset:
    jobid: 1
Finished jobid: 3 (Rule: cell)
1 of 4 steps (25%) done
Finished jobid: 2 (Rule: cell)
Finished jobid: 0 (Rule: all)
"""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_progress_is_one_line_for_every_job_that_ended(size):
    endings = {"late/cell": "timeout", "quality/tiny": "complete"}
    seconds = iter([0, 1, 2, 10, 20, 30])
    progress = Progress(lambda name: endings[name], lambda: next(seconds))
    pieces = [LOGGED[start : start + size] for start in range(0, len(LOGGED), size)]
    assert [line for piece in pieces for line in progress.lines(piece)] == [
        "error: bad: 2 rows",
        "[1/3] dataset bad failed after 9 s",
        "[2/3] quality/tiny 20 s",
        "[3/3] late/cell timeout after 28 s",
    ]


def reproduce(profile: str, runs: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "notebooks.reproduce", profile, "--runs", str(runs)]
    return subprocess.run(line, capture_output=True, text=True, cwd=runs.parent)


def test_a_failed_cell_is_recorded_the_rest_goes_on_and_only_it_is_repeated(tmp_path):
    body = {
        "description": "a test",
        "datasets": BASE["datasets"],
        "experiments": {
            "quality": {
                "notebook": "normalized_entropy",
                "grid": {"dataset": ["tiny"]},
                "parameters": {"evaluations": 1, "device": "cpu"},
            },
            "late": {
                "notebook": "throughput",
                "grid": {"batch_size": [16]},
                "parameters": {"windows": 1000000, "steps": 1, "warmup": 1, "device": "cpu"},
                "timeout_s": 3,
            },
        },
        "figures": ["normalized-entropy"],
    }
    file, runs = tmp_path / "test.yaml", tmp_path / "runs"
    file.write_text(yaml.safe_dump(body))
    done = reproduce(str(file), runs)
    assert done.returncode == 1, done.stderr
    quality, late = runs / "test/quality/tiny", runs / "test/late/batch_size-16"
    assert read(quality)["status"] == "complete"
    assert read(late)["status"] == "timeout"
    assert "test: 2 of 3 cells complete" in done.stdout
    assert re.search(r"timeout: late/batch_size-16: In \[\d\]: took longer", done.stdout)
    assert (runs / "test/figures/normalized_entropy.pdf").exists()
    assert "took longer than allowed" in (runs / "test/report/index.html").read_text()

    first = (quality / "run.json").read_bytes()
    body["experiments"]["late"]["timeout_s"] = 120
    body["experiments"]["late"]["parameters"]["windows"] = 2
    file.write_text(yaml.safe_dump(body))
    done = reproduce(str(file), runs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test: 3 of 3 cells complete" in done.stdout
    assert (quality / "run.json").read_bytes() == first

    by_hand = ["snakemake", "-n", "--cores", "1", "--config", f"profile={file}", f"runs={runs}"]
    done = subprocess.run(
        [sys.executable, "-m", *by_hand], capture_output=True, text=True, cwd=PROFILES.parent
    )
    assert "Nothing to be done" in done.stdout + done.stderr
    assert not (late / "failed.ipynb").exists()

    shutil.rmtree(quality)
    shutil.rmtree(runs / "test/figures")
    (late / "rows.csv").write_text("tampered")
    done = subprocess.run(
        [sys.executable, "-m", *by_hand], capture_output=True, text=True, cwd=PROFILES.parent
    )
    assert "quality/tiny" in done.stdout + done.stderr
    done = reproduce(str(file), runs)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = re.findall(r"^\[\d/4\] (\S+) \d+ s$", done.stdout, re.MULTILINE)
    assert sorted(jobs) == ["figures", "late/batch_size-16", "quality/tiny", "report"]
    assert "test: 3 of 3 cells complete" in done.stdout
    assert (runs / "test/figures/normalized_entropy.pdf").exists()
    assert (late / "rows.csv").read_text() != "tampered"
    assert len(done.stdout.splitlines()) == 1 + 4 + 3  # and nothing of Snakemake's
    assert not done.stderr.replace(edited_notebooks(), "").strip()


def test_an_interruption_prints_two_lines_and_names_nothing_old(profile, tmp_path):
    file = profile(["experiments", "speed", "parameters", "windows"], 1000000)
    runs = tmp_path / "runs"
    (runs / "test/report").mkdir(parents=True)
    (runs / "test/report/index.html").write_text("old")
    line = [sys.executable, "-m", "notebooks.reproduce", file, "--runs", str(runs)]
    process = subprocess.Popen(
        [*line, "--cores", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    begun: list[Path] = []
    while not begun and time.monotonic() < deadline:
        begun = list((runs / "test/speed").glob("*/run.json"))
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert begun and process.returncode == 130
    errors = errors.replace(edited_notebooks(), "").split("\n")
    assert [line for line in errors if line] == ["interrupted: run the same command again to go on"]
    assert "report:" not in out and "figures:" not in out
    assert "Exception" not in out and "cells complete" in out
