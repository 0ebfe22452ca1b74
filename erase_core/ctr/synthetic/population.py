"""Drawing the fields' values of a synthetic row from (seed, row number)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from erase_core.ctr.synthetic.fields import (
    AVAZU_CATEGORICAL,
    AVAZU_HOURS,
    CRITEO_CATEGORICAL,
    CRITEO_NUMERIC,
    Field,
)
from erase_core.ctr.synthetic.hashing import row_hashes, uniform

_MISSING_BITS = 11


@dataclass(frozen=True)
class Draw:
    """Values of `B` rows; see `SyntheticRows`."""

    values: Tensor
    numeric: Tensor
    hour: Tensor | None
    label_uniform: Tensor


@dataclass(frozen=True)
class Population:
    """Fields from which rows are drawn, each independent of the others.

    `hours` is the length of the period in hours, 0 for a set without a time column.
    """

    numeric: tuple[Field, ...]
    categorical: tuple[Field, ...]
    hours: int

    def draw(self, index: Tensor, seed: int) -> Draw:
        """Draw the rows of an int64 `[B]` tensor of row numbers, on its device.

        Every integer is the same on every device, bit for bit.
        """
        split = len(self.numeric)
        slots = split + len(self.categorical)
        hashes = row_hashes(index, seed, 0, slots + 1)
        return Draw(
            values=_ranks(hashes[:, split:slots], self.categorical),
            numeric=_ranks(hashes[:, :split], self.numeric),
            hour=self.draw_hour(index, seed) if self.hours else None,
            label_uniform=uniform(hashes[:, slots]),
        )

    def draw_hour(self, index: Tensor, seed: int) -> Tensor:
        """Draw int64 `[B]` hours of 0..hours - 1 alone, for ordering rows by time."""
        slot = len(self.numeric) + len(self.categorical) + 1
        return (uniform(row_hashes(index, seed, slot, 1)[:, 0]) * self.hours).long()


POPULATIONS = {
    "criteo": Population(CRITEO_NUMERIC, CRITEO_CATEGORICAL, hours=0),
    "avazu": Population((), AVAZU_CATEGORICAL, hours=AVAZU_HOURS),
}


def _ranks(hashes: Tensor, fields: tuple[Field, ...]) -> Tensor:
    """Turn hashes `[B, fields]` into int64 ranks by each field's quantile function.

    Only correctly rounded operations (+, -, *, /, truncation), each in a kernel of its own, so
    that devices agree on every rank.
    """
    device = hashes.device

    def constants(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    scale = constants([field.scale for field in fields])
    smallest = constants([(1 + f.cardinality / f.scale) ** (-1 / f.tail) for f in fields])
    largest = torch.tensor([f.cardinality - 1 for f in fields], dtype=torch.int64, device=device)
    power = 1 / (1 - uniform(hashes) * (1 - smallest))
    raised = power
    for tail in (2, 4, 8):
        power = power * power
        uses = torch.tensor([f.tail == tail for f in fields], dtype=torch.bool, device=device)
        raised = torch.where(uses, power, raised)
    ranks = torch.minimum(((raised - 1) * scale).long(), largest)
    # The uniform number comes from a hash's upper 53 bits, missingness from the 11 below.
    resolution = 1 << _MISSING_BITS
    missing = torch.tensor(
        [round(f.missing * resolution) for f in fields], dtype=torch.int64, device=device
    )
    return torch.where((hashes & (resolution - 1)) < missing, -1, ranks)
