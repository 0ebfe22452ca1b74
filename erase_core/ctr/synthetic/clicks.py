"""Synthetic clicks with the schema of Criteo or Avazu and a known Bayes-optimal entropy.

Generation is counter-based: row i is a pure function of (seed, i), through 64-bit integer
hashes, so that any rows can be made anywhere, in any order, on any device, without storing them,
and every arm of an experiment sees the same rows. The labels come from a planted teacher with
main effects and interactions of order 2, 3 and 4 between fields; its click probabilities are
known, and with them the best normalized entropy that any model could reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from erase_core.ctr.schema import LABEL, OUT_OF_VOCABULARY_ID, CtrSchema
from erase_core.ctr.synthetic.population import POPULATIONS
from erase_core.ctr.synthetic.teacher import planted_teacher, teacher_values

_CHUNK = 1 << 16
_HOUR_FEATURES = (("hour", 24), ("weekday", 7), ("weekend", 2))


@dataclass(frozen=True)
class SyntheticRows:
    """Rows as drawn, before any encoding; `B` rows on one device.

    Attributes:
        values: int64 `[B, categorical]`: rank of each value, 0 the commonest, -1 where missing.
        numeric: int64 `[B, numeric]`: rank of each integer (add the field's `first` for its value),
            -1 where missing.
        hour: int64 `[B]`: hours since 2014-10-21 00:00, 0..239; None for Criteo, which has no time.
        label: bool `[B]`.
        probability: float64 `[B]`: the teacher's click probability.
    """

    values: Tensor
    numeric: Tensor
    hour: Tensor | None
    label: Tensor
    probability: Tensor


class SyntheticClicks:
    """An endless, seeded, synthetic click log with a planted teacher.

    The population (fields, teacher) belongs to the name; the seed draws a sample from it. Rows
    are indexed from 0; disjoint index ranges of one seed are independent samples, so a test part
    is simply another range.

    Args:
        name: `"criteo"` (13 integer and 26 categorical fields, click rate 0.256) or `"avazu"` (21
            categorical fields and the hour, click rate 0.170).
        seed: Any integer of 0..2**62 - 1.
        max_rows: Bound on the embedding rows of `schema`: every field keeps its commonest
            values up to one common cap and maps the rest to the out-of-vocabulary id. None keeps
            the public sets' full cardinalities (33.8 million values for Criteo). Raw rows do not
            depend on it.

    Raises:
        ValueError: For an unknown name, or a seed or bound out of range.
    """

    def __init__(self, name: str = "criteo", seed: int = 0, *, max_rows: int | None = 1 << 20):
        if name not in POPULATIONS:
            raise ValueError(f"`name` (={name!r}) must be one of {sorted(POPULATIONS)}")
        if not 0 <= seed < 1 << 62:
            raise ValueError(f"`seed` (={seed}) must lie in 0..2**62 - 1")
        self.name = name
        self.seed = seed
        self.population = POPULATIONS[name]
        self.teacher = planted_teacher(name)
        derived = _HOUR_FEATURES if self.population.hours else ()
        sizes = [field.cardinality for field in self.population.categorical]
        self._cap = _cap(sizes, max_rows, reserved=sum(size + 2 for _, size in derived))
        names = tuple(field.name for field in self.population.categorical)
        self.schema = CtrSchema(
            dataset=f"synthetic-{name}",
            dense=tuple(field.name for field in self.population.numeric),
            categorical=tuple(name for name, _ in derived) + names,
            cardinalities=tuple(size + 2 for _, size in derived)
            + tuple(min(size, self._cap) + 2 for size in sizes),
        )

    @property
    def click_rate(self) -> float:
        """Click rate of the population, to which the teacher's bias was solved."""
        return self.teacher.click_rate

    def rows(self, start: int, count: int, device: torch.device | str = "cpu") -> SyntheticRows:
        """Draw rows `start .. start + count - 1`; see `at`."""
        if start < 0 or count < 0:
            raise ValueError(f"`start` (={start}) and `count` (={count}) must not be negative")
        return self.at(torch.arange(start, start + count, device=device))

    def at(self, index: Tensor) -> SyntheticRows:
        """Draw the rows of an int64 `[B]` tensor of row numbers, on its device.

        Ranks, hours and missing marks are the same on every device, bit for bit. Probabilities
        agree to the rounding of float64 transcendental functions.
        """
        draw = self.population.draw(index, self.seed)
        probability = self.teacher.probability(teacher_values(draw.values, draw.hour), draw.numeric)
        return SyntheticRows(
            draw.values, draw.numeric, draw.hour, draw.label_uniform < probability, probability
        )

    def encoded(
        self, start: int, count: int, device: torch.device | str = "cpu"
    ) -> dict[str, Tensor]:
        """Draw rows as a batch under `schema`, without a vocabulary pass.

        A rank below the cap is its own id (rank + 2). Integers become standardised log(1 + rank);
        a missing one is 0, the mean.
        """
        return self.encode(self.rows(start, count, device))

    def encode(self, rows: SyntheticRows) -> dict[str, Tensor]:
        """Return drawn rows as a batch under `schema`; see `encoded`."""
        ids = torch.where(rows.values < self._cap, rows.values + 2, OUT_OF_VOCABULARY_ID)
        ids = torch.where(rows.values < 0, 0, ids)
        if rows.hour is not None:
            # The first hour, 2014-10-21 00:00, was on a Tuesday: weekday 1 counting from Monday.
            weekday = (rows.hour // 24 + 1) % 7
            derived = torch.stack([rows.hour % 24, weekday, (weekday >= 5).long()], dim=1)
            ids = torch.cat([derived + 2, ids], dim=1)
        batch = {"ids": ids.int(), LABEL: rows.label.float()}
        if self.population.numeric:
            batch["dense"] = self.teacher.standardized(rows.numeric).float()
        return batch

    def bayes_normalized_entropy(self, start: int, count: int) -> float:
        """Return the normalized entropy of the teacher itself over a range of rows.

        Mean entropy of the click probabilities over the entropy of their mean: what the best
        possible predictor is expected to score on these rows.
        """
        chunks = range(start, start + count, _CHUNK)
        return bayes_normalized_entropy(
            torch.cat([self.rows(at, min(_CHUNK, start + count - at)).probability for at in chunks])
        )


def bayes_normalized_entropy(probability: Tensor) -> float:
    """Return mean entropy / entropy of the mean of float64 `[B]` click probabilities."""
    mean = probability.mean()
    return float(_entropy(probability).mean() / _entropy(mean))


def _entropy(p: Tensor) -> Tensor:
    return -(torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p))


def _cap(sizes: list[int], max_rows: int | None, reserved: int) -> int:
    """Return the largest common cap on values per field that keeps the table within bounds."""
    if max_rows is None:
        return max(sizes)
    low, high = 1, max(sizes)
    fixed = reserved + 2 * len(sizes)
    if fixed + len(sizes) > max_rows:
        raise ValueError(
            f"`max_rows` (={max_rows}) must be at least {fixed + len(sizes)}: one value and the "
            "two reserved ids for every field"
        )
    while low < high:
        middle = (low + high + 1) // 2
        if fixed + sum(min(size, middle) for size in sizes) <= max_rows:
            low = middle
        else:
            high = middle - 1
    return low
