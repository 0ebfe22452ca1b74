"""Typed errors of data preparation: each names the file, the line (if there is one), the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class OptionError(ValueError):
    """An option of `prepare` is unknown, out of range or contradicts another."""


class DataPrepError(Exception):
    """Base class of every error that `data_prep` raises about files and their content.

    Attributes:
        path: the file or directory concerned.
        problem: what is wrong, without path, line or remedy.
        remedy: what to do about it.
        line: physical line number, counted from 1 with the header, or None for the whole file.
    """

    def __init__(self, path: Path, problem: str, remedy: str, line: int | None = None) -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        self.line = line
        where = f"{path}" if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}. {remedy}")

    def at(self, line: int) -> DataPrepError:
        """Return the same error with a line number, for a reader that knows how far it came."""
        return type(self)(self.path, self.problem, self.remedy, line)


class SourceNotFoundError(DataPrepError, FileNotFoundError):
    """The source does not exist."""


class SourceNotAFileError(DataPrepError):
    """The source is a directory or another thing that is not a regular file."""


class SourceUnreadableError(DataPrepError):
    """The operating system refuses to read the source."""


class SourceFormatError(DataPrepError):
    """The source is not a text table: an archive, another format, UTF-16, or one endless line."""


class EmptySourceError(DataPrepError):
    """The source holds no byte, or no row."""


class CorruptSourceError(DataPrepError):
    """Compressed data end early or fail their check."""


class ByteOrderMarkError(DataPrepError):
    """The source begins with a UTF-8 byte order mark."""


class HeaderError(DataPrepError):
    """The header is absent or does not name the expected columns."""


class TooFewRowsError(DataPrepError):
    """The rows do not fill all three splits."""


class OutputExistsError(DataPrepError, FileExistsError):
    """The output directory is there already; nothing is ever overwritten."""


class OutputUnwritableError(DataPrepError):
    """The operating system refuses to write the output."""


class DiskFullError(OutputUnwritableError):
    """The disk (or a quota) has no space left for the prepared data."""


class RowError(DataPrepError, ValueError):
    """A row cannot be used. Subclasses say why; `reason` is their key in the manifest."""

    reason: ClassVar[str]


class LineEndError(RowError):
    """A line ends unlike the file's first line, or holds a carriage return inside."""

    reason = "line-end"


class ColumnCountError(RowError):
    """A line has too few or too many columns."""

    reason = "column-count"


class LabelError(RowError):
    """A label is not 0 or 1."""

    reason = "label"


class NumberError(RowError):
    """A numeric column holds something else (or a decimal where an integer is needed)."""

    reason = "number"


class CategoryError(RowError):
    """A category is not hexadecimal."""

    reason = "category"


class HourError(RowError):
    """An Avazu hour is not a valid YYMMDDHH."""

    reason = "hour"
