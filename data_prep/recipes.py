"""Recipes: how raw columns become categorical fields and dense inputs."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from .errors import OptionError
from .layouts import AVAZU, CRITEO, Kind, Layout


@dataclass(frozen=True)
class Field:
    """A categorical field: its name, and its int64 key (null = missing) from the raw columns.

    `hexadecimal` says how a key is shown in the vocabulary files.
    """

    name: str
    key: pl.Expr
    hexadecimal: bool = False


@dataclass(frozen=True)
class Dense:
    """A numeric input: its name and its value (null = missing), before standardisation."""

    name: str
    value: pl.Expr


@dataclass(frozen=True)
class Recipe:
    """A named way of preparing one data set.

    Attributes:
        name: as given on the command line and written into the manifest.
        layout: the raw columns it reads.
        min_count: default for the training rows that a value needs to get an id of its own.
        decimals: whether numeric columns may hold decimals (in files with a header).
        fields, dense: what comes out, in column order.
    """

    name: str
    layout: Layout
    min_count: int
    decimals: bool
    fields: tuple[Field, ...]
    dense: tuple[Dense, ...] = ()


def log_bin(value: pl.Expr) -> pl.Expr:
    """Bin an integer: `x > 2` becomes `floor((ln x)²)`, smaller values are kept.

    The rule of the Criteo competition's winners as the BARS benchmark uses it (Criteo_x4), with
    the natural logarithm. The bins 1 and 2 hold small logarithms as well as the values 1 and 2;
    missing stays missing, with an id of its own.
    """
    logarithm = value.cast(pl.Float64).log()
    return pl.when(value > 2).then((logarithm * logarithm).floor().cast(pl.Int64)).otherwise(value)


def signed_log(value: pl.Expr) -> pl.Expr:
    """Compress a number: `sign(x) · ln(1 + |x|)`."""
    number = value.cast(pl.Float64)
    return number.sign() * number.abs().log1p()


def _as_is(layout: Layout, kind: Kind) -> tuple[Field, ...]:
    hexadecimal = kind is Kind.HEX
    return tuple(Field(name, pl.col(name), hexadecimal) for name in layout.named(kind))


def _hour_fields() -> tuple[Field, ...]:
    stamp = pl.col("hour")
    day = stamp // 100
    date = pl.date(2000 + day // 10_000, day // 100 % 100, day % 100)
    weekday = date.dt.weekday().cast(pl.Int64)  # 1 is Monday
    return (
        Field("hour", stamp % 100),
        Field("weekday", weekday),
        Field("weekend", (weekday >= 6).cast(pl.Int64)),
    )


def _avazu_fields() -> tuple[Field, ...]:
    plain = {
        field.name: field for kind in (Kind.INTEGER, Kind.HEX) for field in _as_is(AVAZU, kind)
    }
    in_order = tuple(plain[name] for name in AVAZU.header if name in plain)
    return _hour_fields() + in_order


_INTEGERS = CRITEO.named(Kind.INTEGER)

LOG_BINS = Recipe(
    name="log-bins",
    layout=CRITEO,
    min_count=10,
    decimals=False,
    fields=(
        *(Field(name, log_bin(pl.col(name))) for name in _INTEGERS),
        *_as_is(CRITEO, Kind.HEX),
    ),
)
STANDARDIZE = Recipe(
    name="standardize",
    layout=CRITEO,
    min_count=10,
    decimals=True,
    fields=_as_is(CRITEO, Kind.HEX),
    dense=tuple(Dense(name, signed_log(pl.col(name))) for name in _INTEGERS),
)
HOUR_FEATURES = Recipe(
    name="hour-features",
    layout=AVAZU,
    min_count=2,
    decimals=False,
    fields=_avazu_fields(),
)

RECIPES: dict[str, tuple[Recipe, ...]] = {
    "criteo": (LOG_BINS, STANDARDIZE),
    "avazu": (HOUR_FEATURES,),
}
"""The recipes of each data set; the first is the default."""


def recipe(dataset: str, name: str | None = None) -> Recipe:
    """Look a recipe up; without a name, the data set's default.

    Raises `OptionError` for an unknown data set or a recipe that the data set does not have.
    """
    if dataset not in RECIPES:
        raise OptionError(f"unknown data set {dataset!r}; choose one of {sorted(RECIPES)}")
    known = {candidate.name: candidate for candidate in RECIPES[dataset]}
    if name is None:
        return RECIPES[dataset][0]
    if name not in known:
        raise OptionError(f"{dataset} has no recipe {name!r}; choose one of {sorted(known)}")
    return known[name]
