"""The engine on CUDA streams: the invariants of the CPU tests, and no host sync."""

import warnings
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from toy import batches, plain_loop, same_state, towers

from erase_core import LADDER, Block, BlockGraph, Engine, LocalHead

pytestmark = pytest.mark.gpu

VARIANTS = [
    *LADDER.values(),
    replace(LADDER["erase-blocking"], name="blocking-update", update="early"),
    replace(LADDER["erase-threaded"], name="threaded-update", update="early"),
    replace(LADDER["erase-threaded"], name="two-streams", streams=2),
]


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.layers(x))


def deep(depth: int = 8, width: int = 256) -> BlockGraph:
    torch.manual_seed(0)
    blocks = [
        Block(Residual(width), LocalHead(width, F.binary_cross_entropy_with_logits))
        for _ in range(depth)
    ]
    return BlockGraph.chain(blocks, target="y").cuda()


def wide_batches(count: int, rows: int, width: int = 256):
    generator = torch.Generator("cuda").manual_seed(0)
    for index in range(count):
        size = rows if index < count - 1 else rows // 3
        x = torch.randn(size, width, generator=generator, device="cuda")
        yield {"input": x, "y": (x[:, 0] > 0).float()}


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=False)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("arm", VARIANTS, ids=lambda arm: arm.name)
@pytest.mark.parametrize("rows", [48, 4096])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_local_and_exact_arms_equal_their_oracle(arm, rows, autocast):
    oracle = "detached" if arm.gradients == "local" else arm

    def run(schedule):
        graph = deep()
        torch.cuda.manual_seed(1)
        with Engine(graph, adam, schedule, autocast=autocast) as engine:
            for batch in wide_batches(12, rows):
                engine.step(batch)
        torch.cuda.synchronize()
        return graph

    assert same_state(run(arm), run(oracle))


@pytest.mark.parametrize("arm", VARIANTS, ids=lambda arm: arm.name)
def test_towers_equal_plain_loop(arm):
    graph = towers().cuda()
    theirs = deepcopy(graph)
    data = batches(8, 64, device="cuda")
    torch.cuda.manual_seed(1)
    with Engine(graph, adam, arm) as engine:
        for batch in data:
            engine.step(batch)
    torch.cuda.manual_seed(1)
    plain_loop(theirs, adam, data, local=arm.gradients == "local", auxiliary=arm.auxiliary)
    torch.cuda.synchronize()
    assert same_state(graph, theirs)


@pytest.mark.parametrize("arm", VARIANTS, ids=lambda arm: arm.name)
def test_a_step_does_not_wait_for_the_device(arm):
    engine = Engine(deep(4), adam, arm)
    data = list(wide_batches(6, 512))
    for batch in data[:3]:
        engine.step(batch)
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in data[3:]:
            engine.step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    engine.flush()
    engine.close()


@pytest.mark.parametrize("arm", VARIANTS, ids=lambda arm: arm.name)
def test_steps_under_a_stream_of_the_callers(arm):
    """Losses and parameters are right on the stream that called, whichever that is."""
    reference = deep(4)
    data = list(wide_batches(6, 1024))
    torch.cuda.manual_seed(1)
    with Engine(reference, adam, arm) as engine:
        expected = [{k: v.clone() for k, v in engine.step(batch).items()} for batch in data]
    graph = deep(4)
    torch.cuda.manual_seed(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()), Engine(graph, adam, arm) as engine:
        found = [{k: v.clone() for k, v in engine.step(batch).items()} for batch in data]
    torch.cuda.synchronize()
    assert same_state(reference, graph)
    for left, right in zip(expected, found, strict=True):
        assert all(torch.equal(left[k], right[k]) for k in left)


@pytest.mark.parametrize("arm", VARIANTS, ids=lambda arm: arm.name)
def test_memory_does_not_grow(arm):
    engine = Engine(deep(4), adam, arm)
    data = list(wide_batches(2, 2048))
    left, peaks = [], []
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        for _ in range(10):
            engine.step(data[0])
        torch.cuda.synchronize()
        left.append(torch.cuda.memory_allocated())
        peaks.append(torch.cuda.max_memory_allocated())
    engine.close()
    assert left[1] == left[2] == left[3]
    if arm.dispatch == "blocking":  # a worker thread frees sooner or later, as it is scheduled
        assert peaks[1] == peaks[2] == peaks[3]


@pytest.mark.parametrize("arm", VARIANTS, ids=lambda arm: arm.name)
def test_out_of_memory_is_named_and_survived(arm):
    graph = deep(3)
    engine = Engine(graph, adam, arm)
    small = next(wide_batches(2, 64))
    engine.step(small)
    _, total = torch.cuda.mem_get_info()
    huge = torch.zeros(1, 256, device="cuda").expand(total // (256 * 4), 256)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory in the forward of block"):
        engine.step({"input": huge, "y": torch.zeros(huge.shape[0], device="cuda")})
    engine.step(small)
    engine.flush()
    engine.close()
