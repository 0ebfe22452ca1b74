"""What a row of a click-through data set looks like to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MISSING_ID = 0
"""Id of a missing value, the same in every categorical field."""

OUT_OF_VOCABULARY_ID = 1
"""Id of a rare or unseen value, the same in every categorical field."""

LABEL = "label"
"""Name of the batch field that holds the clicks: every CTR graph's target."""

_INT32_ROWS = 2**31


@dataclass(frozen=True)
class CtrSchema:
    """Fields of a click-through data set, in column order.

    A batch of `B` rows under this schema is a mapping with

    - `"dense"`: float32 `[B, len(dense)]`, absent when there is no dense field;
    - `"ids"`: int32 `[B, fields]`, local to each field: `0 <= ids[:, f] < cardinalities[f]`,
      where id 0 is a missing value and id 1 a value outside the vocabulary;
    - `"label"`: float32 `[B]`, 1 for a click.

    Args:
        dataset: Name of the data, such as `"criteo"` or `"synthetic-criteo"`. Synthetic data always
            carry the word `synthetic`.
        dense: Names of the numeric fields; may be empty.
        categorical: Names of the categorical fields; at least one.
        cardinalities: Number of ids of each categorical field, ids 0 and 1 included.

    Raises:
        ValueError: If names repeat, a cardinality cannot hold the two reserved ids, or the counts
            differ.
    """

    dataset: str
    dense: tuple[str, ...]
    categorical: tuple[str, ...]
    cardinalities: tuple[int, ...]

    def __post_init__(self) -> None:
        """Normalise sequences to tuples and refuse a schema no batch can follow."""
        object.__setattr__(self, "dense", tuple(self.dense))
        object.__setattr__(self, "categorical", tuple(self.categorical))
        object.__setattr__(self, "cardinalities", tuple(int(c) for c in self.cardinalities))
        if not self.dataset:
            raise ValueError("`dataset` is empty; give the data a name such as 'criteo'")
        if not self.categorical:
            raise ValueError("`categorical` is empty; a CTR schema needs a categorical field")
        if len(self.categorical) != len(self.cardinalities):
            raise ValueError(
                f"`cardinalities` has {len(self.cardinalities)} entries for "
                f"{len(self.categorical)} categorical fields; give one a field"
            )
        names = self.dense + self.categorical
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"field names {repeated} occur more than once; rename them")
        for name, cardinality in zip(self.categorical, self.cardinalities, strict=True):
            if not 2 <= cardinality < _INT32_ROWS:
                raise ValueError(
                    f"cardinality of {name!r} (={cardinality}) must be between 2 and 2**31 - 1: "
                    "ids 0 (missing) and 1 (out of vocabulary) are always counted, and ids are "
                    "int32"
                )

    @property
    def fields(self) -> int:
        """Number of categorical fields."""
        return len(self.categorical)

    @property
    def rows(self) -> int:
        """Rows of one embedding table that holds every field: the sum of the cardinalities."""
        return sum(self.cardinalities)

    @property
    def synthetic(self) -> bool:
        """Whether the data were generated, which every table and figure has to say."""
        return self.dataset.startswith("synthetic")

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> CtrSchema:
        """Read a schema from a prepared data set's manifest (or from `to_dict`).

        Raises `ValueError` where the manifest lacks one of the schema's four keys.
        """
        keys = ("dataset", "dense", "categorical", "cardinalities")
        absent = [key for key in keys if key not in manifest]
        if absent:
            raise ValueError(
                f"the manifest has no {absent}; prepare the data set again with `data_prep`"
            )
        return cls(*(manifest[key] for key in keys))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON-ready lists, under the manifest's keys."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }
