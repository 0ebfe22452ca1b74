"""Batches of rows that lie on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


class ResidentFeed:
    """Batches of a split that lies whole on a device.

    Iterating yields the rest of the current epoch, then moves on to the next; so
    `for _ in range(epochs): for batch in feed: ...` runs whole epochs, and after a resume the
    first of them is the unfinished one. The order of an epoch depends on (seed, epoch, rows)
    alone, not on the device. The last batch may be short; no row is dropped. Batches own their
    memory.

    Args:
        tensors: a split under the names of a batch (see `CtrSchema`), each
            with rows first and all on one device.
        batch_size: rows of a batch.
        shuffle: draw a new order every epoch; else rows come as they lie.
        seed: of the shuffling.

    Raises:
        ValueError: if there are no rows, lengths or devices differ, or the batch size is below 1.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"`batch_size` (={batch_size}) must be at least 1")
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"`tensors` must have the same number of rows, got {lengths}")
        devices = {str(tensor.device) for tensor in tensors.values()}
        if len(devices) > 1:
            raise ValueError(f"`tensors` lie on {sorted(devices)}; move them to one device")
        self.tensors = dict(tensors)
        self.rows = next(iter(lengths.values()))
        if self.rows == 0:
            raise ValueError("there are no rows to feed; choose a split that is not empty")
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._order: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Yield the batches that are left of the current epoch."""
        epoch = self.epoch
        while self.epoch == epoch:
            yield self._next()

    def _next(self) -> dict[str, Tensor]:
        start, stop = self.position, min(self.position + self.batch_size, self.rows)
        if self.shuffle:
            chosen = self._permutation()[start:stop]
            batch = {name: t.index_select(0, chosen) for name, t in self.tensors.items()}
        else:
            # A copy, for the rows may be a read-only memory map.
            batch = {name: tensor[start:stop].clone() for name, tensor in self.tensors.items()}
        # Moved before the batch is handed out: a state taken while it is in use counts it as done.
        self.position = stop
        if stop == self.rows:
            self.epoch, self.position = self.epoch + 1, 0
        return batch

    def _permutation(self) -> Tensor:
        if self._order is None or self._order[0] != self.epoch:
            self._order = None
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = torch.randperm(self.rows, generator=generator)
            device = next(iter(self.tensors.values())).device
            self._order = (self.epoch, order.to(device))
        return self._order[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the position and what the order depends on."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "rows": self.rows,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the batch that follows the one after which the state was taken.

        Raises:
            ValueError: if the state belongs to other rows, batch size, seed or order.
        """
        mine = self.state_dict()
        if set(state) != set(mine):
            raise ValueError(f"the state has {sorted(state)}, a feed's state has {sorted(mine)}")
        for name in ("rows", "batch_size", "shuffle", "seed"):
            if state[name] != mine[name]:
                raise ValueError(
                    f"`{name}` is {mine[name]!r} here but {state[name]!r} in the state; make the "
                    "feed as it was to resume exactly"
                )
        if not (0 <= state["position"] < self.rows and state["epoch"] >= 0):
            raise ValueError(
                f"epoch {state['epoch']}, position {state['position']} lie outside {self.rows} rows"
            )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
