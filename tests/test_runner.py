"""`notebooks.run`: what is refused, what is recorded, what is left behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from erase_core.bench import ParameterError
from erase_core.bench.records import mark, read
from notebooks.parameters import from_command_line, from_file, literals, load
from notebooks.run import EXECUTED, FAILED, NotebookFailedError, is_complete, main, run

PARAMETERS = """
batch_size = 8  # examples a step
seed = 0  # of everything
run_dir = "."  # where rows go
"""
CONFIG = """
from dataclasses import dataclass
from erase_core.bench import require

@dataclass(frozen=True)
class StubConfig:
    batch_size: int
    seed: int
    model: str = "not offered by the notebook"

    def __post_init__(self):
        require(self.batch_size >= 1, "batch_size", self.batch_size, "must be at least 1.")
"""
# What RunRecord would leave; importing it, and torch with it, would take each kernel seconds.
RECORD = """
import json, pathlib
parameters = {"batch_size": batch_size, "seed": seed}
sidecar = {"status": "complete", "error": None, "parameters": parameters}
pathlib.Path(run_dir, "run.json").write_text(json.dumps(sidecar))
"""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Return a function that makes a notebook of the given cells and loads it."""
    (tmp_path / "stub_config.py").write_text(CONFIG)
    monkeypatch.syspath_prepend(tmp_path)

    def make(*cells, kernel="python3"):
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["erase"] = {"config": "stub_config:StubConfig"}
        notebook.metadata["kernelspec"] = {
            "name": kernel,
            "display_name": "Python 3",
            "language": "python",
        }
        first = nbformat.v4.new_code_cell(PARAMETERS.strip(), metadata={"tags": ["parameters"]})
        notebook.cells = [first, *(nbformat.v4.new_code_cell(cell) for cell in cells)]
        directory = tmp_path / "notebooks here"
        directory.mkdir()
        nbformat.write(notebook, directory / "stub.ipynb")
        return load("stub", directory)

    return make


def output_of(path: Path, cell: int) -> str:
    notebook = nbformat.read(path, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    return "".join(output.get("text", "") for output in code[cell].outputs)


def kernels() -> list[psutil.Process]:
    """Kernels of this test's processes."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if any("ipykernel_launcher" in part for part in child.cmdline())
    ]


def test_runs_with_parameters_in_its_own_directory_and_leaves_one_file(stub, tmp_path):
    spec = stub("import os; print(batch_size, seed, run_dir, os.getcwd())", RECORD)
    out = tmp_path / "a {run} of mine"
    assert run(spec, out, {"batch_size": 16}, progress=False) == out / EXECUTED
    # papermill puts the given values into a cell of its own behind the parameters cell.
    assert output_of(out / EXECUTED, 2) == f"16 0 {out} {spec.path.parent}\n"
    assert sorted(path.name for path in out.iterdir()) == [EXECUTED, "run.json"]
    assert read(out)["status"] == "complete"
    assert is_complete(out, {"batch_size": 16, "seed": 0})
    assert not is_complete(out, {"batch_size": 32, "seed": 0})
    assert not is_complete(out, {"batch_size": 16, "seed": 0, "later": None})
    assert not kernels()


@pytest.mark.parametrize("name", ["run.json", EXECUTED, "figure.pdf"])
def test_a_run_is_complete_with_all_its_files_alone(stub, tmp_path, name):
    spec = stub(RECORD, "pathlib.Path(run_dir, 'figure.pdf').touch()")
    out = tmp_path / "out"
    run(spec, out, {}, progress=False)
    assert is_complete(out, spec.resolve({}))
    (out / name).unlink()
    assert not is_complete(out, spec.resolve({}))
    (out / name).write_text("{")
    assert is_complete(out, spec.resolve({})) == (name != "run.json")


@pytest.mark.parametrize(
    ("cell", "status", "message"),
    [
        ("raise ValueError('a\\nb')", "failed", "In [4]: ValueError: a"),
        ("raise MemoryError('too much')", "oom", "In [4]: MemoryError: too much"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "oom",
            "In [4]: the kernel was killed, as when memory runs out",
        ),
        ("import os; os._exit(3)", "failed", "In [4]: the kernel died"),
        ("import time; time.sleep(60)", "timeout", "In [4]: took longer than allowed"),
    ],
)
def test_a_failure_is_recorded_and_the_notebook_kept(stub, tmp_path, cell, status, message):
    spec = stub(RECORD + "\nprint('before')", cell)
    out = tmp_path / "out"
    with pytest.raises(NotebookFailedError, match="stub") as raised:
        run(spec, out, {"seed": 1}, timeout_s=2, progress=False)
    assert raised.value.status == status
    sidecar = read(out)
    assert sidecar["status"] == status
    assert sidecar["error"] == message
    assert sidecar["parameters"] == {"batch_size": 8, "seed": 1}
    assert sorted(path.name for path in out.iterdir()) == [FAILED, "run.json"]
    assert "before" in (out / FAILED).read_text()
    assert not is_complete(out, {"batch_size": 8, "seed": 1})
    assert not kernels()


def test_a_repeated_run_replaces_what_the_failed_one_left(stub, tmp_path):
    spec = stub(RECORD)
    out = tmp_path / "out"
    mark(out, "failed", "earlier")
    (out / FAILED).write_text("{}")
    run(spec, out, {}, progress=False)
    assert sorted(path.name for path in out.iterdir()) == [EXECUTED, "run.json"]
    assert read(out)["error"] is None


def test_a_kernel_that_fails_to_start_is_started_again(stub, tmp_path, monkeypatch):
    marker = tmp_path / "failed once"
    script = tmp_path / "kernel.sh"
    script.write_text(
        f'#!/bin/sh\n[ -e "{marker}" ] || {{ touch "{marker}"; exit 1; }}\n'
        f'exec {sys.executable} -m ipykernel_launcher "$@"\n'
    )
    script.chmod(0o755)
    kernel = tmp_path / "jupyter" / "kernels" / "unsteady"
    kernel.mkdir(parents=True)
    argv = [str(script), "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "u", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    out = tmp_path / "out"
    run(stub(RECORD, kernel="unsteady"), out, {}, progress=False)
    assert marker.exists()
    assert read(out)["status"] == "complete"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_runner_leaves_no_kernel(stub, tmp_path, how):
    spec = stub(RECORD, "pathlib.Path(run_dir, 'begun').touch(); import time; time.sleep(120)")
    out = tmp_path / "out"
    program = f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(tmp_path)!r})
        from notebooks.parameters import load
        from notebooks.run import run
        run(load("stub", Path({str(spec.path.parent)!r})), Path({str(out)!r}), {{}})
    """
    runner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not (out / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    (kernel,) = kernels()
    runner.send_signal(how)
    assert runner.wait(30) != 0
    kernel.wait(30)  # a killed runner's kernel notices by itself
    if how != signal.SIGKILL:
        assert read(out)["status"] == "failed"
        assert read(out)["error"] == "In [4]: interrupted"
        assert not (out / EXECUTED).exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batchsize": 8}, "no parameter `batchsize`"),
        ({"model": "proxy"}, "no parameter `model`"),
        ({"run_dir": "x"}, "no parameter `run_dir`"),
        ({"batch_size": "8"}, "`batch_size` .*must be an integer"),
        ({"batch_size": 0}, "`batch_size` .*at least 1"),
        ({"batch_size": None}, "`batch_size`"),
    ],
)
def test_bad_parameters_are_refused_before_anything_runs(stub, tmp_path, given, message):
    with pytest.raises(ParameterError, match=message):
        run(stub(RECORD), tmp_path / "out", given)
    assert not (tmp_path / "out").exists()


def test_the_command_line_says_what_is_wrong(tmp_path, capsys):
    out = tmp_path / "out"
    for arguments, message in [
        (["nonesuch"], "there is no notebook `nonesuch`"),
        (["throughput", "-p", "batch_size", "many"], "`batch_size`"),
        (["throughput", "-p", "seed", "1", "-p", "seed", "2"], "`seed` is given twice"),
        (["throughput", "--parameters", str(tmp_path / "absent.yaml")], "absent.yaml"),
    ]:
        assert main([*arguments, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()


def test_values_on_the_command_line_are_json_or_text():
    pairs = [
        ("a", "512"),
        ("b", "1e-3"),
        ("c", "[1, 2]"),
        ("d", "true"),
        ("e", "cpu"),
        ("f", '"1"'),
    ]
    assert from_command_line(pairs) == {
        "a": 512,
        "b": 1e-3,
        "c": [1, 2],
        "d": True,
        "e": "cpu",
        "f": "1",
    }


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "1: x\n", "text"])
def test_a_parameter_file_must_be_one_mapping(tmp_path, text):
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=r"parameters\.yaml"):
        from_file(path)


@pytest.mark.parametrize(
    "source", ["a = (1, 2)", "a = f()", "a = {1: 2}", "import os", "a = b = 1"]
)
def test_only_json_literals_are_parameters(source):
    with pytest.raises(ParameterError):
        literals(source, Path("x.ipynb"))


def test_the_environment_is_left_as_it_was(stub, tmp_path):
    before = os.getcwd(), signal.getsignal(signal.SIGTERM)
    run(stub(RECORD), tmp_path / "out", {}, progress=False)
    assert (os.getcwd(), signal.getsignal(signal.SIGTERM)) == before
