"""The optimizers of a CTR model: Adam for its matrices, row-wise Adagrad for its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from erase_core.ctr.rowwise_adagrad import RowWiseAdagrad


def optimizers(
    learning_rate: float | Tensor = 1e-3,
    table_learning_rate: float | Tensor = 1e-2,
    *,
    weight_decay: float = 0.0,
    table_weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    table_eps: float | None = None,
    capturable: bool = False,
    fused: bool | None = None,
) -> Callable[[Iterable[Parameter]], list[Optimizer]]:
    """Make the factory that `erase_core.Engine` calls with the parameters it trains.

    A parameter tagged `row_wise = True` (an embedding table) goes to `RowWiseAdagrad`, any other to
    Adam. The groups are named, so that a learning rate schedule can tell them apart:
    `group["name"]` is "matrices" or "vectors" under Adam and "tables" under row-wise Adagrad; a
    group that would be empty is left out.

    Args:
        learning_rate, table_learning_rate: of Adam and of row-wise Adagrad.
        weight_decay: decoupled decay (AdamW's) of matrices. Vectors, that is biases and
            normalisation gains, do not decay.
        table_weight_decay: added to the gradient of touched rows; see `RowWiseAdagrad`.
        betas, eps, capturable: of Adam.
        table_eps: of row-wise Adagrad; `eps` by default.
        fused: let Adam update a group in one kernel instead of a dozen: eager steps are bound by
            kernel launches, so each one counts. By default where all of Adam's parameters are CUDA
            tensors; false leaves the implementation to torch. Works with `capturable` as well.

    Returns:
        A callable that takes parameters and returns one or two optimizers. It raises `ValueError`
        if there are none or one is given twice, and `TypeError` if one is no `Parameter`.

    Raises:
        ValueError: where a learning rate or decay is negative.
    """
    for name, value in {
        "learning_rate": learning_rate,
        "table_learning_rate": table_learning_rate,
        "weight_decay": weight_decay,
        "table_weight_decay": table_weight_decay,
    }.items():
        if not isinstance(value, Tensor) and not value >= 0:
            raise ValueError(f"`{name}` (={value}) must not be negative")

    def make(parameters: Iterable[Parameter]) -> list[Optimizer]:
        groups: dict[str, list[Parameter]] = {"matrices": [], "vectors": [], "tables": []}
        seen: set[int] = set()
        for parameter in parameters:
            if not isinstance(parameter, Parameter):
                raise TypeError(
                    f"expected parameters, got {type(parameter).__name__}; pass "
                    "`module.parameters()`"
                )
            if id(parameter) in seen:
                raise ValueError(
                    f"a parameter of shape {tuple(parameter.shape)} is given twice; it would be "
                    "updated twice a step"
                )
            seen.add(id(parameter))
            if getattr(parameter, "row_wise", False):
                groups["tables"].append(parameter)
            else:
                groups["matrices" if parameter.dim() > 1 else "vectors"].append(parameter)
        if not seen:
            raise ValueError("there are no parameters to optimize; a model without any needs none")
        made: list[Optimizer] = []
        dense = [
            {
                "params": groups[name],
                "name": name,
                "weight_decay": weight_decay if name == "matrices" else 0.0,
            }
            for name in ("matrices", "vectors")
            if groups[name]
        ]
        if dense:
            on_cuda = all(p.is_cuda for p in groups["matrices"] + groups["vectors"])
            made.append(
                torch.optim.AdamW(
                    dense,
                    lr=learning_rate,
                    betas=betas,
                    eps=eps,
                    capturable=capturable,
                    # None, not False, which would forbid torch's `foreach` kernels too.
                    fused=(on_cuda if fused is None else fused) or None,
                )
            )
        if groups["tables"]:
            made.append(
                RowWiseAdagrad(
                    [{"params": groups["tables"], "name": "tables"}],
                    lr=table_learning_rate,
                    eps=eps if table_eps is None else table_eps,
                    weight_decay=table_weight_decay,
                )
            )
        return made

    return make
