"""Write aside, then rename: a prepared data set is complete or absent."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DataPrepError, DiskFullError, OutputExistsError, OutputUnwritableError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def _exists(out: Path) -> OutputExistsError:
    return OutputExistsError(
        out, "the output is there already", "Remove it, or choose another --out"
    )


@contextmanager
def staged(out: Path) -> Iterator[tuple[Path, Path]]:
    """Give a directory to fill and one for temporary files; rename the first to `out` at the end.

    Both lie beside `out`, so that the rename is atomic. They go away in any case, also after an
    error or an interrupt, together with parents of `out` that had to be made.

    Raises:
        OutputExistsError: `out` exists at the start, or was made by another process meanwhile.
        DiskFullError: the disk or quota is full.
        OutputUnwritableError: another error of the operating system while writing.
    """
    out = Path(os.path.abspath(out))
    if os.path.lexists(out):
        raise _exists(out)
    made = [parent for parent in out.parents if not parent.exists()]
    standing = out.parents[len(made)]
    if not standing.is_dir():
        raise OutputUnwritableError(out, f"{standing} is not a directory", "Choose another --out")
    work: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
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
            shutil.rmtree(work, ignore_errors=True)
        for parent in made:
            try:
                parent.rmdir()
            except OSError:
                break
