"""The engine: trains a `BlockGraph` under a `Schedule`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor

from .checkpoint import check_state, load_optimizer_state, optimizer_state
from .errors import EraseError, ScheduleError
from .flight import Flight
from .graph import Batch, BlockGraph
from .lanes import Lane, Workers, lanes
from .plan import BlockPlan, make_plan
from .proof import random_state
from .schedules import Schedule
from .schedules import schedule as named_schedule
from .updates import OptimizerFactory, Updates
from .watch import LossWatch


class Engine:
    """Trains `graph`, one mini-batch a `step`, in the order and places that a schedule names.

    | what | caller's lane | lane i ≥ 1 |
    |---|---|---|
    | forward of the remainder, its backward | yes | |
    | forward of segment i, its early backward | where lanes are few | yes |
    | update at the end, loss watch | yes | |
    | early update of segment i | where lanes are few | yes |

    Whatever the schedule, a step ends with the caller's lane waiting for all others, so that losses
    and parameters can be read on the caller's stream. Every local schedule gives the parameters
    that `detached` gives.

    Gradients are taken by `torch.autograd.grad` and assigned to `.grad` just before the update;
    afterwards they are None. Hooks on AccumulateGrad nodes therefore do not run, and
    `torch.utils.checkpoint` needs use_reentrant=False.

    The optimizer is built once, for the parameters that require gradients at that time. Freezing
    some later is honoured; to train others, build a new engine.

    The first step runs without overlap, and looks for what would make schedules differ: losses that
    depend on another segment's parameters, and backwards that disturb the draws of forwards.

    Args:
        graph: blocks on the device where they are to be trained.
        optimizer: called with a list of parameters; returns an optimizer, or several, for them.
        schedule: a `Schedule`, or the name of one in `LADDER`.
        autocast: dtype for `torch.autocast` around every forward, or None. Losses are not scaled,
            which torch.float16 would need.
        clip_norm: largest global norm of all gradients, or None.
        nonfinite: "raise" notes non-finite losses on the device and raises at the next `flush`;
            "ignore" saves the few kernels a step that this costs.

    Raises:
        ScheduleError: if the schedule cannot be honoured exactly for this graph and optimizer.
    """

    def __init__(
        self,
        graph: BlockGraph,
        optimizer: OptimizerFactory,
        schedule: Schedule | str = "detached",
        *,
        autocast: torch.dtype | None = None,
        clip_norm: float | None = None,
        nonfinite: Literal["raise", "ignore"] = "raise",
    ) -> None:
        if not isinstance(graph, BlockGraph):
            raise ScheduleError(
                f"`graph` is a {type(graph).__name__}: build a BlockGraph, for instance by "
                "BlockGraph.chain(blocks)"
            )
        if autocast is not None and not isinstance(autocast, torch.dtype):
            raise ScheduleError(
                f"`autocast` (={autocast!r}) must be a dtype such as torch.bfloat16, or None"
            )
        if nonfinite not in ("raise", "ignore"):
            raise ScheduleError(f'`nonfinite` (={nonfinite!r}) must be "raise" or "ignore"')
        self.graph = graph
        self.schedule = named_schedule(schedule) if isinstance(schedule, str) else schedule
        self._plan = make_plan(graph, self.schedule)
        self._updates = Updates(graph, optimizer, self._plan, self.schedule, clip_norm)
        self._device = _device_of(graph)
        self._cast: Callable[[], AbstractContextManager[Any]] = (
            nullcontext
            if autocast is None
            else partial(torch.autocast, self._device.type, dtype=autocast)
        )
        self._caller, self._side = lanes(self._device, self._plan.lanes)
        self._dispatch = Workers(max(1, len(self._side)), "erase-dispatch")
        self._watch = LossWatch() if nonfinite == "raise" else None
        self._steps = 0
        self._proved = False
        self._torn: str | None = None

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers; learning rates are changed in their `param_groups`, as ever."""
        return self._updates.optimizers

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return self._steps

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Train on one mini-batch; return each evaluated loss (λ not applied) by block name.

        The losses are detached scalars on the device; reading one on the caller's stream is safe.
        Nothing here waits for the device. One thread at a time may call this.

        Raises:
            GraphError: if the batch lacks a field.
            BlockError: if a block, objective, backward or update fails. Parameters are as before
                the step, unless the message says that some had been updated already.
        """
        if self._torn is not None:
            raise EraseError(self._torn)
        flight = self._flight()
        try:
            flight.begin(self.graph.fields_of(batch))
            self._launch(flight)
            if self._watch is not None:
                self._watch.record(flight.losses, self._steps)
            if self.schedule.update == "end":
                flight.update_all()
            self._steps += 1
        except BaseException:
            self._abandon(flight)
            raise
        self._proved = True
        return flight.losses

    def flush(self) -> None:
        """Finish what is in flight and report what went wrong unseen.

        Raises:
            NonFiniteLossError: if a loss since the last flush was NaN or infinite.
        """
        if self._watch is not None:
            self._watch.check()

    def close(self) -> None:
        """End the engine's threads. The next step starts them again."""
        self._dispatch.close(cancel=True)
        for lane in self._side:
            lane.close()

    def predict(self, batch: Batch) -> Any:
        """Return the output block's predictions, in evaluation mode and without gradients.

        That is `objective.predict(activation)` where the objective has it, else the activation.
        """
        return self.predict_each(batch, only=(self.graph.output,))[self.graph.output]

    @torch.no_grad()
    def predict_each(self, batch: Batch, only: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return the predictions of every block with an objective, or of the blocks `only`."""
        self.flush()
        graph = self.graph
        wanted = only or tuple(n for n in graph.names if graph.block(n).objective is not None)
        needed = graph.ancestors(wanted)
        flight = self._flight()
        flight.begin(graph.fields_of(batch, needed))
        modes = [(module, module.training) for module in graph.modules()]
        try:
            graph.eval()
            values = {name: flight.predict(name, wanted=name in wanted) for name in needed}
            return {name: values[name] for name in wanted}
        finally:
            for module, training in modes:
                module.training = training

    def state_dict(self) -> dict[str, Any]:
        """Return parameters, buffers, optimizer state, step count and random-number state.

        It fits an engine with any schedule over the same graph. As in torch, tensors are
        references: save or copy them before training on.
        """
        self.flush()
        cuda = self._device.type == "cuda"
        return {
            "graph": self.graph.state_dict(),
            "optimizer": optimizer_state(self._updates),
            "steps": self._steps,
            "random": {
                "cpu": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state(self._device) if cuda else None,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken, random numbers included.

        Raises:
            CheckpointError: if the state does not fit; then nothing has been loaded.
        """
        check_state(self.graph, state)
        load_optimizer_state(self._updates, state["optimizer"])
        self.graph.load_state_dict(state["graph"])
        self._steps = state["steps"]
        torch.set_rng_state(state["random"]["cpu"].cpu())  # map_location may have moved it
        if self._device.type == "cuda" and state["random"].get("cuda") is not None:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), self._device)
        self._torn = None
        if self._watch is not None:
            self._watch.forget()

    def __enter__(self) -> Engine:
        """Return the engine; leaving the block flushes and closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close, and flush first unless an error is already on its way."""
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def _launch(self, flight: Flight) -> None:
        """Launch every forward and backward; afterwards the caller's lane has joined all lanes."""
        plan, schedule = self._plan, self.schedule
        start = self._caller.mark() if self._side else None
        marks: dict[str, Any] = {}
        pending: list[Any] = []
        random = None if self._proved else random_state(self._device)
        for item in plan.blocks:
            lane = self._lane(item.lane)
            after = [marks[name] for name in item.waits]
            if item.roots:
                after.append(start)
            _, marks[item.name] = lane.run(lambda item=item: flight.forward(item), after)  # type: ignore[misc]
            if not self._side:
                flight.release(item)
            if item.completes is not None:
                pending.append(self._launch_early(flight, item, lane))
                if random is not None:
                    self._join(pending)  # what is to be proved must not be disturbed meanwhile
                    pending.clear()
        if random is not None:
            flight.prove_random(random, random_state(self._device))
        self._caller.launch(lambda: flight.backward(plan.last))
        self._join(pending)
        if schedule.update == "early":
            for segment in plan.last:
                flight.update(segment)

    def _join(self, pending: list[Any]) -> None:
        """Make the caller's lane wait for early backwards; raise what they raised."""
        if self.schedule.dispatch == "threaded":
            pending = [future.result() for future in pending]
        self._caller.wait(pending)

    def _launch_early(self, flight: Flight, item: BlockPlan, lane: Lane) -> Any:
        segment = item.completes
        assert segment is not None  # for the type checker: the caller has looked

        def work() -> None:
            flight.backward((segment,))
            if self.schedule.update == "early":
                flight.update(segment)

        if self.schedule.dispatch == "blocking":
            return lane.launch(work)
        if lane is self._caller:  # its stream is the one that is current in this thread alone
            launched: Future[Any] = Future()
            launched.set_result(lane.launch(work))
            return launched
        return self._dispatch.submit(lane.launch, work)

    def _flight(self) -> Flight:
        return Flight(self.graph, self._updates, self._steps, self._cast, prove=not self._proved)

    def _lane(self, index: int) -> Lane:
        return self._side[index - 1] if index else self._caller

    def _abandon(self, flight: Flight) -> None:
        """Wait for everything that the failed step has started, and forget its gradients."""
        try:
            self.close()
        except KeyboardInterrupt:  # a second one while the first is being honoured: wait on
            self.close()
        finally:
            with suppress(RuntimeError):  # a device that has failed has nothing left to wait for
                self._caller.wait([lane.mark() for lane in self._side])
            self._updates.drop_gradients()
            if flight.updated and self._steps == flight.step:
                self._torn = (
                    f"step {self._steps} failed after {', '.join(flight.updated)} had been updated,"
                    " so the parameters belong to no one step: load_state_dict an earlier state "
                    "first"
                )


def _device_of(graph: BlockGraph) -> torch.device:
    devices = {tensor.device for tensor in (*graph.parameters(), *graph.buffers())}
    if len(devices) > 1:
        raise ScheduleError(
            f"the graph lies on {', '.join(sorted(map(str, devices)))}: move it to one device"
        )
    return devices.pop() if devices else torch.device("cpu")
