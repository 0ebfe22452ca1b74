"""Run one notebook by papermill: parameters checked first, the outcome recorded whatever happens.

DIR/notebook.ipynb   the executed notebook, only if every cell ran
DIR/failed.ipynb     the notebook up to and including the cell that failed
DIR/run.json         status, the files of the run and, after a failure, the cell and the error
"""

import argparse
import fcntl
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

from erase_core.bench import ParameterError
from erase_core.bench.records import (
    SIDECAR,
    RunRecordError,
    Status,
    mark,
    read,
    rows_fault,
    write_sidecar,
)
from notebooks.grid import Cell
from notebooks.kernel import ENGINE, KernelKilledError
from notebooks.parameters import (
    RUN_DIR,
    NotebookSpec,
    from_command_line,
    from_file,
    load,
    names,
)

EXECUTED = "notebook.ipynb"
FAILED = "failed.ipynb"
LOG = "log.txt"
"""What a run printed, where the caller keeps it."""
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")


class NotebookFailedError(RuntimeError):
    """A notebook did not run to its end; `status` says how, run.json and failed.ipynb say where."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


def run(
    spec: NotebookSpec,
    out: Path,
    given: Mapping[str, object],
    *,
    timeout_s: int | None = None,
    progress: bool = True,
) -> Path:
    """Run a notebook into a directory, replacing what an earlier run left there.

    Args:
        spec: the notebook, from `load`.
        out: directory of this run alone, passed to the notebook as `run_dir`.
        given: parameters that differ from the notebook's defaults.
        timeout_s: seconds that any one cell may take; unlimited by default.
        progress: show papermill's bar of cells.

    Returns:
        The executed notebook.

    Raises:
        ParameterError: before anything runs, a parameter is unknown or has a bad value.
        NotebookFailedError: a cell failed, ran out of memory or time, or the kernel died.
    """
    parameters = spec.resolve(given)
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in (EXECUTED, FAILED, SIDECAR):
        (out / name).unlink(missing_ok=True)
    # papermill formats its paths with str.format: braces in a directory's name stay themselves.
    unfinished = out / f".{EXECUTED.removesuffix('.ipynb')}.{os.getpid()}.ipynb"
    try:
        with _termination_as_exit():
            papermill.execute_notebook(
                _escaped(spec.path),
                _escaped(unfinished),
                parameters={**parameters, RUN_DIR: str(out)},
                engine_name=ENGINE,
                cwd=str(spec.path.parent),
                progress_bar=progress,
                execution_timeout=timeout_s,
            )
    except BaseException as error:
        status, message = _outcome(error)
        if unfinished.exists():
            unfinished.replace(out / FAILED)
            message = f"{_last_cell(out / FAILED)}: {message}"
        mark(out, status, message)
        if isinstance(error, Exception):
            raise NotebookFailedError(f"{spec.name}: {message}", status) from error
        raise
    unfinished.replace(out / EXECUTED)
    files = {path.name for path in out.iterdir() if path.is_file()} - {SIDECAR, LOG}
    write_sidecar(out, {**read(out), "files": sorted(files)})
    return out / EXECUTED


def command(cell: Cell) -> list[str]:
    """Return the arguments of `python` that run one cell of a grid."""
    line = ["-m", "notebooks.run", cell.notebook, "--out", str(cell.directory)]
    for name, value in cell.parameters.items():
        line += ["-p", name, json.dumps(value)]
    return [*line, "--timeout", str(cell.timeout_s), "--force"]


def is_complete(out: Path, parameters: Mapping[str, object]) -> bool:
    """Whether a directory holds a finished run, all files there, with these parameters.

    Args:
        out: the directory.
        parameters: all that the notebook has, as `NotebookSpec.resolve` returns them.
    """
    try:
        sidecar = read(out)
    except RunRecordError:
        return False
    complete = sidecar["status"] == "complete"
    return complete and not flaw(out, sidecar) and not differences(sidecar, parameters)


def flaw(out: Path, sidecar: Mapping[str, Any]) -> str:
    """Return what a run lacks though its sidecar says complete; empty if nothing."""
    if not (out / EXECUTED).exists():
        return "has no executed notebook: killed before it was saved, or removed since"
    missing = [name for name in sidecar.get("files", ()) if not (out / name).exists()]
    return f"{missing[0]} is missing" if missing else rows_fault(out, sidecar)


def differences(sidecar: Mapping[str, Any], parameters: Mapping[str, object]) -> str:
    """Return which parameters a run was made with instead of these; empty if with these."""
    recorded = sidecar.get("parameters")
    if not isinstance(recorded, dict):
        return "its parameters are not recorded"
    return ", ".join(
        f"{name}={json.dumps(recorded.get(name))} instead of {json.dumps(value)}"
        for name, value in parameters.items()
        if name not in recorded or recorded[name] != value
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 if the notebook failed, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m notebooks.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", help=f"notebook: {', '.join(names())}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="run directory")
    parser.add_argument(
        "-p",
        dest="pairs",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a parameter; VALUE is JSON (512, 1e-3, true, '[1, 2]') or else text",
    )
    parser.add_argument("--parameters", type=Path, metavar="FILE", help="parameters as YAML")
    parser.add_argument("--timeout", type=int, metavar="S", help="seconds that one cell may take")
    parser.add_argument("--force", action="store_true", help="replace a complete run")
    options = parser.parse_args(arguments)
    logging.getLogger("papermill").setLevel(logging.WARNING)
    try:
        spec = load(options.name)
        given = from_file(options.parameters) if options.parameters else {}
        parameters = spec.resolve({**given, **from_command_line(options.pairs)})
    except ParameterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        with _alone(options.out):
            if is_complete(options.out, parameters) and not options.force:
                print(f"{options.out} is complete; --force runs it again")
                return 0
            executed = run(spec, options.out, parameters, timeout_s=options.timeout)
    except NotebookFailedError as error:
        print(f"{error.status}: {error}\nSee {options.out / FAILED}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    print(executed)
    return 0


def _outcome(error: BaseException) -> tuple[Status, str]:
    """Return the status and one line that says what happened."""
    match error:
        case PapermillExecutionError():
            lines = error.evalue.strip().splitlines() or [""]
            status: Status = "oom" if error.ename in OUT_OF_MEMORY else "failed"
            return status, f"{error.ename}: {lines[0]}"
        case CellTimeoutError():
            return "timeout", "took longer than allowed"
        case KernelKilledError():
            return "oom", str(error)
        case DeadKernelError():
            return "failed", "the kernel died"
        case KeyboardInterrupt() | SystemExit():
            return "failed", "interrupted"
        case _:
            return "failed", f"{type(error).__name__}: {error}"


def _last_cell(path: Path) -> str:
    """Return the number, as the notebook shows it, of the last cell that was begun."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    begun = [
        number
        for number, cell in enumerate(cells, start=1)
        if cell.metadata.get("papermill", {}).get("start_time")
    ]
    return f"In [{begun[-1]}]" if begun else "before the first cell"


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Wait for another process that runs a notebook into the same directory, one orphaned too."""
    out.mkdir(parents=True, exist_ok=True)
    lock = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run into {out}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def _termination_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the kernel is shut down as after Ctrl-C."""

    def exit_(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before: Any = signal.signal(signal.SIGTERM, exit_)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _escaped(path: Path) -> str:
    return str(path).replace("{", "{{").replace("}", "}}")


if __name__ == "__main__":
    sys.exit(main())
