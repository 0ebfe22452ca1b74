"""Time several arms of one experiment side by side in one process.

Arms measured one after the other drift apart with clocks, temperature and neighbours. Here every
window times each arm once, so that a slow second hits all of them, and the ratio of two arms can be
paired window by window (see `erase_core.bench.statistics`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from erase_core.bench.parameters import require


@dataclass(frozen=True)
class Sample:
    """One arm's time in one window.

    Attributes:
        arm: its name.
        window: zero-based; samples of the same window were taken next to each other.
        step_time_us: time of the window divided by its steps, in microseconds.
    """

    arm: str
    window: int
    step_time_us: float


def compare(
    arms: Mapping[str, Callable[[], object]],
    *,
    device: torch.device | str,
    windows: int = 20,
    steps: int = 10,
    warmup: int = 10,
    finish: Mapping[str, Callable[[], object]] | None = None,
    on_window: Callable[[int], object] | None = None,
) -> list[Sample]:
    """Time `steps` calls of every arm in each of `windows` windows.

    Every arm is first called `warmup` times. Window w then times the arms in turn, beginning with
    arm w mod n: A B C, B C A, C A B, …, so that no arm always runs in the wake of the same one.

    Inside a window are: `steps` calls, the arm's `finish` if it has one, and one synchronization of
    the whole device, which joins the work of all streams whoever created them. Outside: everything
    else, garbage collection included. On CUDA the interval is read from two events, of which the
    second is recorded after the join; elsewhere from `time.perf_counter`. The join costs some ten
    microseconds a window, so choose `steps` such that a window lasts several milliseconds.

    Args:
        arms: name to a callable without arguments that performs one step.
        device: where the arms put their work.
        windows: samples an arm, at least 1.
        steps: calls in a window, at least 1.
        warmup: calls before the first window, of each arm.
        finish: name of an arm to what completes its steps (such as `Engine.flush`).
        on_window: called with the number of finished windows after each, for a progress bar.

    Returns:
        `windows * len(arms)` samples in the order in which they were taken.

    Raises:
        ParameterError: there is no arm, or a count is too small.
        Exception: whatever an arm raises; nothing is caught.
    """
    require(len(arms) > 0, "arms", dict(arms), "must have at least one entry.")
    for name, value, least in (
        ("windows", windows, 1),
        ("steps", steps, 1),
        ("warmup", warmup, 0),
    ):
        require(value >= least, name, value, f"must be at least {least}.")
    finish = finish or {}
    unknown = set(finish) - set(arms)
    require(not unknown, "finish", sorted(unknown), "must name only arms.")

    device = torch.device(device)
    time_window = _time_on_cuda if device.type == "cuda" else _time_on_host
    for name, step in arms.items():
        time_window(step, warmup, finish.get(name, _nothing), device)

    samples = []
    names = list(arms)
    for window in range(windows):
        first = window % len(names)
        for name in names[first:] + names[:first]:
            total_us = time_window(arms[name], steps, finish.get(name, _nothing), device)
            samples.append(Sample(name, window, total_us / steps))
        if on_window is not None:
            on_window(window + 1)
    return samples


def _nothing() -> None:
    """Finish an arm whose steps leave nothing in flight."""


def _time_on_cuda(
    step: Callable[[], object], steps: int, finish: Callable[[], object], device: torch.device
) -> float:
    with torch.cuda.device(device):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(steps):
            step()
        finish()
        # An event on the current stream would miss side streams that were never joined to it.
        torch.cuda.synchronize()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3


def _time_on_host(
    step: Callable[[], object], steps: int, finish: Callable[[], object], device: torch.device
) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    finish()
    return (time.perf_counter() - start) * 1e6
