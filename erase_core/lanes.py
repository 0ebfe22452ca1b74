"""Lanes: where a block's work goes.

A lane runs work in the order in which it is given, beside the work of other lanes. On a GPU it is a
CUDA stream and a *mark* is a CUDA event; on a CPU it is a worker thread and a mark is a future. The
callers see one interface, so every schedule can be tested without a GPU.

Keep-alive is the caller's duty: memory that a lane reads must stay referenced until the caller's
own lane has waited for that lane's last mark. Then PyTorch's caching allocator cannot hand it out
again too early, whichever stream it was allocated on, and no `record_stream` is needed.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from .errors import ScheduleError

T = TypeVar("T")
Mark = Any  # torch.cuda.Event, Future, or None for work that has finished


class Lane(ABC):
    """Where work goes; see the module's text."""

    @abstractmethod
    def run(self, work: Callable[[], T], after: Iterable[Mark] = ()) -> tuple[T, Mark]:
        """Run `work` on this lane after the marks; return its result at once, and its mark.

        The calling thread executes `work`, so random numbers are drawn in the caller's order.
        """

    @abstractmethod
    def launch(self, work: Callable[[], object], after: Iterable[Mark] = ()) -> Mark:
        """Start `work` on this lane after the marks; return a mark of its end."""

    @abstractmethod
    def wait(self, marks: Iterable[Mark]) -> None:
        """Make later work of this lane follow the marks."""

    @abstractmethod
    def mark(self) -> Mark:
        """Return a mark of all that this lane has been given so far."""

    def close(self) -> None:  # noqa: B027 - streams own nothing that must be released
        """Finish the lane's work and release its thread, if any; it may be used again."""


class Workers:
    """Threads that start with the first work and end with `close`, or when nothing holds this.

    A copy, a pickle and a forked child get threads of their own, since threads cannot follow.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._ending = False

    def __reduce__(self) -> tuple[type[Workers], tuple[int, str]]:
        """Leave the threads behind."""
        return Workers, (self._count, self._name)

    def submit(self, work: Callable[..., object], *arguments: object) -> Future[Any]:
        """Queue `work` for whichever thread is free."""
        if self._pool is None or self._ending or self._process != os.getpid():
            self._ending = False
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
            self._process = os.getpid()
        return self._pool.submit(work, *arguments)

    def close(self, cancel: bool = False) -> None:
        """Let queued work end, or drop it with `cancel`; then end the threads."""
        if self._pool is not None:
            self._ending = True  # an interrupt may end the wait below
            if self._process == os.getpid():
                self._pool.shutdown(wait=True, cancel_futures=cancel)
            self._pool = None


class HostLane(Lane):
    """The calling thread (`worker=False`), or a worker thread of this lane's own.

    The thread starts with the first launch and ends with `close`.
    """

    def __init__(self, worker: bool = False) -> None:
        self._workers = Workers(1, "erase-lane") if worker else None

    def run(self, work: Callable[[], T], after: Iterable[Mark] = ()) -> tuple[T, Mark]:
        """Wait for the marks and run `work` in the calling thread."""
        self.wait(after)
        return work(), None

    def launch(self, work: Callable[[], object], after: Iterable[Mark] = ()) -> Mark:
        """Queue `work` on the worker thread, or run it here if there is none."""
        marks = list(after)
        if self._workers is None:
            self.wait(marks)
            work()
            return None

        def follow() -> None:
            self.wait(marks)
            work()

        return self._workers.submit(follow)

    def wait(self, marks: Iterable[Mark]) -> None:
        """Block the calling thread until the marks are reached; raise what their work raised."""
        for mark in marks:
            if isinstance(mark, Future):
                mark.result()

    def mark(self) -> Mark:
        """Return the mark of finished work: callers of a host lane see its effects at once."""
        return None

    def close(self) -> None:
        """Let queued work end, then end the thread."""
        if self._workers is not None:
            self._workers.close()


class StreamLane(Lane):
    """A CUDA stream; with `stream=None`, whatever stream is current when work arrives."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream | None = None) -> None:
        self._device = device
        self._stream = stream

    def run(self, work: Callable[[], T], after: Iterable[Mark] = ()) -> tuple[T, Mark]:
        """Enqueue `work` behind the marks, with this lane's stream current.

        Autograd runs a backward operation on the stream of its forward, so a block's forward and
        its backward both have to be run through the same lane.
        """
        stream = self._current()
        with torch.cuda.stream(stream):
            for mark in after:
                stream.wait_event(mark)
            result = work()
            return result, stream.record_event()

    def launch(self, work: Callable[[], object], after: Iterable[Mark] = ()) -> Mark:
        """Enqueue `work`; the calling thread stalls while it does so, the device does not."""
        return self.run(work, after)[1]

    def wait(self, marks: Iterable[Mark]) -> None:
        """Make the stream wait for the marks; the host goes on."""
        stream = self._current()
        for mark in marks:
            stream.wait_event(mark)

    def mark(self) -> Mark:
        """Record an event on the stream."""
        return self._current().record_event()

    def _current(self) -> torch.cuda.Stream:
        return self._stream or torch.cuda.current_stream(self._device)


def lanes(device: torch.device, count: int) -> tuple[Lane, list[Lane]]:
    """Return the caller's lane and `count` lanes beside it, for the kind of `device`.

    Raises:
        ScheduleError: if the device has neither CUDA streams nor host threads to offer.
    """
    if count == 0:
        return HostLane(), []
    if device.type == "cuda":
        return StreamLane(device), [
            StreamLane(device, torch.cuda.Stream(device)) for _ in range(count)
        ]
    if device.type == "cpu":
        return HostLane(), [HostLane(worker=True) for _ in range(count)]
    raise ScheduleError(
        f"there are no lanes for devices of type {device.type!r}: use a schedule with "
        'streams="one", such as "early"'
    )
