"""Write aside, then rename: a prepared data set is complete or absent."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import DataPrepError, DiskFullError, OutputExistsError, OutputUnwritableError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def _exists(out: Path) -> OutputExistsError:
    return OutputExistsError(
        out, "the output is there already", "Remove it, or choose another --out"
    )


def _check_name(out: Path) -> None:
    problem = None
    if "::" in str(out):
        problem = "`datasets` takes the `::` in the path for a chain of file systems"
    try:
        str(out).encode()
    except UnicodeEncodeError:
        problem = "the path is not UTF-8 text"
    if problem:
        raise OutputUnwritableError(out, problem, "Choose another --out")


def _lock(directory: Path) -> int:
    """Lock a directory until the returned descriptor is closed, or its process ends anyhow.

    `OSError` where the directory is gone, another process has it, or its file system has no locks.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _prefix(out: Path) -> str:
    return f".{out.name}.partial-"


def _make(out: Path) -> tuple[Path, int | None]:
    """Make a working directory beside `out` and lock it, where that is possible."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=_prefix(out), dir=out.parent))
        try:
            lock = _lock(work)
        except (BlockingIOError, FileNotFoundError):
            continue  # Another run swept it before it was locked.
        except OSError:
            return work, None
        if work.exists():
            return work, lock
        os.close(lock)


def _sweep(out: Path) -> None:
    """Remove working directories for `out` whose process was killed before it could do so."""
    if not out.parent.is_dir():
        return
    for left in list(out.parent.iterdir()):
        if not left.name.startswith(_prefix(out)):
            continue
        try:
            lock = _lock(left)
        except OSError:
            continue
        _remove(left)
        os.close(lock)


def _remove(work: Path) -> None:
    while True:
        try:
            return shutil.rmtree(work, ignore_errors=True)
        except KeyboardInterrupt:
            # A second Ctrl-C, or one after the rename: all that is left to do is to clean up.
            continue


@contextmanager
def staged(out: Path) -> Iterator[tuple[Path, Path]]:
    """Give a directory to fill and one for temporary files; rename the first to `out` at the end.

    Both lie beside `out`, so that the rename is atomic. They go away in any case, also after an
    error or an interrupt, together with parents of `out` that had to be made. What a killed process
    left is removed by the next run for the same `out`; the directories of a living one are locked.

    Raises:
        OutputExistsError: `out` exists at the start, or was made by another process meanwhile.
        DiskFullError: the disk or quota is full.
        OutputUnwritableError: another error of the operating system while writing.
    """
    out = Path(os.path.abspath(out))
    _check_name(out)
    with suppress(OSError):
        _sweep(out)
    if os.path.lexists(out):
        raise _exists(out)
    # Not `Path.exists`, which raises in a directory that may not be searched.
    made = [parent for parent in out.parents if not os.path.exists(parent)]
    standing = out.parents[len(made)]
    if not standing.is_dir():
        raise OutputUnwritableError(out, f"{standing} is not a directory", "Choose another --out")
    work: Path | None = None
    lock: int | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work, lock = _make(out)
        filled, scratch = work / "filled", work / "scratch"
        filled.mkdir()
        scratch.mkdir()
        yield filled, scratch
        if os.path.lexists(out):
            raise _exists(out)
        filled.rename(out)
    except DataPrepError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                out,
                "no space left on the disk (or in the quota)",
                "Free space, or choose an --out on another disk; nothing was left behind",
            ) from error
        why = os.strerror(error.errno) if error.errno else str(error)
        raise OutputUnwritableError(
            out, f"cannot be written ({why})", "Check permissions, or choose another --out"
        ) from error
    finally:
        if work is not None:
            _remove(work)
        if lock is not None:
            os.close(lock)
        for parent in made:
            try:
                parent.rmdir()
            except OSError:
                break
