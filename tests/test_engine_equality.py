"""Every schedule trains what a plain loop trains, bit for bit."""

import threading
from collections import defaultdict, namedtuple
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy import WIDTH, Mix, batches, chain, head, plain_loop, same_state, towers

from erase_core import LADDER, Block, BlockGraph, Engine, Schedule

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
}
VARIANTS = {
    "early-update": replace(LADDER["early"], name="early-update", update="early"),
    "blocking-update": replace(LADDER["erase-blocking"], name="blocking-update", update="early"),
    "threaded-update": replace(LADDER["erase-threaded"], name="threaded-update", update="early"),
    "two-streams": replace(LADDER["erase-threaded"], name="two-streams", streams=2),
    "one-stream": replace(LADDER["erase-blocking"], name="one-stream", streams=1),
}
SCHEDULES = {**LADDER, **VARIANTS}


def train(graph: BlockGraph, optimizer, arm: Schedule, data, clip_norm=None) -> None:
    torch.manual_seed(7)
    with Engine(graph, optimizer, arm, clip_norm=clip_norm) as engine:
        for batch in data:
            engine.step(batch)


def agree(graph: BlockGraph, optimizer, arm: Schedule, data, clip_norm=None) -> bool:
    """Train a copy by the engine and a copy by the plain loop, from the same random state."""
    ours, theirs = deepcopy(graph), deepcopy(graph)
    train(ours, optimizer, arm, data, clip_norm)
    torch.manual_seed(7)
    plain_loop(
        theirs,
        optimizer,
        data,
        local=arm.gradients == "local",
        auxiliary=arm.auxiliary,
        clip_norm=clip_norm,
    )
    assert not same_state(ours, graph), "training changed nothing"
    return same_state(ours, theirs)


@pytest.mark.parametrize("arm", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_towers_equal_plain_loop(arm, optimizer):
    assert agree(towers(), optimizer, arm, batches())


@pytest.mark.parametrize("arm", SCHEDULES.values(), ids=SCHEDULES)
def test_chain_with_dropout_and_batch_norm_equals_plain_loop(arm):
    graph = chain(5, cuts=[0, 2], dropout=0.3, norm=True)
    assert agree(graph, OPTIMIZERS["adam"], arm, batches(6))


@pytest.mark.parametrize("arm", LADDER.values(), ids=LADDER)
def test_global_norm_clipping_equals_plain_loop(arm):
    assert agree(towers(), OPTIMIZERS["sgd"], arm, batches(), clip_norm=0.05)


def test_clipping_bites():
    graph = towers()
    free, clipped = deepcopy(graph), deepcopy(graph)
    train(free, OPTIMIZERS["sgd"], LADDER["early"], batches())
    train(clipped, OPTIMIZERS["sgd"], LADDER["early"], batches(), clip_norm=0.05)
    assert not same_state(free, clipped)


def test_exact_and_local_differ():
    """The oracle can tell a cut from no cut, so equality above says something."""
    graph = towers()
    exact, local = deepcopy(graph), deepcopy(graph)
    train(exact, OPTIMIZERS["sgd"], LADDER["auxiliary"], batches())
    train(local, OPTIMIZERS["sgd"], LADDER["detached"], batches())
    assert not same_state(exact, local)


@st.composite
def graphs(draw):
    """Any directed acyclic graph of up to six blocks whose blocks all can be trained."""
    count = draw(st.integers(1, 6))
    names = [f"b{i}" for i in range(count)]
    reads, cuts = {}, []
    for position, name in enumerate(names):
        sources = draw(
            st.lists(st.sampled_from(["x", "w", *names[:position]]), min_size=1, max_size=3)
        )
        reads[name] = sources
    read = {source for sources in reads.values() for source in sources}
    cuts = [name for name in names if name in read and draw(st.booleans())]
    torch.manual_seed(draw(st.integers(0, 99)))
    blocks = {}
    for name in names:
        needed = name in cuts or name not in read
        objective = head() if needed or draw(st.booleans()) else None
        body = Mix(WIDTH * len(reads[name]), draw(st.sampled_from([0.0, 0.5])), draw(st.booleans()))
        blocks[name] = Block(body, objective, draw(st.sampled_from([1.0, 0.3])))
    return BlockGraph(blocks, reads, output=names[-1], target="y", cuts=cuts)


@given(
    graph=graphs(),
    arm=st.sampled_from(list(SCHEDULES.values())),
    optimizer=st.sampled_from(list(OPTIMIZERS)),
    rows=st.integers(2, 9),
    steps=st.integers(1, 4),
    clip=st.sampled_from([None, 0.1]),
)
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_graph_equals_plain_loop(graph, arm, optimizer, rows, steps, clip):
    clip = None if arm.update == "early" else clip
    assert agree(graph, OPTIMIZERS[optimizer], arm, batches(steps, rows), clip)


@pytest.mark.parametrize("arm", [a for a in SCHEDULES.values() if a.gradients == "local"], ids=str)
def test_no_gradient_crosses_a_cut(arm):
    """Scaling one segment's objective changes that segment's parameters and no others'."""
    left, right = towers(), towers()
    right.block("right").weight = 5.0
    train(left, OPTIMIZERS["sgd"], arm, batches(1))
    train(right, OPTIMIZERS["sgd"], arm, batches(1))
    changed = {
        name.split(".")[1]
        for name, value in left.named_parameters()
        if not torch.equal(value, dict(right.named_parameters())[name])
    }
    assert changed == {"right"}


@pytest.mark.parametrize("arm", SCHEDULES.values(), ids=SCHEDULES)
def test_every_parameter_is_updated_once_a_step(arm):
    updates: dict[int, int] = {}

    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    updates[id(p)] = updates.get(id(p), 0) + (p.grad is not None)
            return super().step(closure)

    graph = towers()
    train(graph, lambda p: Counting(p, lr=0.1), arm, batches(3))
    counts = {name: updates[id(p)] for name, p in graph.named_parameters()}
    for name, count in counts.items():
        idle = "unused" in name or (not arm.auxiliary and "objective" in name and "top" not in name)
        assert count == (0 if idle else 3), name


def test_losses_are_those_of_the_forward_and_unweighted():
    graph = towers()
    batch = batches(1)[0]
    graph.eval()
    with Engine(graph, OPTIMIZERS["sgd"], "detached") as engine:
        losses = engine.step(batch)
    graph = towers().eval()
    stem = graph.block("stem")
    expected = stem.objective(stem.body(batch["x"], batch["w"]), batch["y"])
    assert list(losses) == ["stem", "left", "right", "top"]
    assert torch.equal(losses["stem"], expected.detach())
    assert not losses["stem"].requires_grad


def test_frozen_parameters_stay():
    graph = chain(3)
    graph.block("block1").requires_grad_(False)
    before = {k: v.clone() for k, v in graph.block("block1").state_dict().items()}
    train(graph, OPTIMIZERS["adam"], LADDER["erase-threaded"], batches())
    assert all(torch.equal(v, before[k]) for k, v in graph.block("block1").state_dict().items())


class Pair(torch.nn.Module):
    """Returns a tuple and reads one."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.first = first

    def forward(self, value):
        x, skip = (value, value) if self.first else value
        return self.linear(x), skip


class PairHead(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = head()

    def predict(self, activation):
        return self.head.predict(activation[0])

    def forward(self, activation, target):
        return self.head(activation[0], target)


def test_structured_activations_are_cut_and_trained():
    def pairs():
        torch.manual_seed(0)
        return BlockGraph.chain(
            [Block(Pair(i == 0), PairHead()) for i in range(3)], inputs=("x",), target="y"
        )

    reference = pairs()
    train(reference, OPTIMIZERS["adam"], LADDER["detached"], batches())
    for arm in ("early", "erase-blocking", "erase-threaded"):
        graph = pairs()
        train(graph, OPTIMIZERS["adam"], LADDER[arm], batches())
        assert same_state(graph, reference)


class Sums(torch.nn.Module):
    """Its weight is a sum, so that autograd gives both parts one and the same gradient tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.delta = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.base + self.delta)


class SummedHead(torch.nn.Module):
    """Adds the sum of a parameter, whose gradient is one number expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.head = head()
        self.extra = torch.nn.Parameter(torch.randn(3))

    def forward(self, activation, target):
        return self.head(activation, target) + self.extra.sum()


@pytest.mark.parametrize("arm", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_gradients_may_be_written_to_in_place(arm, clip):
    """Clipping does, and so does foreach Nesterov: no two gradients may share memory."""
    clip = None if arm.update == "early" else clip

    def nesterov(parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, foreach=True)

    torch.manual_seed(0)
    blocks = [Block(Sums(), SummedHead()) for _ in range(3)]
    graph = BlockGraph.chain(blocks, inputs=("x",), target="y")
    assert agree(graph, nesterov, arm, batches(), clip)


@dataclass
class Data:
    a: torch.Tensor
    note: str = "kept"


Named = namedtuple("Named", "a nothing")
CONTAINERS = {
    "dataclass": (Data, lambda value: value.a),
    "namedtuple": (lambda a: Named(a, None), lambda value: value.a),
    "defaultdict": (lambda a: defaultdict(list, a=a), lambda value: value["a"]),
    "return-type": (lambda a: torch.stack([a, -a]).max(0), lambda value: value[0]),
}


class Wrapped(torch.nn.Module):
    def __init__(self, wrap, unwrap) -> None:
        super().__init__()
        self.mix = Mix(WIDTH)
        self.wrap, self.unwrap = wrap, unwrap

    def forward(self, value):
        x = value if isinstance(value, torch.Tensor) else self.unwrap(value)
        return self.wrap(self.mix(x))


class WrappedHead(torch.nn.Module):
    def __init__(self, unwrap) -> None:
        super().__init__()
        self.head = head()
        self.unwrap = unwrap

    def forward(self, activation, target):
        return self.head(self.unwrap(activation), target)


@pytest.mark.parametrize("arm", [a for a in SCHEDULES.values() if a.gradients == "local"], ids=str)
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_cut(arm, container):
    wrap, unwrap = CONTAINERS[container]

    def trained(wrapped, arm):
        torch.manual_seed(0)
        heads = [WrappedHead(unwrap if wrapped else torch.Tensor.clone) for _ in range(3)]
        bare = (lambda a: unwrap(wrap(a))) if not wrapped else wrap
        bodies = [Wrapped(bare, unwrap) for _ in range(3)]
        graph = BlockGraph.chain(list(map(Block, bodies, heads)), inputs=("x",), target="y")
        train(graph, OPTIMIZERS["adam"], arm, batches())
        return graph

    assert same_state(trained(True, arm), trained(False, LADDER["detached"]))


class WhoLaunches(Mix):
    """Notes the thread that launches its backward."""

    def forward(self, *inputs):
        activation = super().forward(*inputs)
        activation.register_hook(lambda gradient: self.seen.append(threading.get_ident()))
        return activation


def test_only_lanes_beside_the_callers_are_launched_from_threads():
    """The caller's stream is current in the caller's thread alone."""
    torch.manual_seed(0)
    bodies = [WhoLaunches(WIDTH) for _ in range(3)]
    for body in bodies:
        body.seen = []
    graph = BlockGraph.chain([Block(b, head()) for b in bodies], inputs=("x",), target="y")
    with Engine(graph, OPTIMIZERS["sgd"], VARIANTS["two-streams"]) as engine:
        engine.step(batches()[0])
    one = replace(VARIANTS["two-streams"], streams=1)
    first = [body.seen.pop() for body in bodies]
    with Engine(graph, OPTIMIZERS["sgd"], one) as engine:
        engine.step(batches()[0])
    second = [body.seen.pop() for body in bodies]
    here = threading.get_ident()
    assert [thread == here for thread in first] == [False, False, True]
    assert [thread == here for thread in second] == [False, True, True]
