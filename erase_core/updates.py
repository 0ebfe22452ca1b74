"""Parameter updates: which optimizer owns which parameter, and when it steps."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from .errors import ScheduleError
from .graph import BlockGraph, Segment
from .plan import Plan
from .schedules import Schedule

Parameters = list[nn.Parameter]
OptimizerFactory = Callable[[Parameters], torch.optim.Optimizer | Sequence[torch.optim.Optimizer]]


class Updates:
    """The optimizers of a graph, one set for all parameters or one per segment.

    Args:
        graph: whose trainable parameters are updated.
        factory: called with a list of parameters; returns the optimizer, or optimizers, for them.
        plan: the segments.
        schedule: with update="end" the factory is called once, with "early" once a segment.
        clip_norm: largest global gradient norm, or None.

    Raises:
        ScheduleError: if an optimizer needs a closure, a parameter belongs to no optimizer or to
            two, or `clip_norm` cannot be honoured with early updates.
    """

    def __init__(
        self,
        graph: BlockGraph,
        factory: OptimizerFactory,
        plan: Plan,
        schedule: Schedule,
        clip_norm: float | None,
    ) -> None:
        if clip_norm is not None and not clip_norm > 0:
            raise ScheduleError(f"`clip_norm` (={clip_norm}) must be positive, or None")
        if clip_norm is not None and schedule.update == "early":
            raise ScheduleError(
                "`clip_norm` needs every gradient before the first update, and schedule "
                f'{schedule.name!r} updates early: use update="end" or clip_norm=None'
            )
        self.clip_norm = clip_norm
        self.names = {p: name for name, p in graph.named_parameters()}
        self.parameters: dict[Segment, Parameters] = {
            segment: list(
                dict.fromkeys(p for name in segment.blocks for p in graph.block(name).parameters())
            )
            for segment in plan.segments
        }
        for parameter, name in self.names.items():
            if nn.parameter.is_lazy(parameter):
                raise ScheduleError(
                    f"parameter {name!r} is not initialised yet: run one forward of the graph, "
                    "or give the module its input size, before building the engine"
                )
        self._of: dict[Segment, list[torch.optim.Optimizer]] = {}
        if schedule.update == "early":
            self._of = {s: self._make(factory, p) for s, p in self.parameters.items()}
            self.optimizers = [optimizer for made in self._of.values() for optimizer in made]
        else:
            self.optimizers = self._make(factory, list(self.names))

    def clip(self) -> None:
        """Clip all gradients, if asked to."""
        if self.clip_norm is not None:
            self._refuse_sparse()
            nn.utils.clip_grad_norm_(list(self.names), self.clip_norm)

    def step_all(self) -> None:
        """Update every parameter, and drop the gradients."""
        self._step(self.optimizers, self.names)

    def step_segment(self, segment: Segment) -> None:
        """Update the parameters of one segment, and drop their gradients."""
        self._step(self._of[segment], self.parameters[segment])

    @staticmethod
    def assign(parameters: Iterable[nn.Parameter], gradients: Iterable[Tensor | None]) -> None:
        """Set each `.grad` as `backward()` would: in its parameter's layout, in memory of its own.

        Autograd may return one tensor for two parameters, or an expanded one; clipping and some
        optimizers write to gradients in place.
        """
        taken: set[int] = set()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None and gradient.layout is torch.strided:
                alike = gradient.is_contiguous() and parameter.is_contiguous()
                alike = alike or gradient.stride() == parameter.stride()
                if not alike or gradient.data_ptr() in taken:
                    gradient = torch.empty_like(parameter).copy_(gradient)
                taken.add(gradient.data_ptr())
            parameter.grad = gradient

    def drop_gradients(self) -> None:
        """Set every gradient to None."""
        for parameter in self.names:
            parameter.grad = None

    def _refuse_sparse(self) -> None:
        for parameter, name in self.names.items():
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise ScheduleError(
                    f"`clip_norm` (={self.clip_norm}) cannot measure the sparse gradient of "
                    f"{name!r}, whose rows may repeat: make it dense, or use clip_norm=None"
                )

    @staticmethod
    def _step(
        optimizers: Iterable[torch.optim.Optimizer], parameters: Iterable[nn.Parameter]
    ) -> None:
        for optimizer in optimizers:
            optimizer.step()
        for parameter in parameters:
            parameter.grad = None

    def _make(
        self, factory: OptimizerFactory, parameters: Parameters
    ) -> list[torch.optim.Optimizer]:
        trainable = [p for p in parameters if p.requires_grad]
        if not trainable:
            return []
        made = factory(trainable)
        optimizers = [made] if isinstance(made, torch.optim.Optimizer) else list(made)
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise ScheduleError(
                    f"the optimizer factory returned a {type(optimizer).__name__}: it must return "
                    "a torch.optim.Optimizer or a sequence of them"
                )
            closure = inspect.signature(type(optimizer).step).parameters.get("closure")
            if closure is not None and closure.default is inspect.Parameter.empty:
                raise ScheduleError(
                    f"{type(optimizer).__name__} re-evaluates the loss through a closure, which no "
                    "schedule can honour: use an optimizer whose step() needs none"
                )
        owned = Counter(
            id(p) for o in optimizers for group in o.param_groups for p in group["params"]
        )
        for parameter in trainable:
            count = owned.pop(id(parameter), 0)
            if count != 1:
                raise ScheduleError(
                    f"parameter {self.names[parameter]!r} is in {count} optimizers: the factory "
                    "must put each parameter that it is given into exactly one (freeze a parameter "
                    "with requires_grad_(False) to leave it out)"
                )
        if owned:
            raise ScheduleError(
                f"the optimizer factory used {len(owned)} parameters that it was not given: it is "
                "called with a list of parameters and must build its optimizers from that list"
            )
        return optimizers
