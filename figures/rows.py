"""Read recorded rows: committed reference CSVs and a user's complete runs.

Nothing is filled in: an empty cell stays empty and becomes a gap or a label in the figure.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pandas as pd

from erase_core.bench import records
from erase_core.bench.environment import UNKNOWN
from figures.errors import EmptyRowsError, MissingColumnError, MissingRowsError, RowsError

REFERENCE, OWN = "reference", "own run"
REFERENCE_ARM = "baseline"
"""The arm that all others are compared with."""

_DIRTY = "-dirty"
ORIGIN, SOURCE = "origin", "source"
"""Columns added to what is read: reference or own run, and the file that a row comes from."""


@dataclass(frozen=True)
class Experiment:
    """What the rows of one experiment look like.

    Attributes:
        name: of the experiment, its CSV under figures/data and its runs.
        text: columns that hold names.
        numbers: columns that hold numbers; empty cells become NaN.
        check: raises a `RowsError` for rows that contradict themselves.
    """

    name: str
    text: tuple[str, ...]
    numbers: tuple[str, ...]
    check: Callable[[pd.DataFrame], None]


@dataclass(frozen=True)
class Source:
    """A file that rows were read from.

    Attributes:
        file: its path, from the project's directory where it lies there.
        sha256: of its bytes.
        count: number of rows.
        commits: the commits that its rows name.
        dirty: whether it was measured on files that differ from the commit; None if not known.
    """

    file: str
    sha256: str
    count: int
    commits: tuple[str, ...]
    dirty: bool | None


@dataclass(frozen=True)
class Rows:
    """The rows of one figure and where they come from.

    Attributes:
        frame: the experiment's columns, `origin` and `source`.
        sources: the files.
        skipped: run directory to the reason why its rows are not drawn.
    """

    frame: pd.DataFrame
    sources: tuple[Source, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


def load(experiment: Experiment, files: Sequence[Path], runs: Path | None = None) -> Rows:
    """Read the rows of an experiment from CSV files and from the runs under a directory.

    Of runs, only those count whose sidecar says complete, and those that say "oom" and have rows,
    which then hold no measurement but name what did not fit.

    Raises:
        MissingRowsError: a file is absent, or there are neither files nor complete runs.
        MissingColumnError, EmptyRowsError, RowsError: a file's content is not as expected.
    """
    parts: list[pd.DataFrame] = []
    sources: list[Source] = []
    for path in files:
        if not path.is_file():
            raise MissingRowsError(f"there are no rows at {path}: give a CSV by --rows")
        parts.append(_read(experiment, path, path.read_bytes(), REFERENCE, sources))
    skipped = {}
    for directory in runs_of(experiment, runs) if runs is not None else ():
        content, reason = rows_of_run(directory)
        if content is None:
            skipped[portable(directory)] = reason
        else:
            path = directory / records.ROWS
            parts.append(_read(experiment, path, content, OWN, sources))
    if not parts:
        raise MissingRowsError(
            f"there are no rows of {experiment.name}: give a CSV by --rows, or a directory with "
            f"complete runs by --runs ({runs} has none)"
        )
    frame = pd.concat(parts, ignore_index=True)
    experiment.check(frame)
    return Rows(frame, tuple(sources), skipped)


def measured_on(device: str, origin: str) -> str:
    """Return a device for a table's cell, marked where the rows are the user's own."""
    return f"{device} ({OWN})" if origin == OWN else device


def _read(
    experiment: Experiment, path: Path, content: bytes, origin: str, sources: list[Source]
) -> pd.DataFrame:
    columns = [*experiment.text, *experiment.numbers]
    try:
        frame = pd.read_csv(BytesIO(content), dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise RowsError(f"{path} is no CSV: {error}") from error
    absent = [column for column in columns if column not in frame.columns]
    if absent:
        raise MissingColumnError(
            f"{path} lacks the column(s) {', '.join(absent)}; {experiment.name} needs "
            f"{', '.join(columns)}"
        )
    if frame.empty:
        raise EmptyRowsError(f"{path} has a header but no rows: run the experiment again")
    frame = frame[columns].copy()
    for column in experiment.numbers:
        frame[column] = _numbers(frame[column], path)
    commits = tuple(sorted(set(frame["commit"])))
    digest = hashlib.sha256(content).hexdigest()
    name = portable(path)
    sources.append(Source(name, digest, len(frame), commits, _dirty(path, origin, commits)))
    return frame.assign(**{ORIGIN: origin, SOURCE: name})


def _dirty(path: Path, origin: str, commits: Sequence[str]) -> bool | None:
    """Return what an own run's sidecar says, or for other rows what their commits say."""
    if origin == OWN:
        stated = records.read(path.parent).get("dirty")
        return stated if isinstance(stated, bool) else None
    if any(commit.endswith(_DIRTY) for commit in commits):
        return True
    return None if {UNKNOWN, ""} & set(commits) else False


def portable(path: Path) -> str:
    """Return a path as seen from the project, if it lies there: the same on every host."""
    project = Path(__file__).resolve().parents[1]
    resolved = path.resolve()
    return (resolved.relative_to(project) if resolved.is_relative_to(project) else path).as_posix()


def _numbers(column: pd.Series, path: Path) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = column[numbers.isna() & (column != "") & (column.str.lower() != "nan")]
    if not wrong.empty:
        raise RowsError(
            f"{path}, line {wrong.index[0] + 2}: `{column.name}` (={wrong.iloc[0]!r}) must be a "
            "number or empty"
        )
    return numbers.astype(float)


def runs_of(experiment: Experiment, root: Path) -> list[Path]:
    """Return the directories of the experiment's runs under a root, in a fixed order."""
    if not root.is_dir():
        raise MissingRowsError(f"--runs {root} is not a directory")
    found = sorted(path.parent for path in root.rglob(records.SIDECAR))
    return [path for path in found if _experiment_of(path) == experiment.name]


def _experiment_of(directory: Path) -> object:
    return records.read(directory).get("experiment")


def rows_of_run(directory: Path) -> tuple[bytes | None, str]:
    """Return the content of a run's rows, or None and the reason."""
    sidecar = records.read(directory)
    status, path = sidecar["status"], directory / records.ROWS
    if status != "complete" and not (status == "oom" and path.exists()):
        return None, f"{status}: {sidecar.get('error') or 'not finished'}"
    stated = sidecar.get("rows")
    if not isinstance(stated, dict) or not path.exists():
        return None, "complete without rows"
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != stated.get("sha256"):
        raise RowsError(
            f"{path} is not the file that its run wrote (SHA-256 differs from {records.SIDECAR}): "
            "run it again, or pass it by --rows"
        )
    return content, ""


def explain_origins(rows: Rows) -> str:
    """Return a caption's sentence that tells own runs from reference rows; "" without own runs."""
    origins = rows.frame[ORIGIN]
    if OWN not in set(origins):
        return ""
    files = dict.fromkeys(rows.frame.loc[origins == REFERENCE, SOURCE])
    others = f"the others show the reference rows in {', '.join(files)}" if files else "as all do"
    return f' Panels headed "{OWN}" show complete runs of the reader\'s own; {others}.'
