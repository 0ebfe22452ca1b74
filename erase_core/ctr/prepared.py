"""Read a prepared data set from disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from erase_core.ctr.schema import LABEL, CtrSchema

MANIFEST_FORMAT = 1
"""Version of the on-disk layout that `load` understands."""

_AGAIN = "prepare the data set again with `python -m data_prep`"


# What `load` needs of a manifest beside its format: type of the value, and of the items in it.
_SHAPES: Mapping[str, tuple[type, type]] = {
    "dataset": (str, str),
    "dense": (list, str),
    "categorical": (list, str),
    "cardinalities": (list, int),
    "splits": (dict, dict),
    "fingerprint": (str, str),
}


class PreparedDatasetError(ValueError):
    """A directory is not a complete prepared data set; the message says what to do."""


@dataclass(frozen=True)
class Split:
    """All rows of a split on one device, and what is known of them.

    Attributes:
        tensors: under the names and types of a batch; see `CtrSchema`.
        click_rate: of these rows.
        bayes_normalized_entropy: what the best possible predictor is expected to score on these
            rows; None where that is unknown, as for all real data.
    """

    tensors: dict[str, Tensor]
    click_rate: float
    bayes_normalized_entropy: float | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.tensors[LABEL])


class ClickData(Protocol):
    """A click log in splits: what an experiment needs to know of its data."""

    @property
    def schema(self) -> CtrSchema:
        """Fields of a row."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifies rows and encoding, for run records."""
        ...

    def split(self, name: str, device: torch.device | str = "cpu") -> Split:
        """Put `"train"`, `"valid"` or `"test"` on a device."""
        ...


@dataclass(frozen=True)
class PreparedDataset:
    """A data set written by `data_prep`, memory-mapped; made by `load`."""

    path: Path
    manifest: Mapping[str, Any]
    schema: CtrSchema
    tables: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The manifest's fingerprint of source, recipe and split."""
        return str(self.manifest["fingerprint"])

    def split(self, name: str, device: torch.device | str = "cpu") -> Split:
        """Put a split on a device.

        On the CPU, `dense` and `ids` are views of the read-only memory map where the split is
        one Arrow chunk: never write to them.

        Raises:
            PreparedDatasetError: for an unknown split, missing values, an id outside its field, or
                a label that is neither 0 nor 1.
        """
        if name not in self.tables:
            raise PreparedDatasetError(
                f"{self.path} has no split {name!r}; it has {', '.join(self.tables)}"
            )
        table, facts = self.tables[name], self.manifest["splits"][name]
        tensors = {
            column: _matrix(table.column(column), column, name).to(device)
            for column in ("dense", "ids")
            if column in table.column_names
        }
        tensors[LABEL] = _vector(table.column(LABEL), name).to(device).float()
        if facts["rows"]:
            self._check_ids(tensors["ids"], name)
        strange = (tensors[LABEL] != 0) & (tensors[LABEL] != 1)
        if strange.any():
            raise PreparedDatasetError(
                f"{self.path}: split {name!r} has {int(strange.sum())} labels that are neither 0 "
                f"nor 1; {_AGAIN}"
            )
        return Split(tensors, facts["click_rate"], facts.get("bayes_normalized_entropy"))

    def _check_ids(self, ids: Tensor, split: str) -> None:
        smallest, largest = ids.amin(0).tolist(), ids.amax(0).tolist()
        for field, cardinality, low, high in zip(
            self.schema.categorical, self.schema.cardinalities, smallest, largest, strict=True
        ):
            if low < 0 or high >= cardinality:
                raise PreparedDatasetError(
                    f"{self.path}: split {split!r} has ids {low}..{high} in field {field!r}, whose "
                    f"cardinality is {cardinality}; {_AGAIN}"
                )


def load(path: str | Path) -> PreparedDataset:
    """Open a prepared data set: a `DatasetDict` directory with a `manifest.json`.

    Nothing is read but the manifest and Arrow's metadata; rows stay memory-mapped.

    Raises:
        PreparedDatasetError: if the directory or a part of it is missing, is of another format, or
            disagrees with its manifest.
    """
    path = Path(path)
    if not path.is_dir():
        raise PreparedDatasetError(
            f"{path} is not a directory; give the output directory of `python -m data_prep`"
        )
    manifest = _manifest(path)
    try:
        schema = CtrSchema.from_manifest(manifest)
    except ValueError as error:
        raise PreparedDatasetError(f"{path / 'manifest.json'}: {error}; {_AGAIN}") from error
    return PreparedDataset(path, manifest, schema, _tables(path, manifest, schema))


def _manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PreparedDatasetError(
            f"{path} has no manifest.json, so it is not a complete prepared data set; {_AGAIN}"
        ) from None
    except OSError as error:
        raise PreparedDatasetError(f"{file} cannot be read ({error.strerror}); {_AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise PreparedDatasetError(f"{file} is not JSON ({error}); {_AGAIN}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != MANIFEST_FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise PreparedDatasetError(
            f"{file} has format {found!r}, this version reads {MANIFEST_FORMAT}; {_AGAIN}"
        )
    absent = [key for key in _SHAPES if key not in manifest]
    if absent:
        raise PreparedDatasetError(f"{file} lacks {', '.join(absent)}; {_AGAIN}")
    for key, value in _damaged(manifest):
        raise PreparedDatasetError(f"{file} is damaged: {key} is {str(value)[:60]!r}; {_AGAIN}")
    return manifest


def _damaged(manifest: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, (kind, item) in _SHAPES.items():
        value = manifest[key]
        items = value.values() if isinstance(value, dict) else value
        if type(value) is not kind or any(type(one) is not item for one in items):
            yield key, value
    for name, facts in manifest["splits"].items():
        rows, rate = facts.get("rows"), facts.get("click_rate")
        if type(rows) is not int or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            yield f"split {name!r}", facts


def _tables(path: Path, manifest: Mapping[str, Any], schema: CtrSchema) -> dict[str, Any]:
    import datasets  # slow to import, and needed here alone

    try:
        stored = datasets.load_from_disk(str(path))
    except Exception as error:  # datasets and Arrow raise many types for a damaged directory
        raise PreparedDatasetError(f"{path} cannot be opened ({error}); {_AGAIN}") from error
    if not isinstance(stored, datasets.DatasetDict):
        raise PreparedDatasetError(f"{path} is one Dataset without splits; {_AGAIN}")
    expected = {LABEL, "ids"} | ({"dense"} if schema.dense else set())
    widths = {"ids": schema.fields, "dense": len(schema.dense)}
    tables = {}
    for split, entry in manifest["splits"].items():
        if split not in stored:
            raise PreparedDatasetError(f"{path}: split {split!r} is missing; {_AGAIN}")
        table = stored[split].data
        if set(table.column_names) != expected:
            raise PreparedDatasetError(
                f"{path}: split {split!r} has columns {sorted(table.column_names)}, expected "
                f"{sorted(expected)}; {_AGAIN}"
            )
        if table.num_rows != entry["rows"]:
            raise PreparedDatasetError(
                f"{path}: split {split!r} has {table.num_rows} rows, its manifest says "
                f"{entry['rows']}; {_AGAIN}"
            )
        for name in expected - {LABEL}:
            kind = table.schema.field(name).type
            if getattr(kind, "list_size", None) != widths[name]:
                raise PreparedDatasetError(
                    f"{path}: column {name!r} of split {split!r} is {kind}, expected a fixed-size "
                    f"list of {widths[name]}; {_AGAIN}"
                )
        tables[split] = table
    return tables


def _matrix(column: Any, name: str, split: str) -> Tensor:
    """Return a chunked fixed-size-list column as `[rows, width]`, without a copy if possible."""
    width = column.type.list_size
    if column.null_count or any(chunk.flatten().null_count for chunk in column.chunks):
        raise PreparedDatasetError(f"column {name!r} of split {split!r} has nulls; {_AGAIN}")
    # DLPack, unlike NumPy, lets torch view Arrow's read-only buffers without a warning.
    parts = [from_dlpack(chunk.flatten()).view(-1, width) for chunk in column.chunks]
    if not parts:
        dtype = torch.float32 if name == "dense" else torch.int32
        return torch.empty(0, width, dtype=dtype)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _vector(column: Any, split: str) -> Tensor:
    if column.null_count:
        raise PreparedDatasetError(f"column {LABEL!r} of split {split!r} has nulls; {_AGAIN}")
    parts = [from_dlpack(chunk) for chunk in column.chunks]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)
