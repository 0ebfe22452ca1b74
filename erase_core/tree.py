"""The few operations needed on activations: tensors, or tuples, lists and dicts of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor


def stop_gradient(value: Any) -> Any:
    """Return `value` with every tensor in it detached: the operator sg[·]."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return type(value)((key, stop_gradient(item)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(stop_gradient, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(stop_gradient, value))
    return value


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in `value`."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)
