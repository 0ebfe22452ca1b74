"""Vocabularies and scalings, fitted on training rows, and their use on all rows."""

from __future__ import annotations

import binascii

import numpy as np
import polars as pl

from erase_core.ctr.schema import MISSING_ID, OUT_OF_VOCABULARY_ID

FIRST_ID = 2
"""Id of the most frequent value of a field; smaller ids are missing and out of vocabulary."""


def fit(keys: pl.Series, training: pl.Series, min_count: int) -> pl.DataFrame:
    """Count a field's values over the training rows and number them.

    Args:
        keys: int64, one a row, null where missing.
        training: bool, one a row.
        min_count: training rows that a value needs; rarer ones stay out of the vocabulary.

    Returns:
        Columns `id` (int32, from 2 on), `value` (int64), `count` (int64), ordered by
        descending count, then by value: the same rows give the same ids on any machine.
    """
    return (
        pl.LazyFrame({"value": keys, "training": training})
        .filter(pl.col("training") & pl.col("value").is_not_null())
        .group_by("value")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .filter(pl.col("count") >= min_count)
        .sort(["count", "value"], descending=[True, False])
        .with_row_index("id", offset=FIRST_ID)
        .with_columns(pl.col("id").cast(pl.Int32))
        .select("id", "value", "count")
        .collect()
    )


def encode(keys: pl.Series, vocabulary: pl.DataFrame) -> np.ndarray:
    """Map keys to int32 ids: 0 for missing, 1 for a value outside the vocabulary."""
    joined = pl.DataFrame({"value": keys}).join(
        vocabulary.select("value", "id"), on="value", how="left", maintain_order="left"
    )
    identifier = (
        pl.when(pl.col("value").is_null())
        .then(pl.lit(MISSING_ID, pl.Int32))
        .otherwise(pl.col("id").fill_null(OUT_OF_VOCABULARY_ID))
    )
    return joined.select(identifier.alias("id"))["id"].to_numpy()


def shown(values: pl.Series, *, hexadecimal: bool) -> pl.Series:
    """Spell keys as the source does: decimal, or hexadecimal with as many digits."""
    if not hexadecimal:
        return values.cast(pl.String)
    keys = values.to_numpy()
    digits = binascii.hexlify((keys & 0xFFFFFFFF).astype(">u4").tobytes()).decode("ascii")
    text = pl.Series(np.frombuffer(digits.encode(), "S8").astype(str))
    return text.str.tail(pl.Series(8 - (keys >> 32)))


def fit_scale(values: pl.Series, training: pl.Series) -> tuple[float, float]:
    """Mean and standard deviation (of the population) of a column's training rows, in float64.

    Missing rows are left out. A constant or wholly missing column gets deviation 1, so that it
    becomes 0.
    """
    present = values.filter(training).drop_nulls()
    if not present.len():
        return 0.0, 1.0
    # Told by its extremes: rounding can give a constant a tiny deviation, a huge scale for others.
    if present.min() == present.max():
        return float(present[0]), 1.0
    mean, deviation = present.mean(), present.std(ddof=0)
    if not isinstance(mean, float) or not isinstance(deviation, float):
        raise TypeError(f"`values` is {values.dtype}; pass a column of floats")
    return mean, deviation


def scale(values: pl.Series, mean: float, deviation: float) -> np.ndarray:
    """Standardise to float32; missing becomes 0, the mean of the training rows."""
    return ((values - mean) / deviation).fill_null(0.0).cast(pl.Float32).to_numpy()
