"""Blocks of bytes as chunks of whole lines with their physical line numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import (
    ByteOrderMarkError,
    CorruptSourceError,
    EmptySourceError,
    LineEndError,
    SourceFormatError,
)

CHUNK_BYTES = 1 << 25
"""Size to which text is gathered before it is parsed: bounds memory whatever the file's size."""

_LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a file.

    Attributes:
        text: the bytes; every line ends with a newline (the file's last one is given it).
        first_line: physical number of the first line, counted from 1.
    """

    text: bytes
    first_line: int


class LineReader:
    """Cuts a stream of blocks at line ends.

    `first` is the first line without its end and `crlf` says whether it ends in CR LF; every
    further line should end alike.

    Raises:
        EmptySourceError, ByteOrderMarkError, SourceFormatError, LineEndError: from the start of
        the text; CorruptSourceError, with the line reached, while iterating.
    """

    def __init__(self, path: Path, blocks: Iterator[bytes], chunk_bytes: int = CHUNK_BYTES) -> None:
        self._path = path
        self._blocks = blocks
        self._chunk_bytes = chunk_bytes
        self._pending = b""
        self._next_line = 1
        while b"\n" not in self._pending and len(self._pending) <= _LONGEST_LINE:
            block = self._block()
            if not block:
                break
            self._pending += block
        self._check_start(self._pending)
        line, _, _ = self._pending.partition(b"\n")
        self.crlf = line.endswith(b"\r")
        if b"\r" in line.removesuffix(b"\r") or (self.crlf and line == self._pending):
            raise LineEndError(
                path,
                "a carriage return inside the line or alone at its end",
                "Convert the line ends to LF, for instance with `tr '\\r' '\\n'` (old Mac) or "
                "`tr -d '\\r'` (doubled)",
                line=1,
            )
        try:
            self.first = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceFormatError(
                path, "the first line is not UTF-8 text", "Give the text file", line=1
            ) from error

    def skip_first(self) -> None:
        """Drop the first line, which is a header; call before iterating."""
        self._pending = self._pending.partition(b"\n")[2]
        self._next_line = 2

    def chunks(self) -> Iterator[Chunk]:
        """Yield all lines, in chunks of about the chosen size."""
        pieces = [self._pending] if self._pending else []
        self._pending = b""
        size = sum(map(len, pieces))
        while True:
            block = self._block(pieces)
            if block:
                pieces.append(block)
                size += len(block)
                if size < self._chunk_bytes or b"\n" not in block:
                    if size > self._chunk_bytes + _LONGEST_LINE:
                        raise self._endless(self._reached(pieces))
                    continue
                text = b"".join(pieces)
                cut = text.rfind(b"\n") + 1
                pieces = [text[cut:]] if cut < len(text) else []
                size = len(text) - cut
                text = text[:cut]
            else:
                text = b"".join(pieces)
                if not text:
                    return
                if not text.endswith(b"\n"):
                    text += b"\r\n" if self.crlf else b"\n"
            yield Chunk(text, self._next_line)
            self._next_line += text.count(b"\n")
            if not block:
                return

    def _reached(self, pieces: list[bytes]) -> int:
        return self._next_line + sum(piece.count(b"\n") for piece in pieces)

    def _block(self, pieces: list[bytes] | None = None) -> bytes:
        try:
            return next(self._blocks, b"")
        except CorruptSourceError as error:
            raise error.at(self._reached(pieces or [self._pending])) from error

    def _endless(self, line: int) -> SourceFormatError:
        return SourceFormatError(
            self._path,
            f"a line of more than {_LONGEST_LINE} bytes: not a text table",
            "Give the text file, with one row a line",
            line=line,
        )

    def _check_start(self, text: bytes) -> None:
        if not text:
            raise EmptySourceError(self._path, "the file holds no text", "Get the file again")
        if text.startswith(b"\xef\xbb\xbf"):
            raise ByteOrderMarkError(
                self._path,
                "the file begins with a UTF-8 byte order mark",
                "Remove its three bytes, for instance with `tail -c +4 FILE > NEW`",
                line=1,
            )
        if text.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in text.partition(b"\n")[0]:
            raise SourceFormatError(
                self._path,
                "UTF-16 text or binary data (a tar archive?), not a UTF-8 text table",
                "Unpack it, or convert it with `iconv -f UTF-16 -t UTF-8`",
                line=1,
            )
        if b"\n" not in text and len(text) > _LONGEST_LINE:
            # Old Mac line ends make one line of the whole file and are named as what they are.
            if b"\r" not in text:
                raise self._endless(1)
