"""Splits of a synthetic click log, generated on the device that asks for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from erase_core.ctr.prepared import Split
from erase_core.ctr.schema import LABEL, CtrSchema
from erase_core.ctr.synthetic.clicks import SyntheticClicks, bayes_normalized_entropy

_STARTS = {"train": 0, "valid": 1 << 40, "test": 1 << 41}
_CHUNK = 1 << 18


@dataclass(frozen=True)
class SyntheticDataset:
    """Training, validation and test rows of `SyntheticClicks`, without any file.

    The splits are far apart ranges of one seed's rows, so that another number of training rows
    leaves the validation and test rows as they are.

    Args:
        clicks: the generator.
        sizes: number of rows of `"train"`, `"valid"` and `"test"`.
    """

    clicks: SyntheticClicks
    sizes: tuple[int, int, int]

    @property
    def schema(self) -> CtrSchema:
        """Fields of a row."""
        return self.clicks.schema

    @property
    def fingerprint(self) -> str:
        """Name, seed, sizes and table rows, which determine every encoded row."""
        sizes = "-".join(map(str, self.sizes))
        return f"{self.schema.dataset}-seed{self.clicks.seed}-{sizes}-{self.schema.rows}"

    def split(self, name: str, device: torch.device | str = "cpu") -> Split:
        """Generate a split on a device.

        Raises:
            ValueError: if there is no such split.
        """
        if name not in _STARTS:
            raise ValueError(f"there is no split {name!r}; choose one of {', '.join(_STARTS)}")
        start, rows = _STARTS[name], self.sizes[list(_STARTS).index(name)]
        batches, probabilities = [], []
        for at in range(start, start + rows, _CHUNK):
            drawn = self.clicks.rows(at, min(_CHUNK, start + rows - at), device)
            batches.append(self.clicks.encode(drawn))
            probabilities.append(drawn.probability)
        tensors = {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
        return Split(
            tensors,
            click_rate=float(tensors[LABEL].double().mean()),
            bayes_normalized_entropy=bayes_normalized_entropy(torch.cat(probabilities)),
        )
