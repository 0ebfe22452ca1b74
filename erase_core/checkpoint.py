"""Optimizer state by parameter name, so that a checkpoint fits any schedule of the same graph."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch

from .errors import CheckpointError
from .updates import Updates

_PARTS: Mapping[str, type] = {"graph": Mapping, "optimizer": list, "steps": int, "random": Mapping}


def optimizer_state(updates: Updates) -> list[dict[str, Any]]:
    """Return one entry per parameter group: class, hyper-parameters, state by parameter name."""
    groups = []
    for optimizer in updates.optimizers:
        for group in optimizer.param_groups:
            hyper = {key: value for key, value in group.items() if key != "params"}
            state = {updates.names[p]: dict(optimizer.state.get(p, {})) for p in group["params"]}
            groups.append({"class": type(optimizer).__name__, "hyper": hyper, "state": state})
    return groups


def load_optimizer_state(updates: Updates, groups: list[dict[str, Any]]) -> None:
    """Load what `optimizer_state` returned, whatever the grouping it was saved under.

    Raises:
        CheckpointError: if a parameter is missing, its optimizer's class differs, or one group here
            would need two learning rates or other hyper-parameters. Raised before anything changes.
    """
    saved = {name: group for group in groups for name in group["state"]}
    loads = []
    for optimizer in updates.optimizers:
        index = 0
        state, packed = {}, []
        for group in optimizer.param_groups:
            names = [updates.names[p] for p in group["params"]]
            source = _source_of(names, saved, type(optimizer).__name__)
            for offset, name in enumerate(names):
                if saved[name]["state"][name]:
                    state[index + offset] = saved[name]["state"][name]
            packed.append(source["hyper"] | {"params": list(range(index, index + len(names)))})
            index += len(names)
        loads.append((optimizer, {"state": state, "param_groups": packed}))
    for optimizer, state_dict in loads:
        optimizer.load_state_dict(deepcopy(state_dict))  # torch would share the tensors


def check_state(graph: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Raise a CheckpointError unless `state` is whole and fits the graph's names and shapes."""
    for part, kind in _PARTS.items():
        if part not in state:
            raise CheckpointError(f"the checkpoint lacks {part!r}: save Engine.state_dict()")
        if not isinstance(state[part], kind):
            raise CheckpointError(
                f"{part!r} of the checkpoint has type {type(state[part]).__name__}, not "
                f"{kind.__name__}: save Engine.state_dict()"
            )
    for group in state["optimizer"]:
        if not isinstance(group, Mapping) or not {"class", "hyper", "state"} <= set(group):
            raise CheckpointError(
                "'optimizer' of the checkpoint is not by parameter name: save Engine.state_dict(), "
                "not the optimizer's"
            )
    random = state["random"].get("cpu")
    if not isinstance(random, torch.Tensor) or not _like(random, torch.get_rng_state()):
        raise CheckpointError(
            "'random' of the checkpoint holds no state of the CPU generator under 'cpu': save "
            "Engine.state_dict()"
        )
    own, theirs = graph.state_dict(), state["graph"]
    odd = sorted(set(own) ^ set(theirs))
    if odd:
        raise CheckpointError(f"the graph and the checkpoint differ in {', '.join(odd[:4])}")
    for name, value in own.items():
        if not isinstance(value, torch.Tensor):
            continue
        other = theirs[name]
        found = tuple(other.shape) if isinstance(other, torch.Tensor) else type(other).__name__
        if found != tuple(value.shape):
            raise CheckpointError(
                f"{name!r} has shape {tuple(value.shape)} here and {found} in the checkpoint"
            )


def _source_of(
    names: list[str], saved: dict[str, dict[str, Any]], class_name: str
) -> dict[str, Any]:
    source = None
    for name in names:
        group = saved.get(name)
        if group is None:
            raise CheckpointError(f"the checkpoint has no optimizer state for parameter {name!r}")
        if group["class"] != class_name:
            raise CheckpointError(
                f"parameter {name!r} is updated by {class_name} here and by {group['class']} in "
                "the checkpoint: build the engine with the same optimizer"
            )
        if source is not None and not _same(group["hyper"], source["hyper"]):
            raise CheckpointError(
                f"parameters {names[0]!r} and {name!r} share a group here but had different "
                "hyper-parameters in the checkpoint: use a schedule with the grouping it was "
                "saved under, or set the learning rates after loading"
            )
        source = source or group
    if source is None:
        raise CheckpointError("an optimizer has an empty parameter group: remove it")
    return source


def _like(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape


def _same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    if left.keys() != right.keys():
        return False
    return all(
        torch.equal(torch.as_tensor(value), torch.as_tensor(right[key]))
        if isinstance(value, torch.Tensor)
        else value == right[key]
        for key, value in left.items()
    )
