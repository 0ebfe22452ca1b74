"""Which columns a raw file has, and in which of its known forms a given file is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .errors import ColumnCountError, HeaderError

_SHOWN = 6
"""How many column names an error message lists before it says how many more there are."""


class Kind(Enum):
    """What the text of a column means, hence how it is checked and stored."""

    LABEL = "label"  # 0 or 1
    INTEGER = "integer"  # decimal integer, empty = missing
    NUMBER = "number"  # finite decimal number, empty = missing
    HEX = "hex"  # 1 to 8 hexadecimal digits, empty = missing
    HOUR = "hour"  # YYMMDDHH, never missing
    IGNORED = "ignored"


@dataclass(frozen=True)
class Column:
    """One column of a raw file: its name after reading, and its kind."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Layout:
    """The columns of a data set's raw files.

    Attributes:
        dataset: "criteo" or "avazu".
        columns: all columns, in file order.
        header_required: whether a file must start with the header; else it may.
        delimiters: accepted column separators, the usual one first.
        index: name of an extra first column that some copies carry and that is ignored.
    """

    dataset: str
    columns: tuple[Column, ...]
    header_required: bool
    delimiters: str
    index: str | None = None

    @property
    def header(self) -> tuple[str, ...]:
        """Column names in file order, as a header line spells them."""
        return tuple(column.name for column in self.columns)

    def named(self, kind: Kind) -> tuple[str, ...]:
        """Names of the columns of one kind, in file order."""
        return tuple(column.name for column in self.columns if column.kind is kind)


@dataclass(frozen=True)
class Form:
    """The form in which one particular file keeps a layout's rows."""

    delimiter: str
    has_header: bool
    columns: tuple[Column, ...]


def _columns(kind: Kind, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names)


CRITEO = Layout(
    dataset="criteo",
    columns=(
        *_columns(Kind.LABEL, "label"),
        *_columns(Kind.INTEGER, *(f"I{i}" for i in range(1, 14))),
        *_columns(Kind.HEX, *(f"C{i}" for i in range(1, 27))),
    ),
    header_required=False,
    delimiters="\t,",
    index="id",
)

_AVAZU_HEX = "site_id site_domain site_category app_id app_domain app_category"
_AVAZU_DEVICE = "device_id device_ip device_model"
AVAZU = Layout(
    dataset="avazu",
    columns=(
        *_columns(Kind.IGNORED, "id"),
        *_columns(Kind.LABEL, "click"),
        *_columns(Kind.HOUR, "hour"),
        *_columns(Kind.INTEGER, "C1", "banner_pos"),
        *_columns(Kind.HEX, *_AVAZU_HEX.split(), *_AVAZU_DEVICE.split()),
        *_columns(Kind.INTEGER, "device_type", "device_conn_type"),
        *_columns(Kind.INTEGER, *(f"C{i}" for i in range(14, 22))),
    ),
    header_required=True,
    delimiters=",\t",
)

LAYOUTS = {layout.dataset: layout for layout in (CRITEO, AVAZU)}


def _is_name(field: str) -> bool:
    # Data are decimal numbers and hexadecimal digits, so a letter beyond f marks a column name.
    return any(letter.isalpha() and letter.lower() not in "abcdef" for letter in field)


def _is_header(fields: list[str]) -> bool:
    # One stray word is a bad value in a row of data; two names or more make a header.
    return not fields[0].lstrip("-").isdigit() and sum(map(_is_name, fields)) >= 2


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name or "a nameless column" for name in names[:_SHOWN]) + more


def recognise(layout: Layout, first_line: str, path: Path, *, decimals: bool) -> Form:
    """Tell in which form a file keeps its rows, from its first line.

    `decimals` lets the integer columns of a file with header hold decimal numbers: the published
    splits of Criteo with a header come scaled. Files without header are the raw log, whose
    numbers are integers.

    Raises:
        HeaderError: the first line is empty, or a required header is absent, or a header has other
            columns.
        ColumnCountError: a file without header has another number of columns.
    """
    if not first_line.strip(" "):
        raise HeaderError(path, "the first line is empty", "Remove it", line=1)
    delimiter = max(layout.delimiters, key=first_line.count)
    fields = [field.strip('" ') for field in first_line.split(delimiter)]
    if _is_header(fields):
        return _with_header(layout, fields, delimiter, path, decimals=decimals)
    expected = layout.delimiters[0].join(layout.header)
    if layout.header_required:
        raise HeaderError(
            path,
            f"the header is absent: the first line begins {first_line[:40]!r}",
            f"Put this line first: {expected}",
            line=1,
        )
    if len(fields) != len(layout.columns):
        if first_line.lower().startswith("@relation"):
            hint = ": an ARFF file"
        elif len(fields) == len(layout.columns) - 1:
            hint = " (one less: an unlabelled test file?)"
        else:
            hint = ""
        raise ColumnCountError(
            path,
            f"{len(fields)} columns instead of {len(layout.columns)}{hint}",
            f"Give the labelled training file of {layout.dataset}, columns "
            f"{layout.header[0]}, {layout.header[1]} to {layout.header[-1]}",
            line=1,
        )
    return Form(delimiter, False, layout.columns)


def _with_header(
    layout: Layout, fields: list[str], delimiter: str, path: Path, *, decimals: bool
) -> Form:
    folded = [field.lower() for field in fields]
    expected = [name.lower() for name in layout.header]
    columns = layout.columns
    if layout.index is not None and folded[0] == layout.index:
        folded = folded[1:]
        columns = (Column(layout.index, Kind.IGNORED), *columns)
    if folded != expected:
        absent = [name for name in layout.header if name.lower() not in folded]
        unknown = [field[:30] for field in fields if field.lower() not in expected]
        twice = [name for name in layout.header if folded.count(name.lower()) > 1]
        parts = [
            f"lacks {_listed(absent)}" if absent else "",
            f"has unknown {_listed(unknown)}" if unknown else "",
            f"repeats {_listed(twice)}" if twice else "",
        ]
        detail = ", ".join(part for part in parts if part) or "orders the columns differently"
        label = layout.named(Kind.LABEL)
        hint = " (an unlabelled test file?)" if absent == list(label) and not unknown else ""
        raise HeaderError(
            path,
            f"the header {detail}{hint}",
            f"Give the labelled training file of {layout.dataset}, with header "
            f"{layout.delimiters[0].join(layout.header)}",
            line=1,
        )
    if decimals:
        columns = tuple(
            Column(column.name, Kind.NUMBER) if column.kind is Kind.INTEGER else column
            for column in columns
        )
    return Form(delimiter, True, columns)
