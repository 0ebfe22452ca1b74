"""What the first step proves of bodies and objectives, since no plan can tell it beforehand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

_SETTERS = {torch.random.set_rng_state.__code__, torch.cuda.random.set_rng_state.__code__}


def foreign_parameter(
    roots: Iterable[Tensor], own: Iterable[nn.Parameter], names: Mapping[nn.Parameter, str]
) -> str | None:
    """Return the name of a parameter, of those in `names` but not `own`, that `roots` depend on."""
    mine = set(own)
    stack = [root.grad_fn for root in roots]
    seen = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf in names and leaf not in mine:
            return names[leaf]
        stack += [parent for parent, _ in node.next_functions]
    return None


@contextmanager
def on_random_state_set(note: Callable[[], None]) -> Iterator[None]:
    """Call `note` when this thread sets the state of a global random-number generator.

    A profile function is the one public way to see it from outside: `torch.utils.checkpoint`, which
    does it to repeat the draws of a forward, puts the old state back before anyone could compare.
    """
    before = sys.getprofile()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in _SETTERS:
            note()

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def random_state(device: torch.device) -> list[Tensor]:
    """Return the states of the global generators that a step on `device` may draw from."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states
