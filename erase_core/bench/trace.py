"""Profile some training steps of one arm on a GPU, keep the trace, and say what overlaps in it.

    python -m erase_core.bench.trace --model proxy --arm erase-blocking --batch-size 8192 --out DIR

writes DIR/<model>-<arm>-<batch size>.json.gz, which opens in https://ui.perfetto.dev, and a summary
of the same name ending in `.summary.json`.
"""

import argparse
import dataclasses
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig  # what torch.profiler documents for this option
from torch.profiler import ProfilerActivity, profile

from erase_core import LADDER, schedule
from erase_core.bench.environment import commit_label, describe_device
from erase_core.bench.parameters import ParameterError, from_parameters
from erase_core.bench.records import write_atomically
from erase_core.bench.throughput import (
    ThroughputConfig,
    make_batches,
    make_engine,
    make_graph,
    resolve_device,
)
from erase_core.bench.timeline import Kernel, TraceError, occupancy, overlaps, read_trace
from erase_core.ctr.models import MODELS


def profiler(all_threads: bool) -> profile:
    """Return a profiler of host and, where there is one, device.

    By default it sees ranges opened by the thread that starts it, and by autograd's threads; with
    `all_threads` those of every thread, which a schedule with threaded dispatch needs.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    options = _ExperimentalConfig(profile_all_threads=all_threads)
    # Without acc_events, torch 2.11 warns that it forgets earlier cycles, of which there are none.
    return profile(activities=activities, experimental_config=options, acc_events=True)


def record_trace(
    step: Callable[[], object],
    path: str | os.PathLike[str],
    *,
    steps: int = 3,
    warmup: int = 10,
    all_threads: bool = False,
) -> list[Kernel]:
    """Profile `steps` calls of `step` on the current CUDA device and return their device work.

    Args:
        step: performs one training step.
        path: of the gzipped Chrome trace to write.
        steps: profiled calls.
        warmup: calls before them, outside of the profile.
        all_threads: see `profiler`.

    Raises:
        TraceError: there is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise TraceError("a trace of device work needs a CUDA device; there is none here")
    for _ in range(warmup):
        step()
    torch.cuda.synchronize()
    with profiler(all_threads) as profiled:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.with_name(f".{path.name}.json")
    try:
        profiled.export_chrome_trace(str(plain))
        write_atomically(path, gzip.compress(plain.read_bytes(), mtime=0))
    finally:
        plain.unlink(missing_ok=True)
    return read_trace(path)


def summary(kernels: list[Kernel], steps: int, longest: int = 5) -> dict[str, object]:
    """Return occupancy, kernels a step, and the overlaps of backward with forward kernels."""
    pairs = overlaps(kernels)
    return {
        "steps": steps,
        "kernels_per_step": sum(kernel.kind == "kernel" for kernel in kernels) / steps,
        "unlabelled_kernels": sum(kernel.label is None for kernel in kernels),
        "occupancy": dataclasses.asdict(occupancy(kernels)),
        "overlaps": len(pairs),
        "longest_overlaps": [dataclasses.asdict(pair) for pair in pairs[:longest]],
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m erase_core.bench.trace", description=__doc__)
    parser.add_argument("--model", default="proxy", choices=sorted(MODELS))
    parser.add_argument("--option", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--arm", default="erase-blocking", choices=list(LADDER))
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=3, help="profiled steps")
    parser.add_argument("--out", type=Path, required=True, help="directory for trace and summary")
    given = parser.parse_args(arguments)
    try:
        config = from_parameters(
            ThroughputConfig,
            {
                "model": given.model,
                "model_options": dict(_option(text) for text in given.option),
                "arms": [given.arm],
                "batch_size": given.batch_size,
                "precision": given.precision,
            },
        )
    except ParameterError as error:
        parser.error(str(error))
    name = f"{given.model}-{given.arm}-{given.batch_size}"
    try:
        report = trace_arm(config, given.out / f"{name}.json.gz", steps=given.steps)
    except TraceError as error:
        parser.error(str(error))
    text = json.dumps(report, indent=2)
    write_atomically(given.out / f"{name}.summary.json", (text + "\n").encode())
    print(text)


def trace_arm(
    config: ThroughputConfig, path: str | os.PathLike[str], *, steps: int = 3
) -> dict[str, object]:
    """Trace the first arm of a throughput configuration; return its summary and provenance.

    Raises:
        TraceError: the configuration's device is no CUDA device.
    """
    device = resolve_device(config.device)
    if device.type != "cuda":
        raise TraceError(f"a trace of device work needs a CUDA device, not {device}")
    batches = make_batches(config, device)
    threaded = schedule(config.arms[0]).dispatch == "threaded"
    with (
        torch.cuda.device(device),
        make_engine(config, config.arms[0], make_graph(config), device) as engine,
    ):
        kernels = record_trace(
            lambda: engine.step(batches[0]), path, steps=steps, all_threads=threaded
        )
    return {
        "trace": Path(path).name,
        "parameters": dataclasses.asdict(config),
        "commit": commit_label(),
        "torch": str(torch.__version__),
        "device": describe_device(device),
        **summary(kernels, steps),
    }


def _option(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise ParameterError(f"--option {text!r} must be NAME=JSON, such as width=256") from None


if __name__ == "__main__":
    main()
