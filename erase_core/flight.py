"""One step in flight: the activations, losses and gradients of one mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor

from .errors import BlockError, EraseError
from .graph import BlockGraph, Segment
from .plan import BlockPlan
from .tree import stop_gradient, tensors
from .updates import Updates


class Flight:
    """Holds what one step needs until its lanes have joined, and does the work that they are given.

    Args:
        graph: whose blocks run.
        updates: whose optimizers step.
        step: zero-based index, for messages.
        cast: makes the context (autocast, or nothing) around each forward.

    Attributes:
        losses: block name → detached loss.
        updated: names of the segments whose update has begun.
    """

    def __init__(
        self,
        graph: BlockGraph,
        updates: Updates,
        step: int,
        cast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.losses: dict[str, Tensor] = {}
        self.updated: list[str] = []
        self._graph = graph
        self._updates = updates
        self._step = step
        self._cast = cast
        self._fields: Mapping[str, Tensor] = {}
        self._activations: dict[str, Any] = {}
        self._weighted: dict[str, Tensor] = {}
        self._profiled = torch.autograd.profiler._is_profiler_enabled

    def begin(self, fields: Mapping[str, Tensor]) -> None:
        """Take the mini-batch."""
        self._fields = fields

    def forward(self, item: BlockPlan) -> None:
        """Evaluate a block, and its objective where the schedule counts it."""
        try:
            with self._label("forward", item.name):
                self._forward(item)
        except BaseException as error:
            self._blame(error, "forward of block", item.name)

    def release(self, item: BlockPlan) -> None:
        """Forget activations that no later block reads. Only one lane may be in use."""
        for name in item.releases:
            del self._activations[name]

    def backward(self, segments: Iterable[Segment]) -> None:
        """Take the gradients of the segments' losses in one autograd call."""
        segments = tuple(segments)
        name = segments[0].name if len(segments) == 1 else self._graph.whole().name
        try:
            with self._label("backward", name):
                self._backward(segments)
        except BaseException as error:
            self._blame(error, "backward of segment", name)

    def update(self, segment: Segment) -> None:
        """Update one segment's parameters."""
        self.updated.append(segment.name)
        try:
            with self._label("update", segment.name):
                self._updates.step_segment(segment)
        except BaseException as error:
            self._blame(error, "update of segment", segment.name)

    def update_all(self) -> None:
        """Update every parameter."""
        self.updated.append("some parameters")
        try:
            with self._label("update", "all"):
                self._updates.step_all()
        except BaseException as error:
            self._blame(error, "update of segment", "all")
        self.updated.clear()

    def predict(self, name: str, *, wanted: bool) -> Any:
        """Evaluate a block without its loss; return its prediction, if that is wanted."""
        block = self._graph.block(name)
        try:
            with self._cast():
                inputs = [
                    self._activations[source]
                    if source in self._activations
                    else self._fields[source]
                    for source in self._graph.reads[name]
                ]
                activation = self._activations[name] = block.body(*inputs)
                predict = getattr(block.objective, "predict", None)
                return predict(activation) if wanted and callable(predict) else activation
        except BaseException as error:
            self._blame(error, "prediction of block", name)

    def _forward(self, item: BlockPlan) -> None:
        block = self._graph.block(item.name)
        inputs, guarded = [], []
        for source in item.sources:
            value = self._fields[source.name] if source.field else self._activations[source.name]
            if source.cut:
                value = stop_gradient(value)
                guarded += [(tensor, tensor._version, source.name) for tensor in tensors(value)]
            inputs.append(value)
        with self._cast():
            activation = block.body(*inputs)
            for tensor, version, name in guarded:
                if tensor._version != version:
                    raise EraseError(
                        f"block {item.name!r} changed its input {name!r} in place, which corrupts "
                        f"the backward of {name!r} across the cut: make its first operation "
                        "out-of-place (for example ReLU(inplace=False))"
                    )
            self._activations[item.name] = activation
            if not item.scored:
                return
            assert block.objective is not None  # for the type checker: scored blocks have one
            loss = block.objective(activation, self._fields[self._graph.target])
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise EraseError(
                f"the objective of block {item.name!r} returned {shape}, not a scalar tensor: "
                "reduce it, for example by .mean()"
            )
        self.losses[item.name] = loss.detach()
        self._weighted[item.name] = loss if block.weight == 1.0 else loss * block.weight

    def _backward(self, segments: tuple[Segment, ...]) -> None:
        parameters = [p for s in segments for p in self._updates.parameters[s] if p.requires_grad]
        if not parameters:
            return
        losses = [self._weighted.pop(b) for s in segments for b in s.blocks if b in self._weighted]
        roots = [loss for loss in losses if loss.requires_grad]
        if not roots:
            raise EraseError(
                f"no loss of segment {segments[0].name!r} depends on a trainable parameter: do its "
                "bodies or objectives detach, or does step() run under torch.no_grad()?"
            )
        # In the calling thread: handing each small graph to autograd's one thread a device and back
        # would cost two thread switches a segment, and serialise what other threads launch.
        with torch.autograd.set_multithreading_enabled(False):
            gradients = torch.autograd.grad(roots, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    def _label(self, phase: str, name: str) -> AbstractContextManager[Any]:
        """Name the work in traces; costs nothing unless a profiler runs."""
        return (
            torch.profiler.record_function(f"{phase}:{name}") if self._profiled else nullcontext()
        )

    def _blame(self, error: BaseException, what: str, name: str) -> NoReturn:
        """Raise `error` again so that its message names the block and the step."""
        where = f"{what} {name!r} at step {self._step}"
        if isinstance(error, BlockError):
            raise error
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            raise type(error)(f"out of memory in the {where}: {error}") from error
        if isinstance(error, Exception):
            raise BlockError(f"the {where} failed: {error}", name, self._step) from error
        error.add_note(f"in the {where}")
        raise error
