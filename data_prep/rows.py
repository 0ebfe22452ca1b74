"""Chunks of text to typed columns; every row that cannot be used is found, with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from .errors import (
    CategoryError,
    ColumnCountError,
    HourError,
    LabelError,
    LineEndError,
    NumberError,
    RowError,
)
from .layouts import Column, Form, Kind
from .lines import Chunk

_NEWLINE, _RETURN = 10, 13
_SKIP = "or pass --on-bad-row=skip to leave out and count such rows"
_REMEDY = "Correct or remove the line, " + _SKIP
_UNQUOTE = "Write the file without quotes, " + _SKIP
_HEX_DIGITS = 8
_SHOWN = 40


@dataclass(frozen=True)
class Parsed:
    """The usable rows of a chunk, typed, and the lines of its other rows by reason."""

    frame: pl.DataFrame
    bad_lines: dict[str, np.ndarray]


@dataclass(frozen=True)
class _Fault:
    """Lines that share what is wrong with them, and the column whose value is wrong, if one is."""

    error: type[RowError]
    lines: np.ndarray
    column: Column | None = None


def hex_key(text: pl.Expr) -> pl.Expr:
    """Map 1 to 8 hexadecimal digits to an int64 that tells the text (but for case) from others.

    Eight digits, the usual length, keep their value. Fewer are set apart by length, so that
    `0a` and `a` stay different categories.
    """
    shorter = _HEX_DIGITS - text.str.len_bytes().cast(pl.Int64)
    return text.str.to_integer(base=16, dtype=pl.Int64, strict=False) + shorter * (1 << 32)


def _number(text: pl.Expr) -> pl.Expr:
    value = text.cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value)


def _integer(text: pl.Expr) -> pl.Expr:
    # pandas writes the integers of a column with missing values as 3.0.
    return text.str.strip_suffix(".0").cast(pl.Int64, strict=False)


def _hour(text: pl.Expr) -> pl.Expr:
    day = (pl.lit("20") + text.str.head(6)).str.to_date("%Y%m%d", strict=False)
    valid = text.str.contains(r"^\d{8}$") & day.is_not_null()
    hour = text.cast(pl.Int64, strict=False)
    return pl.when(valid & (hour % 100 < 24)).then(hour)


def _typed(column: Column) -> pl.Expr:
    text = pl.col(column.name)
    match column.kind:
        case Kind.LABEL:
            return pl.when(text.is_in(["0", "1"])).then(text.cast(pl.UInt8, strict=False))
        case Kind.INTEGER:
            return _integer(text)
        case Kind.NUMBER:
            return _number(text)
        case Kind.HEX:
            hexadecimal = text.str.contains(r"^[0-9A-Fa-f]{1,8}$")
            return pl.when(hexadecimal).then(hex_key(text))
        case Kind.HOUR:
            return _hour(text)
        case Kind.IGNORED:
            raise ValueError(f"column {column.name!r} is ignored and has no typed form")


_PROBLEMS: dict[Kind, tuple[type[RowError], str]] = {
    Kind.LABEL: (LabelError, "is not a label 0 or 1"),
    Kind.INTEGER: (NumberError, "is not an integer"),
    Kind.NUMBER: (NumberError, "is not a finite number"),
    Kind.HEX: (CategoryError, "is not a category of 1 to 8 hexadecimal digits"),
    Kind.HOUR: (HourError, "is not a valid hour YYMMDDHH"),
}
_REQUIRED = (Kind.LABEL, Kind.HOUR)


class RowParser:
    """Parses chunks of one file.

    `crlf` says how the file's lines end. With `skip`, rows that cannot be used are left out and
    told in `Parsed.bad_lines`; without, the first one is raised as a `RowError`.
    """

    def __init__(self, path: Path, form: Form, *, crlf: bool, skip: bool) -> None:
        self._path = path
        self._form = form
        self._crlf = crlf
        self._skip = skip
        self._used = [column for column in form.columns if column.kind is not Kind.IGNORED]
        self._names = [column.name for column in form.columns]
        self._separator = form.delimiter.encode()

    def parse(self, chunk: Chunk) -> Parsed:
        """Return the chunk's usable rows.

        Raises:
            LineEndError, ColumnCountError, LabelError, NumberError, CategoryError, HourError:
            the first bad row, in file order, unless `skip` was chosen.
        """
        text = np.frombuffer(chunk.text, np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        starts = np.concatenate(([0], ends[:-1] + 1))
        wrong_end = self._wrong_ends(text, starts, ends)
        separators = np.flatnonzero(text == self._separator[0])
        columns = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
        wrong_count = (columns != len(self._names)) & ~wrong_end
        keep = ~(wrong_end | wrong_count)
        if keep.all():
            kept = chunk.text
        else:
            kept = text[np.repeat(keep, ends - starts + 1)].tobytes()
        frame, faults = self._columns(kept, chunk.first_line + np.flatnonzero(keep))
        faults = [
            _Fault(LineEndError, chunk.first_line + np.flatnonzero(wrong_end)),
            _Fault(ColumnCountError, chunk.first_line + np.flatnonzero(wrong_count)),
            *faults,
        ]
        faults = [fault for fault in faults if fault.lines.size]
        if faults and not self._skip:
            first = min(faults, key=lambda fault: int(fault.lines.min()))
            line = int(first.lines.min())
            index = line - chunk.first_line
            raise self._error(first, chunk.text[starts[index] : ends[index]], line)
        bad_lines: dict[str, np.ndarray] = {}
        for fault in faults:
            reason = fault.error.reason
            earlier = bad_lines.get(reason, fault.lines[:0])
            bad_lines[reason] = np.concatenate((earlier, fault.lines))
        return Parsed(frame, bad_lines)

    def _wrong_ends(self, text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        returns = np.flatnonzero(text == _RETURN)
        if not self._crlf and not returns.size:
            return np.zeros(ends.size, bool)
        in_line = np.diff(np.searchsorted(returns, ends), prepend=0)
        at_end = text[np.maximum(ends - 1, starts)] == _RETURN
        return (in_line != self._crlf) | (at_end != self._crlf)

    def _columns(self, text: bytes, lines: np.ndarray) -> tuple[pl.DataFrame, list[_Fault]]:
        strings = self._strings(text.replace(b"\r", b"") if self._crlf else text)
        frame = strings.select(_typed(column).alias(column.name) for column in self._used)
        good = np.ones(frame.height, bool)
        faults = []
        for column in self._used:
            wrong = frame[column.name].is_null()
            if column.kind not in _REQUIRED:
                wrong &= strings[column.name].is_not_null()
            if wrong.any():
                # A row with several wrong values counts once, under the first of them.
                first = wrong.to_numpy() & good
                good &= ~first
                faults.append(_Fault(_PROBLEMS[column.kind][0], lines[first], column))
        return (frame if good.all() else frame.filter(good)), faults

    def _strings(self, text: bytes) -> pl.DataFrame:
        if not text:
            return pl.DataFrame(schema=dict.fromkeys(self._names, pl.String))
        return pl.read_csv(
            text,
            has_header=False,
            separator=self._form.delimiter,
            quote_char=None,
            schema=dict.fromkeys(self._names, pl.String),
            # What is not UTF-8 is no valid value either, and is found as such with its line.
            encoding="utf8-lossy",
        )

    def _error(self, fault: _Fault, raw: bytes, line: int) -> RowError:
        values = raw.decode("utf-8", "replace").removesuffix("\r").split(self._form.delimiter)
        remedy = _REMEDY
        if fault.error is LineEndError:
            usual = "CR LF" if self._crlf else "LF"
            problem = f"mixed line ends: the first line ends with {usual}, this one does not"
            remedy = "Give all lines one end, for instance with `tr -d '\\r'`, " + _SKIP
        elif fault.column is None:
            count = f"{len(values)} columns" if values != [""] else "an empty line"
            problem = f"{count} instead of {len(self._names)} columns"
            if b'"' in raw:
                remedy = _UNQUOTE
        else:
            value = values[self._names.index(fault.column.name)]
            if '"' in value:
                remedy = _UNQUOTE
            shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
            problem = f"{fault.column.name} = {shown!r} {_PROBLEMS[fault.column.kind][1]}"
        return fault.error(self._path, problem, remedy, line)
