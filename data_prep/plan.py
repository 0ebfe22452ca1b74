"""The checked options of one preparation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from .errors import OptionError
from .recipes import Recipe
from .recipes import recipe as find_recipe
from .splits import SplitPolicy

ON_BAD_ROW = ("error", "skip")


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a row is read; validated at construction."""

    recipe: Recipe
    min_count: int
    policy: SplitPolicy
    skip: bool
    progress: bool

    @classmethod
    def of(
        cls,
        dataset: str,
        *,
        recipe: str | None,
        min_count: int | None,
        split: str,
        test_fraction: float,
        valid_fraction: float,
        seed: int,
        on_bad_row: str,
        progress: bool,
    ) -> Plan:
        """Check the options of `prepare`; raise `OptionError` for one that cannot be."""
        chosen = find_recipe(dataset, recipe)
        threshold = chosen.min_count if min_count is None else min_count
        if threshold < 1:
            raise OptionError(f"`min_count` (={threshold}) must be at least 1")
        if on_bad_row not in ON_BAD_ROW:
            raise OptionError(f"`on_bad_row` (={on_bad_row!r}) must be one of {list(ON_BAD_ROW)}")
        policy = SplitPolicy(split, test_fraction, valid_fraction, seed)
        return cls(chosen, threshold, policy, on_bad_row == "skip", progress)

    def bar(self, name: str, total: int, unit: str) -> tqdm[Any]:
        """Make a progress bar on stderr (or a silent one)."""
        scale = unit != "field"
        return tqdm(desc=name, total=total, unit=unit, unit_scale=scale, disable=not self.progress)
