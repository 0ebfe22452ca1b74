import gzip
import json

import pytest

from erase_core.bench.timeline import (
    Kernel,
    TraceError,
    kernels_of,
    occupancy,
    overlaps,
    read_trace,
)

MAIN, AUTOGRAD, WORKER, SECOND_WORKER = 1, 2, 3, 4


def span(name, start, end, thread):
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": start,
        "dur": end - start,
    }


class Launches:
    """Hand-made events: a launch on a host thread and its kernel on a stream."""

    def __init__(self):
        self.events = []

    def add(self, name, launched, thread, stream, start, end, category="kernel"):
        number = len(self.events)
        self.events += [
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 9,
                "tid": thread,
                "ts": launched,
                "dur": 1,
                "args": {"correlation": number},
            },
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 0,
                "tid": stream,
                "ts": start,
                "dur": end - start,
                "args": {"correlation": number, "stream": stream},
            },
        ]


@pytest.fixture
def blocking():
    """backward:block0, launched by autograd's thread, beside forward:block1 on another stream."""
    launches = Launches()
    launches.add("f0", 5, MAIN, 7, 20, 40)
    launches.add("b0", 15, AUTOGRAD, 7, 40, 80)
    launches.add("f1", 25, MAIN, 8, 50, 60)
    launches.add("other", 45, MAIN, 8, 90, 100)
    return [
        span("forward:block0", 0, 10, MAIN),
        span("backward:block0", 12, 20, MAIN),
        span("forward:block1", 22, 30, MAIN),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 5},
        *launches.events,
    ]


def test_launches_are_traced_to_their_ranges(blocking):
    labels = {kernel.name: kernel.label for kernel in kernels_of(blocking)}
    assert labels == {
        "f0": "forward:block0",
        "b0": "backward:block0",
        "f1": "forward:block1",
        "other": None,
    }


def test_overlap_of_backward_and_the_next_forward_is_found(blocking):
    (overlap,) = overlaps(kernels_of(blocking))
    assert (overlap.backward.name, overlap.forward.name) == ("b0", "f1")
    assert overlap.duration_us == 10
    assert overlaps(kernels_of(blocking), least_us=10) == []


def kernel(name, stream, start, end, label):
    return Kernel(start, end, stream, name, label)


@pytest.mark.parametrize(
    "forward",
    [
        kernel("same stream", 7, 50, 60, "forward:block1"),
        kernel("same block", 8, 50, 60, "forward:block0"),
        kernel("after", 8, 80, 90, "forward:block1"),
        kernel("before", 8, 10, 40, "forward:block1"),
    ],
)
def test_what_is_no_overlap(forward):
    backward = kernel("b0", 7, 40, 80, "backward:block0")
    assert overlaps([forward, backward]) == []


def test_a_long_forward_that_began_much_earlier_is_found_among_short_ones():
    long = kernel("long", 8, 0, 100, "forward:block3")
    short = [kernel(f"s{i}", 9, i, i + 1, "forward:block2") for i in range(50)]
    backward = kernel("b", 7, 90, 95, "backward:block0..block1")
    (overlap,) = overlaps([long, *short, backward])
    assert (overlap.forward, overlap.duration_us) == (long, 5)


def test_with_two_dispatching_threads_the_stream_decides():
    launches = Launches()
    launches.add("f0", 5, MAIN, 7, 20, 30)
    launches.add("f1", 15, MAIN, 8, 30, 40)
    launches.add("b0", 25, AUTOGRAD, 7, 40, 50)
    launches.add("b1", 26, AUTOGRAD, 8, 40, 50)
    launches.add("stray", 27, AUTOGRAD, 11, 40, 50)
    launches.add("own", 28, WORKER, 11, 50, 51)
    events = [
        span("forward:block0", 0, 10, MAIN),
        span("forward:block1", 12, 18, MAIN),
        span("backward:block0", 20, 40, WORKER),
        span("backward:block1", 21, 41, SECOND_WORKER),
        *launches.events,
    ]
    labels = {k.name: k.label for k in kernels_of(events)}
    assert labels["b0"] == "backward:block0"
    assert labels["b1"] == "backward:block1"
    assert labels["stray"] is None
    assert labels["own"] == "backward:block0"


def test_occupancy_of_a_known_schedule():
    found = occupancy(
        [
            kernel("a", 7, 0, 10, None),
            kernel("b", 8, 5, 15, None),
            kernel("c", 7, 15, 20, None),  # begins when b ends: no concurrency
            kernel("d", 7, 30, 40, None),
            Kernel(30, 35, 9, "copy", None, "gpu_memcpy"),
        ]
    )
    assert found.kernels == 4
    assert found.streams == 3
    assert found.span_us == 40
    assert found.busy_us == 30
    assert found.idle_share == pytest.approx(0.25)
    assert found.concurrent_share == pytest.approx(10 / 30)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_files_plain_and_compressed(tmp_path, blocking, suffix):
    path = tmp_path / f"trace{suffix}"
    content = json.dumps({"traceEvents": blocking}).encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert read_trace(path) == kernels_of(blocking)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\x1f\x8b\x08broken"])
def test_what_is_no_trace_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"broken\.json"):
        read_trace(path)


def test_a_trace_of_a_cpu_has_no_occupancy():
    with pytest.raises(TraceError, match="CUDA"):
        occupancy(kernels_of([span("forward:block0", 0, 1, MAIN)]))
