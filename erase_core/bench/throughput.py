"""The throughput experiment: one model at one batch size, every arm, in one process."""

import copy
import gc
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from erase_core import LADDER, BlockGraph, Engine, schedule
from erase_core.bench.environment import commit_label, device_name
from erase_core.bench.memory import is_out_of_memory, release_memory
from erase_core.bench.parameters import ParameterError, conform_fields, require
from erase_core.bench.records import RunRecord
from erase_core.bench.timing import compare
from erase_core.ctr.models import MODELS, build_model, model_options
from erase_core.ctr.optimizers import optimizers
from erase_core.ctr.synthetic import SyntheticClicks

COLUMNS = (
    "device",
    "torch",
    "commit",
    "dataset",
    "model",
    "blocks",
    "width",
    "precision",
    "batch_size",
    "arm",
    "gradients",
    "window",
    "step_time_us",
    "examples_per_s",
)
DATASETS = ("synthetic-criteo", "synthetic-avazu")
BATCHES = 8
"""Device-resident batches that an arm takes in turn, so that ids differ from step to step."""

Batch = Mapping[str, Tensor]
Row = dict[str, object]


@dataclass(frozen=True)
class ThroughputConfig:
    """Parameters of one cell of the throughput grid.

    Attributes:
        dataset: whose schema and distribution of ids the generated batches have; synthetic.
        model: name of a model of `erase_core.ctr`.
        model_options: keyword arguments of its builder, such as {"width": 256}.
        batch_size: examples a step.
        arms: names of schedules; the first is not special, figures compare with "baseline".
        windows: timed windows of each arm.
        steps: steps in a window.
        warmup: steps of each arm before the first window.
        precision: "bfloat16" runs forwards under autocast; parameters stay float32.
        device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:1".
        seed: of initial parameters and data.
    """

    dataset: str = "synthetic-criteo"
    model: str = "proxy"
    model_options: Mapping[str, object] = field(default_factory=dict)
    batch_size: int = 512
    arms: tuple[str, ...] = tuple(LADDER)
    windows: int = 20
    steps: int = 10
    warmup: int = 10
    precision: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check types, names and ranges before anything is built.

        Raises:
            ParameterError: naming the parameter, its value and the remedy.
        """
        conform_fields(self)
        for name, known in (("dataset", DATASETS), ("model", MODELS)):
            value = getattr(self, name)
            require(value in known, name, value, f"must be one of: {', '.join(known)}.")
        try:
            model_options(self.model, **self.model_options)
        except (ValueError, TypeError) as error:
            raise ParameterError(f"`model_options` (={self.model_options!r}): {error}") from error
        require(len(self.arms) > 0, "arms", self.arms, "must name at least one arm.")
        require(len(set(self.arms)) == len(self.arms), "arms", self.arms, "must not repeat.")
        for arm in self.arms:
            require(arm in LADDER, "arms", arm, f"must be one of: {', '.join(LADDER)}.")
        for name, least in (("batch_size", 1), ("windows", 2), ("steps", 1), ("warmup", 1)):
            value = getattr(self, name)
            require(value >= least, name, value, f"must be at least {least}.")
        require(self.seed >= 0, "seed", self.seed, "must not be negative.")
        resolve_device(self.device)


def resolve_device(name: str) -> torch.device:
    """Return the device that "auto", "cpu", "cuda" or "cuda:N" stands for on this host.

    Raises:
        ParameterError: there is no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    require(device.type in ("cpu", "cuda"), "device", name, 'must be "auto", "cpu" or "cuda[:N]".')
    if device.type == "cuda":
        count = torch.cuda.device_count()
        require((device.index or 0) < count, "device", name, f"is not here: {count} CUDA devices.")
    return device


def measure(
    config: ThroughputConfig,
    record: RunRecord | None = None,
    on_window: Callable[[int], object] | None = None,
) -> list[Row]:
    """Time every arm of the configuration and return rows with the columns `COLUMNS`.

    Each arm has an `Engine` of its own over a graph with the same initial parameters, and takes the
    same batches, which already lie on the device: a row holds forward, backward and update, and no
    data loading. An arm that runs out of memory gives one row with empty `window`, `step_time_us`
    and `examples_per_s`; the others go on.

    Args:
        config: what to measure.
        record: an entered `RunRecord`; each arm's status and peak memory are noted in it, and the
            rows are written to it.
        on_window: called with the number of finished windows, for a progress bar.

    Raises:
        torch.OutOfMemoryError: no arm fits; the record, if any, has the rows that say so.
    """
    device = resolve_device(config.device)
    engines: dict[str, Engine] = {}
    notes: dict[str, dict[str, object]] = {}
    graph = make_graph(config)
    try:
        batches = make_batches(config, device)
        for arm in config.arms:
            try:
                engines[arm], notes[arm] = _start(config, arm, graph, device, batches)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                notes[arm] = {"status": "oom", "error": f"{type(error).__name__}: {error}"}
            # Outside of the handler, where the error no longer holds the failed step's tensors.
            if notes[arm]["status"] == "oom":
                release_memory()
        gc.collect()  # now, rather than inside of some arm's window
        samples = (
            compare(
                {arm: _stepper(engine, batches) for arm, engine in engines.items()},
                device=device,
                windows=config.windows,
                steps=config.steps,
                warmup=config.warmup,
                finish={arm: engine.flush for arm, engine in engines.items()},
                on_window=on_window,
            )
            if engines
            else []
        )
    finally:
        for engine in engines.values():
            engine.close()
    common = _common(config, graph, device)
    rows = [
        _row(common, sample.arm, sample.window, sample.step_time_us, config.batch_size)
        for sample in samples
    ]
    rows += [
        _row(common, arm, None, None, config.batch_size)
        for arm in config.arms
        if arm not in engines
    ]
    if record is not None:
        record.note(arms=notes)
        record.write_rows(rows, COLUMNS)
    if not engines:
        raise torch.OutOfMemoryError(
            f"no arm fits on {device} at batch_size={config.batch_size}: use a smaller batch, "
            "or a smaller model"
        )
    return rows


def make_batches(config: ThroughputConfig, device: torch.device) -> list[Batch]:
    """Return `BATCHES` synthetic batches on the device, the same ones for the same seed."""
    clicks = _clicks(config)
    return [
        clicks.encoded(index * config.batch_size, config.batch_size, device)
        for index in range(BATCHES)
    ]


def make_graph(config: ThroughputConfig) -> BlockGraph:
    """Return the model with the initial parameters of the configuration's seed, on the CPU."""
    schema = _clicks(config).schema
    return build_model(config.model, schema, seed=config.seed, **config.model_options)


def make_engine(
    config: ThroughputConfig, arm: str, graph: BlockGraph, device: torch.device
) -> Engine:
    """Return one arm's engine over a copy of the graph, with the package's usual optimizers."""
    autocast = torch.bfloat16 if config.precision == "bfloat16" else None
    return Engine(copy.deepcopy(graph).to(device), optimizers(), schedule(arm), autocast=autocast)


def _clicks(config: ThroughputConfig) -> SyntheticClicks:
    return SyntheticClicks(config.dataset.removeprefix("synthetic-"), seed=config.seed)


def _start(
    config: ThroughputConfig,
    arm: str,
    graph: BlockGraph,
    device: torch.device,
    batches: list[Batch],
) -> tuple[Engine, dict[str, object]]:
    """Build an arm and take its first steps, which allocate everything a later one needs."""
    before = _reset_peak(device)
    engine = make_engine(config, arm, graph, device)
    try:
        for batch in batches[:2]:
            engine.step(batch)
        engine.flush()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except BaseException:
        engine.close()
        raise
    note: dict[str, object] = {"status": "complete"}
    if before is not None:
        note["peak_memory_bytes"] = torch.cuda.max_memory_allocated(device) - before
    return engine, note


def _reset_peak(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _stepper(engine: Engine, batches: list[Batch]) -> Callable[[], object]:
    endless: Iterator[Batch] = itertools.cycle(batches)
    return lambda: engine.step(next(endless))


def _common(config: ThroughputConfig, graph: BlockGraph, device: torch.device) -> Row:
    return {
        "device": device_name(device),
        "torch": str(torch.__version__),
        "commit": commit_label(),
        "dataset": config.dataset,
        "model": config.model,
        "blocks": len(graph.names),
        "width": model_options(config.model, **config.model_options).width,
        "precision": config.precision,
        "batch_size": config.batch_size,
    }


def _row(
    common: Row, arm: str, window: int | None, step_time_us: float | None, batch_size: int
) -> Row:
    return common | {
        "arm": arm,
        "gradients": schedule(arm).gradients,
        "window": window,
        "step_time_us": step_time_us,
        "examples_per_s": None if step_time_us is None else batch_size * 1e6 / step_time_us,
    }
