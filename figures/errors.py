"""What can be wrong with the rows of a figure; every message names the file and the remedy."""


class RowsError(ValueError):
    """The rows cannot be drawn as they are."""


class MissingRowsError(RowsError):
    """There is no CSV at the given place, or no complete run under the given directory."""


class MissingColumnError(RowsError):
    """A CSV lacks a column that the figure needs."""


class EmptyRowsError(RowsError):
    """A CSV has a header and nothing below it."""


class UnitsError(RowsError):
    """Columns contradict each other: some are in other units than their names say."""


class DuplicateRowsError(RowsError):
    """The same quantity was measured twice under the same name."""
