"""Read a profiler's trace of training steps: what overlaps, how busy the device is.

The engine names its work with `torch.profiler.record_function`: "forward:<block>" and
"backward:<segment>". A trace in Chrome's format (what torch.profiler exports and Perfetto opens)
holds these ranges on host threads, launches on host threads, and kernels on device streams; a
launch and its kernel share a correlation id. This module joins the three.
"""

import bisect
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FORWARD, BACKWARD = "forward:", "backward:"
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")


class TraceError(ValueError):
    """A file is no trace, or lacks the events that a question needs."""


@dataclass(frozen=True, order=True)
class Kernel:
    """A piece of device work; times in microseconds on the trace's clock.

    Attributes:
        start_us: when it began on the device.
        end_us: when it ended.
        stream: number of its stream as the trace has it.
        name: of the kernel.
        label: the engine's range that launched it, such as "backward:block0"; None outside of any.
        kind: "kernel", "gpu_memcpy" or "gpu_memset".
    """

    start_us: float
    end_us: float
    stream: int
    name: str
    label: str | None
    kind: str = "kernel"


@dataclass(frozen=True)
class Overlap:
    """A backward kernel and a forward kernel of another block that ran at the same time.

    Attributes:
        backward: the kernel of a "backward:<segment>".
        forward: the kernel of a "forward:<block>", on another stream.
        duration_us: for how long both ran.
    """

    backward: Kernel
    forward: Kernel
    duration_us: float


@dataclass(frozen=True)
class Occupancy:
    """How the device spent the time between its first and its last piece of work.

    Attributes:
        kernels: number of kernels, copies and fills not counted.
        streams: number of streams that did any work.
        span_us: from the first start to the last end.
        busy_us: time in which at least one piece of work ran.
        idle_share: 1 − busy_us / span_us.
        concurrent_share: share of busy_us in which at least two pieces ran.
    """

    kernels: int
    streams: int
    span_us: float
    busy_us: float
    idle_share: float
    concurrent_share: float


@dataclass(frozen=True)
class _Range:
    start_us: float
    end_us: float
    thread: object
    label: str


def read_trace(path: str | os.PathLike[str]) -> list[Kernel]:
    """Return the device work of a Chrome trace (`.json` or `.json.gz`), ordered by start.

    Raises:
        TraceError: the file is not such a trace.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        trace = json.loads(content)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(f"{path} is no Chrome trace: {error}") from error
    if not isinstance(trace, dict) or "traceEvents" not in trace:
        raise TraceError(f"{path} has no `traceEvents`: export it with torch.profiler")
    return kernels_of(trace["traceEvents"])


def kernels_of(events: Iterable[Mapping]) -> list[Kernel]:
    """Return the device work among Chrome trace events, each piece with the range it belongs to.

    A launch belongs to the innermost range that encloses it on its own thread. Autograd launches
    backward kernels from a thread of its own while the range is open on the thread that called it:
    such a launch belongs to the backward range that is open at that time. Where several are,
    because several threads dispatch, the kernel's stream decides: autograd runs a backward
    operation on the stream of its forward, so the segment is the one whose blocks' forwards ran on
    that stream. What this leaves ambiguous has no label.
    """
    ranges, launches, work = [], {}, []
    for event in events:
        if event.get("ph") != "X":
            continue
        category, arguments = event.get("cat"), event.get("args", {})
        if category in _DEVICE_WORK:
            work.append(event)
        elif category in _LAUNCHES and "correlation" in arguments:
            launches[arguments["correlation"]] = (_thread(event), float(event["ts"]))
        elif category == "user_annotation" and event["name"].startswith((FORWARD, BACKWARD)):
            start = float(event["ts"])
            end = start + float(event.get("dur", 0))
            ranges.append(_Range(start, end, _thread(event), event["name"]))

    finder = _RangeFinder(ranges)
    candidates = [
        finder.candidates(*launches[correlation])
        if (correlation := event.get("args", {}).get("correlation")) in launches
        else []
        for event in work
    ]
    forwards_on: dict[int, set[str]] = defaultdict(set)
    for event, labels in zip(work, candidates, strict=True):
        if len(labels) == 1 and labels[0].startswith(FORWARD):
            forwards_on[_stream(event)].add(labels[0].removeprefix(FORWARD))

    def label(event: Mapping, labels: list[str]) -> str | None:
        if len(labels) > 1:
            blocks = forwards_on[_stream(event)]
            labels = [label for label in labels if blocks & _segment_ends(label)]
        return labels[0] if len(labels) == 1 else None

    return sorted(
        Kernel(
            start_us=float(event["ts"]),
            end_us=float(event["ts"]) + float(event.get("dur", 0)),
            stream=_stream(event),
            name=str(event["name"]),
            label=label(event, labels),
            kind=str(event["cat"]),
        )
        for event, labels in zip(work, candidates, strict=True)
    )


def overlaps(kernels: Sequence[Kernel], least_us: float = 0.0) -> list[Overlap]:
    """Return pairs of a backward kernel beside a forward kernel of another block, longest first.

    Both run at the same time for more than `least_us` and on different streams. This is what early
    backward on streams is for: backward of block b beside forward of block b + 1.
    """
    forward = sorted(k for k in kernels if (k.label or "").startswith(FORWARD))
    backward = [k for k in kernels if (k.label or "").startswith(BACKWARD)]
    starts = [kernel.start_us for kernel in forward]
    longest = max((kernel.end_us - kernel.start_us for kernel in forward), default=0.0)
    found = []
    for b in backward:
        first = bisect.bisect_left(starts, b.start_us - longest)
        for f in forward[first : bisect.bisect_left(starts, b.end_us)]:
            duration = min(b.end_us, f.end_us) - max(b.start_us, f.start_us)
            block = (f.label or "").removeprefix(FORWARD)
            if duration > least_us and b.stream != f.stream and block not in _segment_ends(b.label):
                found.append(Overlap(b, f, duration))
    return sorted(found, key=lambda overlap: (-overlap.duration_us, overlap.backward))


def occupancy(kernels: Sequence[Kernel]) -> Occupancy:
    """Return how busy the device was while the trace ran.

    Raises:
        TraceError: there is no device work: the trace was taken on a CPU.
    """
    if not kernels:
        raise TraceError("the trace has no device work: profile on a CUDA device")
    # At equal times an end sorts before a start: back-to-back kernels do not overlap.
    edges = sorted(
        edge for kernel in kernels for edge in ((kernel.start_us, 1), (kernel.end_us, -1))
    )
    busy = concurrent = 0.0
    running, before = 0, edges[0][0]
    for time, change in edges:
        busy += (time - before) * (running >= 1)
        concurrent += (time - before) * (running >= 2)
        running, before = running + change, time
    span = edges[-1][0] - edges[0][0]
    return Occupancy(
        kernels=sum(kernel.kind == "kernel" for kernel in kernels),
        streams=len({kernel.stream for kernel in kernels}),
        span_us=span,
        busy_us=busy,
        idle_share=1 - busy / span if span else 0.0,
        concurrent_share=concurrent / busy if busy else 0.0,
    )


class _RangeFinder:
    """Find the ranges that a launch may belong to."""

    def __init__(self, ranges: Sequence[_Range]) -> None:
        self._ranges = sorted(ranges, key=lambda r: r.start_us)
        self._starts = [r.start_us for r in self._ranges]
        self._longest = max((r.end_us - r.start_us for r in ranges), default=0.0)

    def candidates(self, thread: object, time_us: float) -> list[str]:
        """Return one label, several for the kernel's stream to choose from, or none."""
        first = bisect.bisect_left(self._starts, time_us - self._longest)
        last = bisect.bisect_right(self._starts, time_us)
        # Ordered by start, so the innermost of nested ranges comes last.
        open_now = [r for r in self._ranges[first:last] if r.end_us >= time_us]
        own = [r.label for r in open_now if r.thread == thread]
        if own:
            return own[-1:]
        return [r.label for r in open_now if r.label.startswith(BACKWARD)]


def _segment_ends(label: str | None) -> set[str]:
    """Return the first and last block of "backward:first..last", or the one of "backward:block"."""
    return set((label or "").removeprefix(BACKWARD).split(".."))


def _thread(event: Mapping) -> object:
    return event.get("pid"), event.get("tid")


def _stream(event: Mapping) -> int:
    return int(event.get("args", {}).get("stream", event.get("tid", 0)))
