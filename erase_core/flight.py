"""One step in flight: the activations, losses and gradients of one mini-batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from .errors import BlockError, EraseError
from .graph import BlockGraph, Segment
from .plan import BlockPlan
from .proof import foreign_parameter, on_random_state_set
from .tree import stop_gradient, tensors
from .updates import Updates


class Flight:
    """Holds what one step needs until its lanes have joined, and does the work that they are given.

    Args:
        graph: whose blocks run.
        updates: whose optimizers step.
        step: zero-based index, for messages.
        cast: makes the context (autocast, or nothing) around each forward.
        prove: whether to look for what no plan can tell: see `proof`.

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
        prove: bool = False,
    ) -> None:
        self.losses: dict[str, Tensor] = {}
        self.updated: list[str] = []
        self.step = step
        self._graph = graph
        self._updates = updates
        self._cast = cast
        self._prove = prove
        self._thread = threading.get_ident()
        self._sets_random: list[str] = []
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

    def prove_random(self, before: list[Tensor], after: list[Tensor]) -> None:
        """Refuse backwards that set random states in a thread beside forwards that draw.

        Args:
            before: random states when the step began.
            after: random states after its last forward.
        """
        if self._sets_random and not all(map(torch.equal, before, after)):
            name = self._sets_random[0]
            raise BlockError(
                f"the backward of segment {name!r} sets the global random state (as "
                "torch.utils.checkpoint does), and would do so while other blocks draw from it: "
                "pass preserve_rng_state=False if what it recomputes draws nothing, or use a "
                'schedule that launches from one thread, such as "early"',
                name,
                self.step,
            )

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
        try:
            with self._label("update", "all"):
                self._updates.clip()
                self.updated.append("some parameters")
                self._updates.step_all()
        except BaseException as error:
            self._blame(error, "update of segment", "all")

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
        inputs: list[Any] = []
        guarded: list[tuple[Tensor, int, str]] = []
        for source in item.sources:
            value = self._fields[source.name] if source.field else self._activations[source.name]
            if source.cut:
                value = stop_gradient(value)
            inputs.append(value)
            guarded += self._versions(item, source.name, value)
        target = self._fields.get(self._graph.target) if item.scored else None
        guarded += self._versions(item, self._graph.target, target)
        with self._cast():
            activation = block.body(*inputs)
            self._activations[item.name] = activation
            loss = None
            if item.scored:
                assert block.objective is not None  # for the type checker: scored blocks have one
                loss = block.objective(activation, target)
        for tensor, version, name in guarded:
            if tensor._version != version:
                raise EraseError(
                    f"block {item.name!r} changed its input {name!r} in place, which corrupts "
                    "what other blocks read or back-propagate: make its first operation "
                    "out-of-place (for example ReLU(inplace=False))"
                )
        if not item.scored:
            return
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise EraseError(
                f"the objective of block {item.name!r} returned {shape}, not a scalar tensor: "
                "reduce it, for example by .mean()"
            )
        self.losses[item.name] = loss.detach()
        self._weighted[item.name] = loss if block.weight == 1.0 else loss * block.weight

    def _backward(self, segments: tuple[Segment, ...]) -> None:
        parameters: list[nn.Parameter] = []
        roots: list[Tensor] = []
        for segment in segments:
            trainable = [p for p in self._updates.parameters[segment] if p.requires_grad]
            if trainable:
                parameters += trainable
                roots += self._roots(segment)
        if not parameters:
            return
        # In the calling thread: handing each small graph to autograd's one thread a device and back
        # would cost two thread switches a segment, and serialise what other threads launch.
        with torch.autograd.set_multithreading_enabled(False), self._watched(segments[0].name):
            gradients = torch.autograd.grad(roots, parameters, allow_unused=True)
        self._updates.assign(parameters, gradients)

    def _roots(self, segment: Segment) -> list[Tensor]:
        """Return a segment's losses, refused where a local gradient would not be what they say."""
        losses = [self._weighted.pop(name) for name in segment.blocks if name in self._weighted]
        roots = [loss for loss in losses if loss.requires_grad]
        if not roots:
            raise EraseError(
                f"no loss of segment {segment.name!r} depends on a trainable parameter: do its "
                "bodies or objectives detach, or does step() run under torch.no_grad()?"
            )
        if self._prove:
            updates = self._updates
            foreign = foreign_parameter(roots, updates.parameters[segment], updates.names)
            if foreign is not None:
                raise EraseError(
                    f"the loss of segment {segment.name!r} depends on {foreign!r} across a cut: "
                    "let activations be tensors, or tuples, lists, dicts or dataclasses of them, "
                    "let no body or objective hold another block's module, and let no batch field "
                    "be computed from the graph"
                )
        return roots

    def _versions(
        self, item: BlockPlan, name: str, value: Any
    ) -> Iterator[tuple[Tensor, int, str]]:
        if name in item.guarded:
            for tensor in tensors(value):
                if not tensor.is_inference():  # those keep no version
                    yield tensor, tensor._version, name

    def _watched(self, name: str) -> AbstractContextManager[Any]:
        """On the first step, note a backward beside the forwards that sets random states."""
        if not self._prove or threading.get_ident() == self._thread:
            return nullcontext()
        return on_random_state_set(lambda: self._sets_random.append(name))

    def _label(self, phase: str, name: str) -> AbstractContextManager[Any]:
        """Name the work in traces; costs nothing unless a profiler runs."""
        return (
            torch.profiler.record_function(f"{phase}:{name}") if self._profiled else nullcontext()
        )

    def _blame(self, error: BaseException, what: str, name: str) -> NoReturn:
        """Raise `error` again so that its message names the block and the step."""
        where = f"{what} {name!r} at step {self.step}"
        if isinstance(error, BlockError):
            raise error
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            # Not type(error): numpy's own MemoryError takes other arguments.
            host = isinstance(error, MemoryError)
            kind = MemoryError if host else torch.OutOfMemoryError
            raise kind(f"out of memory in the {where}: {error}") from error
        if isinstance(error, Exception):
            why = str(error) or type(error).__name__
            raise BlockError(f"the {where} failed: {why}", name, self.step) from error
        error.add_note(f"in the {where}")
        raise error
