"""Which rows are for training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import OptionError, TooFewRowsError

SPLITS = ("train", "valid", "test")
POLICIES = ("time", "random")


@dataclass(frozen=True)
class SplitPolicy:
    """How rows are divided.

    Attributes:
        name: "time" (in order of time, the last rows are the test rows and those before them
            the validation rows) or "random" (each row drawn without replacement).
        test_fraction, valid_fraction: parts of all rows, each in (0, 1), together below 1.
        seed: of the random draw; not used by "time".

    Raises:
        OptionError: an unknown name, fraction or negative seed.
    """

    name: str = "time"
    test_fraction: float = 0.1
    valid_fraction: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be carried out."""
        if self.name not in POLICIES:
            raise OptionError(f"`split` (={self.name!r}) must be one of {list(POLICIES)}")
        for name in ("test_fraction", "valid_fraction"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise OptionError(f"`{name}` (={value}) must be between 0 and 1, both excluded")
        if not self.test_fraction + self.valid_fraction < 1:
            raise OptionError(
                f"`test_fraction` (={self.test_fraction}) + `valid_fraction` "
                f"(={self.valid_fraction}) leave no training rows; lower one of them"
            )
        if self.seed < 0:
            raise OptionError(f"`seed` (={self.seed}) must not be negative")

    def sizes(self, count: int, source: Path) -> tuple[int, int, int]:
        """Rows of each split; `TooFewRowsError`, which names `source`, if one would be empty."""
        test = round(count * self.test_fraction)
        valid = round(count * self.valid_fraction)
        sizes = (count - test - valid, valid, test)
        if min(sizes) < 1:
            raise TooFewRowsError(
                source,
                f"{count} rows give {', '.join(map(str, sizes))} rows for {', '.join(SPLITS)}",
                "Give more rows, or change --test-fraction and --valid-fraction",
            )
        return sizes

    def rows(self, count: int, hours: np.ndarray | None, source: Path) -> dict[str, np.ndarray]:
        """Divide rows 0 … count - 1 (file order).

        `hours` sorts them in time; None means that file order is the order of time. Rows of one
        hour keep their order in the file.

        Returns:
            For each split the row numbers (int64): in order of time for "time", in file
            order for "random".

        Raises:
            TooFewRowsError: a split would be empty.
        """
        sizes = self.sizes(count, source)
        if self.name == "random":
            member = np.repeat(np.arange(len(SPLITS), dtype=np.uint8), sizes)
            np.random.Generator(np.random.PCG64(self.seed)).shuffle(member)
            return {name: np.flatnonzero(member == i) for i, name in enumerate(SPLITS)}
        order = np.arange(count) if hours is None else np.argsort(hours, kind="stable")
        return dict(zip(SPLITS, np.split(order, np.cumsum(sizes)[:-1]), strict=True))
