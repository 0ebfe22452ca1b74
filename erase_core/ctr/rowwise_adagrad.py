"""Adagrad with one accumulator for each row of an embedding table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer


def sum_duplicates(ids: Tensor, values: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Add up the values of equal ids without asking the device how many ids there are.

    The number of distinct ids is known to the device alone, so the result keeps the length `N`
    of the input: the sums come first, in ascending order of id, and the rest is padding.

    Args:
        ids: integers `[N]` in `0 .. rows - 1`.
        values: `[N, D]`; summed in float32 or better.
        rows: number of rows that the ids point into.

    Returns:
        `(row, total, valid)`: int64 `[N]`, `[N, D]` and bool `[N]`. Where `valid` is false,
        `total` is zero and `row` some existing row.
    """
    count = ids.numel()
    # int32 keys halve the passes of the radix sort.
    keys = ids.to(torch.int32) if rows < 2**31 else ids
    ordered, order = keys.sort(stable=True)
    new_segment = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=new_segment[1:])
    segment = new_segment.cumsum(0) - 1
    dtype = torch.promote_types(values.dtype, torch.float32)
    total = torch.zeros(values.shape, dtype=dtype, device=values.device)
    total.index_add_(0, segment, values.index_select(0, order).to(dtype))
    position = torch.arange(count, device=ids.device)
    # Padding is spread over the table: thousands of zeros added to one row would queue for it.
    row = (position % rows).scatter_(0, segment, ordered.to(torch.int64))
    return row, total, position <= segment[-1]


def rowwise_adagrad_(
    weight: Tensor,
    accumulator: Tensor,
    ids: Tensor,
    values: Tensor,
    *,
    lr: float | Tensor,
    eps: float,
    weight_decay: float = 0.0,
) -> None:
    """Update, in place, the rows of `weight` that `ids` name. No host sync.

    Args:
        weight, accumulator: `[rows, D]` and `[rows]`.
        ids, values: `[N]` and `[N, D]`: a gradient with one entry for each lookup; ids may repeat.
        lr, eps, weight_decay: as in `RowWiseAdagrad`.
    """
    if ids.numel() == 0 or values.numel() == 0:
        return
    row, total, valid = sum_duplicates(ids, values, weight.shape[0])
    if weight_decay:
        total += _decay(total, weight.index_select(0, row), weight_decay)
    accumulator.index_add_(0, row, total.square().mean(dim=1).to(accumulator.dtype))
    scale = lr / (accumulator.index_select(0, row).sqrt() + eps)
    update = total * scale.masked_fill(~valid, 0.0).unsqueeze(1)
    # Each row gets one sum; everything else added to it is a padding's zero.
    weight.index_add_(0, row, update.neg_().to(weight.dtype))


def _decay(total: Tensor, weight: Tensor, weight_decay: float) -> Tensor:
    """Return the decay's part of the gradient: zero for rows whose gradient is zero."""
    touched = (total != 0).any(dim=1, keepdim=True)
    return weight.to(total.dtype) * weight_decay * touched


def _dense_(
    weight: Tensor,
    accumulator: Tensor,
    gradient: Tensor,
    *,
    lr: float | Tensor,
    eps: float,
    weight_decay: float,
) -> None:
    total = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    if weight_decay:
        total = total + _decay(total, weight, weight_decay)
    accumulator += total.square().mean(dim=1).to(accumulator.dtype)
    scale = lr / (accumulator.sqrt() + eps)
    weight -= (total * scale.unsqueeze(1)).to(weight.dtype)


class RowWiseAdagrad(Optimizer):
    """Exact row-wise Adagrad, as FBGEMM's `EXACT_ROWWISE_ADAGRAD`.

    With g_r the sum of all gradients of row r in the batch (a row looked up many times is updated
    once, by the sum) and D the columns,

        s_r ← s_r + ‖g_r‖² / D,    w_r ← w_r − η g_r / (√s_r + ε).

    The table needs one accumulator a row instead of one an element: 1/D of Adagrad's state.
    Gradients may be sparse (as an embedding with `sparse=True` gives them, not coalesced) or
    dense. A step never waits for the device: the work is sized by the number of lookups, not by
    the number of distinct rows. It is deterministic on the CPU, and on CUDA where
    `torch.use_deterministic_algorithms(True)` is set.

    Args:
        params: parameters or groups. A row is a slice along the first dimension.
        lr: learning rate; a one-element tensor stays on its device.
        eps: added to the root; positive.
        weight_decay: `weight_decay * w` is added to the gradient of the rows whose summed gradient
            is not zero. Rows that the batch does not touch do not decay.
        initial_accumulator: start of every accumulator.

    Raises:
        ValueError: where a hyperparameter is out of range, or a sparse gradient is not sparse in
            rows alone.
        TypeError: where a parameter is not real floating point.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor = 1e-2,
        *,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        initial_accumulator: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator": initial_accumulator,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group and its accumulators; see the class for what a group may hold."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name in ("lr", "weight_decay", "initial_accumulator"):
            # A tensor may lie on a device; only a number can be checked without waiting for it.
            if not isinstance(group[name], Tensor) and not group[name] >= 0:
                raise ValueError(f"`{name}` (={group[name]}) must not be negative")
        if not group["eps"] > 0:
            raise ValueError(f"`eps` (={group['eps']}) must be positive")
        for parameter in group["params"]:
            if not parameter.is_floating_point():
                raise TypeError(
                    f"a parameter is {parameter.dtype}; RowWiseAdagrad updates real floating "
                    "point tables"
                )
            if parameter.dim() < 1:
                raise ValueError("a parameter has no rows (it is a scalar); use another optimizer")
            self.state[parameter]["accumulator"] = torch.full(
                parameter.shape[:1],
                float(group["initial_accumulator"]),
                dtype=torch.promote_types(parameter.dtype, torch.float32),
                device=parameter.device,
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore accumulators at their own precision; `ValueError` where there are none."""
        saved_ids = [key for group in state_dict["param_groups"] for key in group["params"]]
        for key in saved_ids:
            if "accumulator" not in state_dict["state"].get(key, {}):
                raise ValueError(
                    f"the saved state of parameter {key} has no accumulator; load the state that "
                    "a RowWiseAdagrad saved"
                )
        super().load_state_dict(state_dict)
        # torch casts state to the parameter's dtype, which would round a bfloat16 table's
        # float32 accumulators: a resumed run would part from an uninterrupted one.
        parameters = [p for group in self.param_groups for p in group["params"]]
        for key, parameter in zip(saved_ids, parameters, strict=True):
            saved = state_dict["state"][key]["accumulator"]
            self.state[parameter]["accumulator"] = saved.to(
                parameter.device, torch.promote_types(parameter.dtype, torch.float32), copy=True
            )

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; return the closure's loss, if any."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            options = {name: group[name] for name in ("lr", "eps", "weight_decay")}
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                columns = math.prod(parameter.shape[1:])
                weight = parameter.view(-1, columns)
                accumulator = self.state[parameter]["accumulator"]
                if gradient.layout == torch.strided:
                    _dense_(weight, accumulator, gradient.reshape(weight.shape), **options)
                    continue
                if gradient.layout != torch.sparse_coo or gradient.sparse_dim() != 1:
                    raise ValueError(
                        f"a gradient of layout {gradient.layout} is not sparse in rows alone; "
                        "RowWiseAdagrad takes dense gradients and those of an embedding with "
                        "`sparse=True`"
                    )
                # The public accessors refuse a tensor that is not coalesced, and coalescing it
                # would wait for the device.
                ids, values = gradient._indices()[0], gradient._values()
                values = values.reshape(-1, columns)
                rowwise_adagrad_(weight, accumulator, ids, values, **options)
        return loss
