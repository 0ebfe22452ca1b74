"""Raw Criteo and Avazu click logs to memory-mapped data sets with a manifest.

`prepare` does it for a raw file, `prepare_synthetic` for generated rows;
`python -m data_prep --help` tells the command line.
"""

from .errors import (
    ByteOrderMarkError,
    CategoryError,
    ColumnCountError,
    CorruptSourceError,
    DataPrepError,
    DiskFullError,
    EmptySourceError,
    HeaderError,
    HourError,
    LabelError,
    LineEndError,
    NumberError,
    OptionError,
    OutputExistsError,
    OutputUnwritableError,
    RowError,
    SourceFormatError,
    SourceNotAFileError,
    SourceNotFoundError,
    SourceUnreadableError,
    TooFewRowsError,
)
from .pipeline import prepare, prepare_synthetic
from .recipes import RECIPES, Recipe

__all__ = [
    "RECIPES",
    "ByteOrderMarkError",
    "CategoryError",
    "ColumnCountError",
    "CorruptSourceError",
    "DataPrepError",
    "DiskFullError",
    "EmptySourceError",
    "HeaderError",
    "HourError",
    "LabelError",
    "LineEndError",
    "NumberError",
    "OptionError",
    "OutputExistsError",
    "OutputUnwritableError",
    "Recipe",
    "RowError",
    "SourceFormatError",
    "SourceNotAFileError",
    "SourceNotFoundError",
    "SourceUnreadableError",
    "TooFewRowsError",
    "prepare",
    "prepare_synthetic",
]
