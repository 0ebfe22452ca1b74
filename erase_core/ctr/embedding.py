"""One embedding table for all categorical fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FusedEmbedding(nn.Module):
    """Look up every categorical field of a row in one table.

    The fields' rows lie one after another in `weight`; adding a field's offset to its local id
    gives the row. One lookup and one sparse gradient serve all fields, where a table a field
    would need as many kernels as there are fields.

    `ids`, int32 or int64 `[B, len(cardinalities)]`, become `[B, fields, dim]`. The gradient of
    `weight` is sparse and not coalesced: one entry for each of the `B * fields` lookups. `weight`
    carries `row_wise = True`, the tag by which `erase_core.ctr.optimizers` hands it to
    `erase_core.ctr.RowWiseAdagrad`.

    An id beyond its own field but inside the table would read another field's row. Forward does
    not look for that, since the answer would have to be fetched from the device; call `check`
    while debugging a feed.

    Args:
        cardinalities: number of ids of each column of `ids`.
        dim: columns of the table.
        fields: columns of `ids` that this table holds, in the order of the output; all by default.
            Several tables can so share one `ids` tensor.
        std: draw the table from a normal distribution of this standard deviation. By default each
            field is drawn uniformly from ±1/sqrt(its cardinality), as DLRM does (Naumov et al.
            2019).
        sparse: give a dense gradient when false: for optimizers that take no sparse one.

    Raises:
        ValueError: where a cardinality, `dim`, `std` or a field is out of range.
    """

    offsets: Tensor
    columns: Tensor | None

    def __init__(
        self,
        cardinalities: Sequence[int],
        dim: int,
        *,
        fields: Sequence[int] | None = None,
        std: float | None = None,
        sparse: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not cardinalities or min(cardinalities) < 1:
            raise ValueError(
                f"`cardinalities` (={list(cardinalities)}) must hold one positive number a field"
            )
        if dim < 1:
            raise ValueError(f"`dim` (={dim}) must be at least 1")
        if std is not None and not 0 < std < math.inf:
            raise ValueError(f"`std` (={std}) must be positive; leave it out for the uniform draw")
        self.columns_expected = len(cardinalities)
        chosen = range(self.columns_expected) if fields is None else tuple(fields)
        if not chosen:
            raise ValueError("`fields` is empty; name at least one column of `ids`")
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"`fields` (={list(chosen)}) names a column more than once")
        outside = [field for field in chosen if not 0 <= field < self.columns_expected]
        if outside:
            raise ValueError(
                f"`fields` names columns {outside}, but `cardinalities` has "
                f"{self.columns_expected} entries (0 to {self.columns_expected - 1})"
            )
        self.cardinalities = tuple(int(cardinalities[field]) for field in chosen)
        self.dim = dim
        self.std = std
        self.sparse = sparse
        starts = (0, *accumulate(self.cardinalities))
        self.weight = nn.Parameter(torch.empty(starts[-1], dim, device=device, dtype=dtype))
        self._tag()
        # Both follow from the arguments, so checkpoints need not carry them.
        self.register_buffer(
            "offsets", torch.tensor(starts[:-1], dtype=torch.int64, device=device), persistent=False
        )
        everything = tuple(chosen) == tuple(range(self.columns_expected))
        columns = None if everything else torch.tensor(chosen, dtype=torch.int64, device=device)
        self.register_buffer("columns", columns, persistent=False)
        self.reset_parameters()

    def _tag(self) -> None:
        self.weight.row_wise = True  # type: ignore[attr-defined]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Tag the table again: a copied parameter loses its attributes."""
        super().__setstate__(state)
        self._tag()

    @property
    def fields(self) -> int:
        """Number of fields in this table."""
        return len(self.cardinalities)

    def reset_parameters(self) -> None:
        """Draw the table anew from torch's default generator."""
        with torch.no_grad():
            if self.std is not None:
                self.weight.normal_(std=self.std)
                return
            for part in self.weight.split(self.cardinalities):
                bound = 1 / math.sqrt(part.shape[0])
                part.uniform_(-bound, bound)

    def _select(self, ids: Tensor) -> Tensor:
        if ids.dim() != 2 or ids.shape[1] != self.columns_expected:
            raise ValueError(
                f"`ids` has shape {tuple(ids.shape)}; expected [batch, {self.columns_expected}]"
            )
        if ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"`ids` is {ids.dtype}; pass int32 or int64 ids")
        return ids if self.columns is None else ids.index_select(1, self.columns)

    def forward(self, ids: Tensor) -> Tensor:
        """Return `[B, fields, dim]` for `ids` `[B, len(cardinalities)]`."""
        rows = self._select(ids) + self.offsets
        return F.embedding(rows, self.weight, sparse=self.sparse)

    def check(self, ids: Tensor) -> None:
        """Raise `ValueError` if an id lies outside its field. Waits for the device."""
        chosen = self._select(ids)
        limits = torch.tensor(self.cardinalities, device=ids.device)
        outside = ((chosen < 0) | (chosen >= limits)).nonzero()
        if len(outside):
            row, field = outside[0].tolist()
            column = field if self.columns is None else int(self.columns[field])
            raise ValueError(
                f"`ids[{row}, {column}]` (={int(chosen[row, field])}) is outside its field, which "
                f"has {self.cardinalities[field]} ids ({len(outside)} such ids in this batch); "
                "map unseen values to the out-of-vocabulary id"
            )

    def extra_repr(self) -> str:
        """Describe the table's shape."""
        return f"fields={self.fields}, rows={self.weight.shape[0]}, dim={self.dim}"
