"""Figures and tables as functions of recorded rows; `python -m figures --help`."""

from figures.errors import (
    DuplicateRowsError,
    EmptyRowsError,
    MissingColumnError,
    MissingRowsError,
    RowsError,
    UnitsError,
)
from figures.registry import FIGURES, FigureSpec, make

__all__ = [
    "FIGURES",
    "DuplicateRowsError",
    "EmptyRowsError",
    "FigureSpec",
    "MissingColumnError",
    "MissingRowsError",
    "RowsError",
    "UnitsError",
    "make",
]
