"""A source file as a stream of decompressed blocks, hashed on the way, damage reported."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from .errors import (
    CorruptSourceError,
    EmptySourceError,
    SourceFormatError,
    SourceNotAFileError,
    SourceNotFoundError,
    SourceUnreadableError,
)

# Small, because a decompressor may turn one block into a thousand times as many bytes at once.
_BLOCK = 1 << 16


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd() -> _Decompressor:
    # The largest window, so that files made by `zstd --long=31` can be read too.
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


_CODECS: dict[str, tuple[tuple[bytes, ...], Callable[[], _Decompressor]]] = {
    "gzip": ((b"\x1f\x8b",), lambda: zlib.decompressobj(wbits=31)),
    "xz": ((b"\xfd7zXZ\x00",), lzma.LZMADecompressor),
    "zstd": (
        (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16))),
        _zstd,
    ),
    "bzip2": ((b"BZh",), bz2.BZ2Decompressor),
}
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
_DAMAGE = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a rar archive",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "an HDF5 file",
}


class SourceFile:
    """A raw file, plain or compressed with gzip, xz, zstd or bzip2 (told by its first bytes).

    Iterate over `blocks()` once; `sha256` is of the file as it lies on the disk and is complete
    when the blocks are used up.

    Raises:
        SourceNotFoundError, SourceNotAFileError, SourceUnreadableError, EmptySourceError,
        SourceFormatError, CorruptSourceError: at construction or while the blocks are read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            problem = "no such file"
            raise SourceNotFoundError(path, problem, "Check the path given as source") from error
        except OSError as error:
            raise self._unreadable(error) from error
        if path.is_dir():
            raise SourceNotAFileError(
                path, "a directory, not a file", "Name one file inside it as source"
            )
        if not path.is_file():
            raise SourceNotAFileError(path, "not a regular file", "Save the rows to a file first")
        with self._open() as file:
            start = self._read(file)[:8]
        if not start:
            raise EmptySourceError(path, "the file is empty", "Download or copy it again")
        for magic, what in _FOREIGN.items():
            if start.startswith(magic):
                raise SourceFormatError(
                    path, f"{what}, not a text table", "Unpack or convert it to text first"
                )
        self.compression = next(
            (name for name, (magics, _) in _CODECS.items() if start.startswith(magics)), "none"
        )
        promised = _SUFFIXES.get(path.suffix.lower())
        if promised is not None and self.compression == "none":
            raise CorruptSourceError(
                path, f"named {path.suffix} but not {promised} data", "Download or copy it again"
            )
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Hex digest of the bytes on disk that have been read so far."""
        return self._hash.hexdigest()

    def blocks(self, progress: Callable[[int], object] = lambda size: None) -> Iterator[bytes]:
        """Yield the decompressed bytes; `progress` is told how many bytes of the file were read."""
        raw = self._raw(progress)
        if self.compression == "none":
            return raw
        return self._decompressed(raw, _CODECS[self.compression][1])

    def _raw(self, progress: Callable[[int], object]) -> Iterator[bytes]:
        with self._open() as file:
            while block := self._read(file):
                self._hash.update(block)
                progress(len(block))
                yield block

    def _decompressed(
        self, raw: Iterator[bytes], new: Callable[[], _Decompressor]
    ) -> Iterator[bytes]:
        # A file may hold several members one after the other (pigz, pxz, pzstd, `cat a.gz b.gz`),
        # and zero bytes may follow a member.
        member: _Decompressor | None = new()
        for block in raw:
            while block:
                if member is None:
                    block = block.lstrip(b"\x00")
                    if not block:
                        break
                    member = new()
                try:
                    text = member.decompress(block)
                except _DAMAGE as error:
                    raise self._corrupt(f"damaged {self.compression} data ({error})") from error
                if text:
                    yield text
                block = b""
                if member.eof:
                    block = member.unused_data
                    member = None
        if member is not None:
            raise self._corrupt(f"the {self.compression} data end before their end mark: truncated")

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise self._unreadable(error) from error

    def _read(self, file: BinaryIO) -> bytes:
        try:
            return file.read(_BLOCK)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> SourceUnreadableError:
        why = os.strerror(error.errno) if error.errno else str(error)
        return SourceUnreadableError(
            self.path, f"cannot be read ({why})", "Check its permissions and its disk"
        )

    def _corrupt(self, problem: str) -> CorruptSourceError:
        return CorruptSourceError(self.path, problem, "Download or copy the file again")
