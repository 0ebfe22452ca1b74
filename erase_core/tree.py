"""The few operations on activations: tensors, or tuples, lists, dicts or dataclasses of them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def stop_gradient(value: Any) -> Any:
    """Return `value` with every tensor in it detached: the operator sg[·]."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        stopped = copy(value)  # keeps what else a subclass holds, a defaultdict's factory for one
        for key, item in value.items():
            stopped[key] = stop_gradient(item)
        return stopped
    if _is_dataclass(value):
        return replace(
            value,
            **{f.name: stop_gradient(getattr(value, f.name)) for f in fields(value) if f.init},
        )
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
    elif _is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def _is_dataclass(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)
