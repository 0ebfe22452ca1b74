"""Synthetic rows in the raw Kaggle formats, for the same path that real files take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import torch
from tqdm import tqdm

from erase_core.ctr.synthetic import (
    Field,
    SyntheticClicks,
    SyntheticRows,
    bayes_normalized_entropy,
)
from erase_core.ctr.synthetic.hashing import row_hashes

_CHUNK = 1 << 16
_ID_SLOT = 1 << 20
_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint16)


@dataclass(frozen=True)
class SyntheticInfo:
    """What is known of a synthetic raw file beyond its text.

    Attributes:
        name: "criteo" or "avazu".
        seed: of the sample.
        clicks: rows with label 1.
        probabilities: float64 `[rows]`, the teacher's click probability of each row, in file
            order.
    """

    name: str
    seed: int
    clicks: int
    probabilities: npt.NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return len(self.probabilities)

    @property
    def click_rate(self) -> float:
        """Clicks over rows."""
        return self.clicks / self.rows

    def bayes_normalized_entropy(
        self, rows: slice | npt.NDArray[np.integer] = slice(None)
    ) -> float:
        """Return the best attainable normalized entropy on some rows of the file, all by default.

        Mean entropy of the rows' click probabilities over the entropy of their mean.
        """
        return bayes_normalized_entropy(torch.from_numpy(self.probabilities[rows]))


def write_raw(
    name: str, rows: int, seed: int, path: str | Path, *, progress: bool = False
) -> SyntheticInfo:
    """Write synthetic rows as Criteo's `train.txt` or Avazu's `train.csv`.

    Criteo: tab separated, no header, label, 13 integers, 26 categories of eight hexadecimal
    digits, missing values empty. Avazu: the competition's header and columns, ordered by hour.
    The file is written aside and renamed when complete.

    Args:
        name: "criteo" or "avazu".
        rows: number of rows, at least 1.
        seed: of the sample; the same seed and rows give the same bytes.
        path: file to write; replaced if present.
        progress: show a progress bar.

    Raises:
        ValueError: for an unknown name, or rows or seed out of range.
        OSError: if the file cannot be written; then nothing is left behind.
    """
    if rows < 1:
        raise ValueError(f"`rows` (={rows}) must be at least 1")
    clicks = SyntheticClicks(name, seed)
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    probabilities: list[npt.NDArray[np.float64]] = []
    clicked = 0
    try:
        with (
            aside.open("wb") as file,
            tqdm(total=rows, unit="rows", desc=f"synthetic {name}", disable=not progress) as bar,
        ):
            for index in _order(clicks, rows):
                drawn = clicks.at(index)
                text = _frame(clicks, drawn, index).write_csv(
                    separator="\t" if name == "criteo" else ",",
                    include_header=name == "avazu" and not probabilities,
                )
                # By Python, which reports a full disk with its errno; polars' errors lack it.
                file.write(text.encode())
                probabilities.append(drawn.probability.numpy())
                clicked += int(drawn.label.sum())
                bar.update(len(index))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return SyntheticInfo(name, seed, clicked, np.concatenate(probabilities))


def _order(clicks: SyntheticClicks, rows: int) -> Iterator[torch.Tensor]:
    """Yield row numbers in file order, in chunks: by hour where there is one."""
    chunks = torch.arange(rows).split(_CHUNK)
    if not clicks.population.hours:
        yield from chunks
        return
    hours = torch.cat([clicks.population.draw_hour(chunk, clicks.seed).short() for chunk in chunks])
    yield from hours.argsort(stable=True).split(_CHUNK)


def _frame(clicks: SyntheticClicks, drawn: SyntheticRows, index: torch.Tensor) -> pl.DataFrame:
    label = pl.Series("label", drawn.label.to(torch.uint8).numpy())
    fields = clicks.population.categorical
    categorical = [
        _column(position, field, drawn.values[:, position].numpy(), missing_integer=-1)
        for position, field in enumerate(fields)
    ]
    if drawn.hour is None:
        numeric = [
            _column(position, field, drawn.numeric[:, position].numpy(), missing_integer=None)
            for position, field in enumerate(clicks.population.numeric)
        ]
        return pl.DataFrame([label, *numeric, *categorical])
    # Ten days from 2014-10-21 on, all in one month: YYMMDDHH by arithmetic.
    time = pl.Series("hour", 14_10_21_00 + (drawn.hour // 24 * 100 + drawn.hour % 24).numpy())
    # A hash that is one to one in the row number: every row has an id of its own, as in the log.
    number = pl.Series("id", row_hashes(index, clicks.seed, _ID_SLOT, 1)[:, 0].numpy().view("u8"))
    return pl.DataFrame([number, label.alias("click"), time, *categorical])


def _column(
    position: int, field: Field, ranks: npt.NDArray[np.int64], missing_integer: int | None
) -> pl.Series:
    """Render ranks as the raw file spells them; a missing category is null, hence empty."""
    missing = ranks < 0
    if field.first is None:
        series, absent = _hexadecimal(_scramble(ranks.astype(np.uint32), position)), None
    else:
        series, absent = pl.Series(ranks + field.first), missing_integer
    if missing.any():
        known = pl.when(pl.Series(~missing)).then(series).otherwise(pl.lit(absent))
        series = pl.select(known).to_series()
    return series.alias(field.name)


def _scramble(ranks: npt.NDArray[np.uint32], position: int) -> npt.NDArray[np.uint32]:
    """Map ranks to 32-bit codes one to one, differently for every field."""
    codes = ranks * np.uint32(0x9E3779B1) + np.uint32((position + 1) * 0x85EBCA6B & 0xFFFFFFFF)
    codes ^= codes >> np.uint32(16)
    codes *= np.uint32(0x7FEB352D)
    codes ^= codes >> np.uint32(15)
    codes *= np.uint32(0x846CA68B)
    codes ^= codes >> np.uint32(16)
    return codes


def _hexadecimal(codes: npt.NDArray[np.uint32]) -> pl.Series:
    """Return codes as text of eight hexadecimal digits, through one table look-up a byte."""
    text = _HEX_PAIRS[codes.astype(">u4").view(np.uint8)]
    offsets = np.arange(0, 8 * len(codes) + 1, 8, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pl.Series(pa.Array.from_buffers(pa.string(), len(codes), buffers))
