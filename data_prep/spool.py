"""The typed rows of a source, kept column by column on disk while they are being prepared."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from .errors import EmptySourceError
from .layouts import Layout, recognise
from .lines import CHUNK_BYTES, LineReader
from .rows import RowParser
from .streams import SourceFile


@dataclass
class BadRows:
    """Rows left out, counted by reason, with the first line of each reason."""

    counts: dict[str, int] = field(default_factory=dict)
    first_line: dict[str, int] = field(default_factory=dict)

    def add(self, lines: dict[str, np.ndarray]) -> None:
        """Count the rows of one chunk; chunks come in file order."""
        for reason, numbers in lines.items():
            self.counts[reason] = self.counts.get(reason, 0) + numbers.size
            self.first_line.setdefault(reason, int(numbers.min()))


class Spool:
    """Parquet parts in a directory: whole columns can be read back one at a time.

    So the memory needed is that of one column and one chunk of text, not of the table.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parts: list[Path] = []
        self.rows = 0

    def append(self, frame: pl.DataFrame) -> None:
        """Write rows behind those written before."""
        if frame.height == 0:
            return
        path = self._directory / f"part-{len(self._parts):06d}.parquet"
        # Through a Python file, because it reports a full disk as an OSError with its errno.
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="lz4", statistics=False)
        path.write_bytes(buffer.getbuffer())
        self._parts.append(path)
        self.rows += frame.height

    def column(self, expression: pl.Expr) -> pl.Series:
        """Evaluate an expression over the columns for all rows, in the order of writing."""
        # No globbing: a directory may be named `[x]`.
        parts = pl.scan_parquet(self._parts, glob=False)
        return parts.select(expression.alias("value")).collect()["value"]

    def remove(self) -> None:
        """Delete the parts, once nothing more is read from them."""
        for part in self._parts:
            part.unlink()


@dataclass(frozen=True)
class SourceRecord:
    """The file that was read, as the manifest tells it; size and hash are of the file on disk."""

    name: str
    bytes: int
    sha256: str
    compression: str
    header: bool
    delimiter: str


def read_source(
    path: Path,
    layout: Layout,
    spool: Spool,
    *,
    decimals: bool,
    skip: bool,
    progress: Callable[[int], object] = lambda size: None,
    chunk_bytes: int = CHUNK_BYTES,
) -> tuple[SourceRecord, BadRows]:
    """Read a raw file into a spool, checking every row.

    `decimals` lets the numbers of files with a header be decimals; `skip` leaves out and counts
    bad rows instead of raising at the first; `progress` is told of bytes read.

    Raises:
        DataPrepError: any of its subclasses that concerns sources and rows.
    """
    source = SourceFile(path)
    reader = LineReader(path, source.blocks(progress), chunk_bytes)
    form = recognise(layout, reader.first, path, decimals=decimals)
    if form.has_header:
        reader.skip_first()
    parser = RowParser(path, form, crlf=reader.crlf, skip=skip)
    bad = BadRows()
    for chunk in reader.chunks():
        parsed = parser.parse(chunk)
        bad.add(parsed.bad_lines)
        spool.append(parsed.frame)
    if spool.rows == 0:
        skipped = sum(bad.counts.values())
        raise EmptySourceError(
            path,
            f"no usable row ({skipped} left out)" if skipped else "a header and no row",
            "Give a file with rows",
        )
    record = SourceRecord(
        name=path.name,
        bytes=source.size,
        sha256=source.sha256,
        compression=source.compression,
        header=form.has_header,
        delimiter="tab" if form.delimiter == "\t" else "comma",
    )
    return record, bad
