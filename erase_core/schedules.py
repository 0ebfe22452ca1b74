"""Schedules: what runs when and where. The named recipes form a ladder of arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from .errors import ScheduleError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """An immutable description of one training step's order and placement.

    Attributes:
        name: how rows, figures and errors call it.
        gradients: "exact" ignores the graph's cuts and back-propagates end to end; "local" stops
            gradients at every cut.
        auxiliary: whether the blocks' local objectives count beside the main loss. Local gradients
            need them.
        backward: "end" calls autograd once, after every forward; "early" calls it for a segment as
            soon as the segment's last forward has been launched (the remainder's comes last).
        streams: "one" keeps everything on the caller's stream; "per-segment" gives each segment but
            the remainder a lane of its own; an integer n gives the first n of them one, and leaves
            the others on the caller's stream.
        dispatch: who launches an early backward: "blocking", the calling thread, which stalls while
            autograd enqueues it; "threaded", a ThreadPoolExecutor.
        update: "end" updates all parameters after the last backward; "early" updates a segment's
            parameters on its own lane right after its backward.

    Raises:
        ScheduleError: for an unknown value or a contradictory combination.
    """

    name: str
    gradients: Literal["exact", "local"]
    auxiliary: bool = True
    backward: Literal["end", "early"] = "end"
    streams: Literal["one", "per-segment"] | int = "one"
    dispatch: Literal["blocking", "threaded"] = "blocking"
    update: Literal["end", "early"] = "end"

    def __post_init__(self) -> None:
        """Reject what could not be honoured."""
        _one_of("gradients", self.gradients, ("exact", "local"))
        _one_of("backward", self.backward, ("end", "early"))
        _one_of("dispatch", self.dispatch, ("blocking", "threaded"))
        _one_of("update", self.update, ("end", "early"))
        if isinstance(self.streams, bool) or not isinstance(self.streams, int):
            _one_of("streams", self.streams, ("one", "per-segment"))
        elif self.streams < 1:
            raise ScheduleError(
                f'`streams` (={self.streams}) must be at least 1; for no extra stream use "one"'
            )
        if self.gradients == "exact" and self.backward == "early":
            raise ScheduleError(
                "exact gradients need the whole forward before any backward: use "
                'backward="end", or gradients="local"'
            )
        if self.gradients == "local" and not self.auxiliary:
            raise ScheduleError(
                "local gradients train blocks by their local objectives alone: auxiliary=False "
                "would leave them untrained"
            )
        if self.backward == "end" and (self.streams != "one" or self.update == "early"):
            raise ScheduleError(
                'streams and early updates have nothing to run beside when backward="end": use '
                'backward="early", or streams="one" with update="end"'
            )
        if self.dispatch == "threaded" and self.streams == "one":
            raise ScheduleError(
                'dispatch="threaded" needs lanes to launch on: use streams="per-segment" or a '
                "number of streams"
            )

    @property
    def multi_lane(self) -> bool:
        """Whether any segment may run beside the caller's stream."""
        return self.streams != "one"


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ScheduleError(f"`{name}` (={value!r}) must be one of {', '.join(allowed)}")


def _ladder(*arms: Schedule) -> Mapping[str, Schedule]:
    return MappingProxyType({arm.name: arm for arm in arms})


LADDER: Mapping[str, Schedule] = _ladder(
    Schedule(name="baseline", gradients="exact", auxiliary=False),
    Schedule(name="auxiliary", gradients="exact"),
    Schedule(name="detached", gradients="local"),
    Schedule(name="early", gradients="local", backward="early"),
    Schedule(name="erase-blocking", gradients="local", backward="early", streams="per-segment"),
    Schedule(
        name="erase-threaded",
        gradients="local",
        backward="early",
        streams="per-segment",
        dispatch="threaded",
    ),
)
"""The arms by name, each one step away from the one before it, so that every effect is seen alone:
the cost of local heads (`auxiliary`), of cutting (`detached`, the oracle for every local arm), of
order (`early`), of streams (`erase-blocking`) and of who launches (`erase-threaded`)."""


def schedule(name: str) -> Schedule:
    """Return the arm of the ladder called `name`.

    Raises:
        ScheduleError: if there is no such arm; the message lists those there are.
    """
    if name not in LADDER:
        raise ScheduleError(f"there is no schedule {name!r}: choose one of {', '.join(LADDER)}")
    return LADDER[name]
