"""Run records: a directory with rows and a sidecar that says where they come from.

    RUN/run.json   experiment, parameters, commit, versions, device, duration, status
    RUN/rows.csv   the measurement, written in one piece

Both files are written aside and renamed, so a reader sees a whole file or none. A killed process
leaves status "running", which no figure reads.
"""

import csv
import hashlib
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

import torch

from erase_core.bench.environment import commit, describe_device, versions
from erase_core.bench.memory import is_out_of_memory
from erase_core.bench.parameters import require

SIDECAR = "run.json"
ROWS = "rows.csv"
Status = Literal["running", "complete", "failed", "oom", "timeout"]


class RunExistsError(FileExistsError):
    """The run directory already holds a complete run."""


class RunRecordError(ValueError):
    """A sidecar or its rows are absent, unreadable or do not belong together."""


class RunRecord:
    """Record one run of one experiment; a context manager around the measurement.

    The status on leaving follows from what happened inside: "complete"; "oom" for an out-of-memory
    error, chained ones included; "timeout" for a TimeoutError; "failed" for everything else, Ctrl-C
    included. The exception always goes on to the caller.

    Args:
        directory: of this run alone; made if absent.
        experiment: name of the experiment, such as "throughput".
        parameters: JSON-typed values, as the experiment's configuration was given them.
        device: where it runs; described in the sidecar.
        seed: of the experiment, where it has one.
        dataset: name, fingerprint and kind of the data, where known.
        overwrite: replace a complete run instead of refusing. Unfinished runs are always replaced.

    Raises (on entering):
        RunExistsError: the directory holds a complete run, rows and all, and `overwrite` is false.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        experiment: str,
        parameters: Mapping[str, object],
        *,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        dataset: Mapping[str, object] | None = None,
        overwrite: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self._overwrite = overwrite
        self._device = torch.device(device)
        self._clock = 0.0
        self._sidecar: dict[str, object] = {
            "format": 1,
            "experiment": experiment,
            "parameters": dict(parameters),
            "seed": seed,
            "dataset": None if dataset is None else dict(dataset),
        }

    def __enter__(self) -> Self:
        """Claim the directory: write a sidecar that says "running", remove what was left before."""
        if not self._overwrite and is_complete(self.directory):
            raise RunExistsError(
                f"{self.directory} already holds a complete run: pass overwrite=True to replace "
                "it, or choose another directory"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        name, dirty = commit()
        self._clock = time.monotonic()
        self._sidecar |= {
            "commit": name,
            "dirty": dirty,
            "versions": versions(),
            "device": describe_device(self._device),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": None,
            "status": "running",
            "error": None,
            "rows": None,
            "details": {},
        }
        self._write()
        (self.directory / ROWS).unlink(missing_ok=True)
        return self

    def write_rows(
        self, rows: Sequence[Mapping[str, object]], columns: Sequence[str] | None = None
    ) -> Path:
        """Write all rows of the run to rows.csv and note their count and SHA-256.

        Args:
            rows: mappings from column to value; None becomes an empty cell.
            columns: their order; by default that of the first row.

        Raises:
            ParameterError: there are no rows, or one has other columns.
        """
        require(len(rows) > 0, "rows", rows, "must not be empty: a run without rows is a failure.")
        columns = list(columns or rows[0])
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for number, row in enumerate(rows):
            require(set(row) == set(columns), f"rows[{number}]", sorted(row), f"needs {columns}.")
            writer.writerow([row[column] for column in columns])
        content = text.getvalue().encode()
        path = self.directory / ROWS
        write_atomically(path, content)
        self._sidecar["rows"] = {
            "file": ROWS,
            "count": len(rows),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        self._write()
        return path

    def note(self, **details: object) -> None:
        """Add JSON-typed facts to the sidecar's "details", such as each arm's peak memory."""
        current = self._sidecar["details"]
        assert isinstance(current, dict)  # for the type checker: made in __enter__
        self._sidecar["details"] = {**current, **details}
        self._write()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write how the run ended."""
        self._sidecar["duration_s"] = round(time.monotonic() - self._clock, 3)
        self._sidecar["status"] = "complete" if error is None else status_for(error)
        if error is not None:
            self._sidecar["error"] = f"{type(error).__name__}: {error}"
        self._write()

    def _write(self) -> None:
        write_sidecar(self.directory, self._sidecar)


def status_for(error: BaseException) -> Status:
    """Return the status of a run that ended with this error."""
    if is_out_of_memory(error):
        return "oom"
    return "timeout" if isinstance(error, TimeoutError) else "failed"


def mark(directory: str | os.PathLike[str], status: Status, error: str | None = None) -> None:
    """Set the status of a run from outside, for a process that died before it could.

    Works without an earlier sidecar too: the run may have ended before it began.

    Raises:
        ParameterError: the status is none of the known ones.
    """
    require(status in get_args(Status), "status", status, f"must be one of {get_args(Status)}.")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sidecar = read(directory) if (directory / SIDECAR).exists() else {"format": 1, "rows": None}
    write_sidecar(directory, {**sidecar, "status": status, "error": error})


def read(directory: str | os.PathLike[str]) -> dict[str, object]:
    """Return the sidecar of a run.

    Raises:
        RunRecordError: there is none, or it is no JSON object with a status.
    """
    path = Path(directory) / SIDECAR
    try:
        sidecar = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunRecordError(f"{path} does not exist: this is not the directory of a run") from None
    except ValueError as error:
        raise RunRecordError(f"{path} is not JSON ({error}): delete it and run again") from error
    if not isinstance(sidecar, dict) or sidecar.get("status") not in get_args(Status):
        raise RunRecordError(f"{path} has no known `status`: delete it and run again")
    return sidecar


def status_of(directory: str | os.PathLike[str]) -> Status | None:
    """Return a run's status, or None where no run has begun.

    Raises:
        RunRecordError: the sidecar is there but cannot be read.
    """
    if not (Path(directory) / SIDECAR).exists():
        return None
    return read(directory)["status"]  # type: ignore[return-value]  # checked by read


def is_complete(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a run that ended well and still has the rows it wrote.

    Raises:
        RunRecordError: the sidecar is there but cannot be read.
    """
    return status_of(directory) == "complete" and not rows_fault(directory, read(directory))


def rows_fault(directory: str | os.PathLike[str], sidecar: Mapping[str, object]) -> str:
    """Return how a run's rows differ from what its sidecar states, empty if they do not."""
    stated = sidecar.get("rows")
    if not isinstance(stated, dict):  # an experiment without rows, such as figures
        return ""
    try:
        content = (Path(directory) / ROWS).read_bytes()
    except FileNotFoundError:
        return f"{ROWS} is missing"
    if hashlib.sha256(content).hexdigest() != stated.get("sha256"):
        return f"{ROWS} is not the file that the run wrote: SHA-256 differs from {SIDECAR}"
    return ""


def write_sidecar(directory: Path, sidecar: Mapping[str, object]) -> None:
    """Write run.json, keys in the given order."""
    text = json.dumps(sidecar, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(directory / SIDECAR, (text + "\n").encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file aside and rename it: readers see the old file or the new one, whole."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
