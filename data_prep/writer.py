"""The prepared rows as Arrow files in the layout of Hugging Face's `DatasetDict.save_to_disk`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import DatasetInfo, Features

_BATCH_ROWS = 1 << 16
_DATA = "data-00000-of-00001.arrow"


@dataclass(frozen=True)
class Table:
    """Prepared columns, each an array of all rows in file order (memory-mapped, mostly).

    Attributes:
        label: uint8.
        dense: float32 arrays, one an input; may be empty.
        ids: int32 arrays, one a field.
    """

    label: np.ndarray
    dense: Sequence[np.ndarray]
    ids: Sequence[np.ndarray]

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema: `label`, `dense` (where there is any) and `ids`."""
        fields = [pa.field("label", pa.uint8())]
        if self.dense:
            fields.append(pa.field("dense", pa.list_(pa.float32(), len(self.dense))))
        fields.append(pa.field("ids", pa.list_(pa.int32(), len(self.ids))))
        return pa.schema(fields)

    def batch(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Gather rows: `label` [n], `dense` [n, inputs] if any, `ids` [n, fields]."""
        # Training rows come mostly in file order, where a slice is far cheaper than a gather.
        run = (
            rows.size > 0
            and int(rows[-1] - rows[0]) + 1 == rows.size
            and np.all(np.diff(rows) == 1)
        )
        where = slice(int(rows[0]), int(rows[-1]) + 1) if run else rows
        gathered = {"label": np.ascontiguousarray(self.label[where])}
        for name, columns in (("dense", self.dense), ("ids", self.ids)):
            if columns:
                gathered[name] = np.stack([column[where] for column in columns], axis=1)
        return gathered


def _arrow(column: np.ndarray, kind: pa.DataType) -> pa.Array:
    if column.ndim == 1:
        return pa.array(column, kind)
    flat = pa.array(column.reshape(-1), kind.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_split(
    directory: Path, table: Table, rows: np.ndarray, progress: Callable[[int], object]
) -> str:
    """Write one split's rows, in the given order; return the sha256 of their content.

    The directory holds one Arrow stream file that `datasets` memory-maps, and the two JSON files
    with which `datasets.load_from_disk` finds it. Written directly, not through a `Dataset`, so
    that every row is written once and equal input gives equal bytes.
    """
    directory.mkdir()
    schema = table.schema
    digest = hashlib.sha256()
    with (directory / _DATA).open("wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for start in range(0, rows.size, _BATCH_ROWS):
            batch = table.batch(rows[start : start + _BATCH_ROWS])
            for name in schema.names:
                digest.update(batch[name].data)
            arrays = [_arrow(batch[field.name], field.type) for field in schema]
            stream.write_batch(pa.record_batch(arrays, schema=schema))
            progress(len(arrays[0]))
    DatasetInfo(features=Features.from_arrow_schema(schema)).write_to_directory(str(directory))
    _write_json(
        directory / "state.json",
        {
            "_data_files": [{"filename": _DATA}],
            "_fingerprint": digest.hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": directory.name,
        },
    )
    return digest.hexdigest()


def write_dataset(
    directory: Path,
    table: Table,
    splits: Mapping[str, np.ndarray],
    progress: Callable[[int], object] = lambda rows: None,
) -> dict[str, str]:
    """Write all splits into an empty directory; return each one's content hash (sha256).

    `progress` is told of rows written.
    """
    hashes = {
        name: write_split(directory / name, table, rows, progress) for name, rows in splits.items()
    }
    _write_json(directory / "dataset_dict.json", {"splits": list(splits)})
    return hashes
