import csv
import hashlib
import json
import shutil
import subprocess

import pytest
import torch

from erase_core import BlockError
from erase_core.bench import RunExistsError, RunRecord, RunRecordError, environment, records

ROWS = [{"arm": "baseline", "time": 1.5}, {"arm": "early", "time": None}]


def sidecar(directory):
    return json.loads((directory / "run.json").read_text())


def test_a_complete_run(tmp_path):
    run = tmp_path / "cell"
    with RunRecord(run, "throughput", {"batch_size": 8}, seed=3, dataset={"name": "d"}) as record:
        assert sidecar(run)["status"] == "running"
        record.write_rows(ROWS)
        record.note(arms={"early": "oom"})
        record.note(more=1)
    written = sidecar(run)
    assert written["status"] == "complete"
    assert written["error"] is None
    assert written["parameters"] == {"batch_size": 8}
    assert (written["experiment"], written["seed"]) == ("throughput", 3)
    assert written["details"] == {"arms": {"early": "oom"}, "more": 1}
    assert written["duration_s"] >= 0
    assert written["versions"]["torch"] == torch.__version__
    assert written["device"]["type"] == "cpu"
    content = (run / "rows.csv").read_bytes()
    assert written["rows"] == {
        "file": "rows.csv",
        "count": 2,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert list(csv.DictReader(content.decode().splitlines())) == [
        {"arm": "baseline", "time": "1.5"},
        {"arm": "early", "time": ""},
    ]
    assert sorted(path.name for path in run.iterdir()) == ["rows.csv", "run.json"]


def wrapped_oom():
    try:
        raise torch.OutOfMemoryError("CUDA out of memory")
    except torch.OutOfMemoryError as error:
        raise BlockError("block 'a' failed", "a", 0) from error


def raises(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("fail", "status"),
    [
        (raises(RuntimeError("broken")), "failed"),
        (raises(KeyboardInterrupt()), "failed"),
        (raises(TimeoutError("too slow")), "timeout"),
        (raises(MemoryError()), "oom"),
        (raises(torch.OutOfMemoryError("full")), "oom"),
        (raises(RuntimeError("DefaultCPUAllocator: can't allocate memory: 9")), "oom"),
        (wrapped_oom, "oom"),
    ],
)
def test_how_a_run_ended(tmp_path, fail, status):
    with pytest.raises(BaseException) as caught, RunRecord(tmp_path, "x", {}):  # noqa: B017
        fail()
    assert sidecar(tmp_path)["status"] == status
    assert sidecar(tmp_path)["error"].startswith(type(caught.value).__name__)


def test_a_complete_run_is_not_overwritten_silently(tmp_path):
    with RunRecord(tmp_path, "x", {}) as record:
        record.write_rows(ROWS)
    before = (tmp_path / "rows.csv").read_bytes()
    with pytest.raises(RunExistsError, match="overwrite=True"), RunRecord(tmp_path, "y", {}):
        pass
    assert sidecar(tmp_path)["experiment"] == "x"
    assert (tmp_path / "rows.csv").read_bytes() == before
    with RunRecord(tmp_path, "y", {}, overwrite=True):
        assert not (tmp_path / "rows.csv").exists()  # old rows never stand beside a new sidecar
    assert sidecar(tmp_path)["experiment"] == "y"


@pytest.mark.parametrize(
    ("content", "fault"), [(None, "is missing"), ("arm,time\n", "SHA-256 differs")]
)
def test_a_run_without_the_rows_it_wrote_is_not_complete(tmp_path, content, fault):
    with RunRecord(tmp_path, "x", {}) as record:
        path = record.write_rows(ROWS)
    assert records.is_complete(tmp_path)
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert not records.is_complete(tmp_path)
    assert fault in records.rows_fault(tmp_path, records.read(tmp_path))
    with RunRecord(tmp_path, "y", {}):
        pass
    assert sidecar(tmp_path)["experiment"] == "y"


@pytest.mark.parametrize("status", ["failed", "running", "oom", "timeout"])
def test_an_unfinished_run_is_replaced(tmp_path, status):
    records.mark(tmp_path, status, "killed")
    with RunRecord(tmp_path, "x", {}):
        pass
    assert sidecar(tmp_path)["status"] == "complete"


def test_mark_keeps_the_rest_of_the_sidecar(tmp_path):
    with pytest.raises(ZeroDivisionError), RunRecord(tmp_path, "x", {"a": 1}):
        raise ZeroDivisionError
    records.mark(tmp_path, "timeout", "kernel died")
    written = records.read(tmp_path)
    assert (written["status"], written["error"]) == ("timeout", "kernel died")
    assert written["parameters"] == {"a": 1}
    with pytest.raises(ValueError, match="`status`"):
        records.mark(tmp_path, "finished")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), ("{", "not JSON"), ("[]", "status"), ('{"status": "?"}', "status")],
)
def test_unreadable_sidecars(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunRecordError, match=message):
        records.read(tmp_path)


def test_rows_must_agree_on_their_columns(tmp_path):
    with RunRecord(tmp_path, "x", {}) as record:
        with pytest.raises(ValueError, match=r"`rows\[1\]`"):
            record.write_rows([{"a": 1}, {"b": 2}])
        with pytest.raises(ValueError, match="empty"):
            record.write_rows([])
    assert not (tmp_path / "rows.csv").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    records.write_atomically(path, b"old")
    monkeypatch.setattr(records.os, "replace", raises_os_error)
    with pytest.raises(OSError, match="No space"):
        records.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def raises_os_error(*_):
    raise OSError("No space left on device")


def test_commit_as_stated_by_the_environment(monkeypatch):
    monkeypatch.setenv("ERASE_COMMIT", "0123456789abcdef-dirty")
    assert environment.commit() == ("0123456789abcdef", True)
    assert environment.commit_label() == "0123456789ab-dirty"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git repository that tracks a copy of environment.py, and only that."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.delenv("ERASE_COMMIT", raising=False)
    copy = tmp_path / "environment.py"
    copy.write_text("original\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "environment.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(environment, "__file__", str(copy))
    return copy


def test_commit_as_git_has_it(checkout):
    name, dirty = environment.commit()
    assert len(name) == 40
    assert dirty is False
    checkout.write_text("changed\n")
    assert environment.commit() == (name, True)


def test_a_copy_in_someone_else_s_repository_is_not_theirs(checkout, monkeypatch):
    untracked = checkout.with_name("installed.py")
    untracked.write_text("")
    monkeypatch.setattr(environment, "__file__", str(untracked))
    assert environment.commit() == ("unknown", None)


def test_without_git_the_commit_is_unknown(monkeypatch):
    monkeypatch.delenv("ERASE_COMMIT", raising=False)
    monkeypatch.setattr(environment.shutil, "which", lambda _: None)
    assert environment.commit_label() == "unknown"


@pytest.mark.gpu
def test_the_gpu_is_named():
    description = environment.describe_device("cuda")
    assert description["name"] == torch.cuda.get_device_name()
    assert description["memory_bytes"] > 0
