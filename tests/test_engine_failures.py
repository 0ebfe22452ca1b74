"""A failing step leaves no thread, gradient or half-done update, and says where it failed."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from toy import WIDTH, Mix, batches, chain, head, same_state, towers

from erase_core import (
    LADDER,
    Block,
    BlockError,
    BlockGraph,
    Engine,
    EraseError,
    GraphError,
    NonFiniteLossError,
    ScheduleError,
)
from erase_core.lanes import Workers

ARMS = pytest.mark.parametrize("arm", LADDER)
LOCAL = [name for name, arm in LADDER.items() if arm.gradients == "local"]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("erase")]


class Trap(torch.autograd.Function):
    """Identity that raises `error` in forward or backward once it is armed."""

    armed: dict[str, BaseException] = {}

    @staticmethod
    def forward(ctx, x):
        if "forward" in Trap.armed:
            raise Trap.armed["forward"]
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if "backward" in Trap.armed:
            raise Trap.armed["backward"]
        return grad


class Trapped(Mix):
    def forward(self, *inputs):
        return Trap.apply(super().forward(*inputs))


@pytest.fixture
def trap():
    Trap.armed = {}
    yield Trap.armed
    Trap.armed = {}


def trapped_graph():
    torch.manual_seed(0)
    bodies = [Mix(WIDTH), Trapped(WIDTH), Mix(WIDTH)]
    return BlockGraph.chain([Block(b, head()) for b in bodies], inputs=("x",), target="y")


@ARMS
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_exception_names_block_and_step_and_changes_nothing(arm, phase, trap):
    graph = trapped_graph()
    engine = Engine(graph, sgd, arm)
    data = batches()
    engine.step(data[0])
    before = trapped_graph()
    before.load_state_dict(graph.state_dict())
    trap[phase] = ValueError("boom")
    with pytest.raises(BlockError, match="at step 1 failed: boom") as caught:
        engine.step(data[1])
    joint = phase == "backward" and LADDER[arm].backward == "end"
    assert caught.value.block == ("block0..block2" if joint else "block1")
    assert caught.value.step == 1
    assert isinstance(caught.value.__cause__, ValueError)
    assert same_state(graph, before)
    assert all(p.grad is None for p in graph.parameters())
    assert threads() == []
    trap.clear()
    engine.step(data[1])  # and the engine goes on
    assert engine.steps == 2
    engine.close()
    assert threads() == []


@ARMS
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_interrupt_passes_through_with_a_note(arm, phase, trap):
    engine = Engine(trapped_graph(), sgd, arm)
    trap[phase] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        engine.step(batches()[0])
    assert "at step 0" in "".join(caught.value.__notes__)
    assert threads() == []


@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
@ARMS
def test_out_of_memory_keeps_its_type_and_names_the_block(arm, kind, trap):
    engine = Engine(trapped_graph(), sgd, arm)
    trap["forward"] = kind("no room")
    with pytest.raises(kind, match="out of memory in the forward of block 'block1' at step 0"):
        engine.step(batches()[0])
    assert threads() == []


@pytest.mark.parametrize("arm", ["early", "erase-blocking", "erase-threaded"])
def test_a_torn_step_is_refused_until_a_state_is_loaded(arm, trap):
    early = replace(LADDER[arm], update="early")
    engine = Engine(trapped_graph(), sgd, early)
    data = batches()
    engine.step(data[0])
    saved = {k: v.clone() for k, v in engine.graph.state_dict().items()}
    state = engine.state_dict() | {"graph": saved}
    trap["backward"] = ValueError("boom")
    with pytest.raises(BlockError, match="boom"):
        engine.step(data[1])
    trap.clear()
    with pytest.raises(EraseError, match="step 1 failed after block0.* had been updated"):
        engine.step(data[1])
    engine.load_state_dict(state)
    engine.step(data[1])
    engine.close()


@ARMS
def test_a_non_finite_loss_is_named_at_flush(arm):
    graph = towers()
    engine = Engine(graph, sgd, arm)
    data = batches(4)
    data[2]["w"][:] = float("nan")
    for batch in data:
        engine.step(batch)
    with pytest.raises(NonFiniteLossError, match="was not finite at step 2") as caught:
        engine.flush()
    assert caught.value.block == ("stem" if LADDER[arm].auxiliary else "top")
    assert caught.value.step == 2
    engine.flush()  # said once
    engine.close()
    assert threads() == []


def test_a_non_finite_loss_can_be_ignored():
    engine = Engine(towers(), sgd, "early", nonfinite="ignore")
    data = batches(1)
    data[0]["w"][:] = float("inf")
    engine.step(data[0])
    engine.flush()


def test_leaving_the_context_reports_a_non_finite_loss_and_ends_threads():
    data = batches(1)
    data[0]["x"][:] = float("nan")
    with pytest.raises(NonFiniteLossError), Engine(towers(), sgd, "erase-threaded") as engine:
        engine.step(data[0])
    assert threads() == []


class InPlace(Mix):
    def forward(self, *inputs):
        return super().forward(*(x.relu_() for x in inputs))


@pytest.mark.parametrize("arm", LOCAL)
def test_changing_a_cut_input_in_place_is_refused(arm):
    torch.manual_seed(0)
    blocks = [Block(Mix(WIDTH), head()), Block(InPlace(WIDTH), head())]
    engine = Engine(BlockGraph.chain(blocks, inputs=("x",), target="y"), sgd, arm)
    with pytest.raises(BlockError, match="'block1' changed its input 'block0' in place"):
        engine.step(batches()[0])
    assert threads() == []


class Objective(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, activation, target):
        return self.function(activation, target)


@ARMS
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z, y: z, r"returned \(8, 6\), not a scalar"),
        (lambda z, y: 1.0, "returned float, not a scalar"),
        (lambda z, y: z.detach().sum(), "depends on a trainable parameter"),
    ],
)
def test_bad_objectives_are_named(arm, function, message):
    graph = BlockGraph.chain([Block(Mix(WIDTH), Objective(function))], inputs=("x",), target="y")
    with pytest.raises(BlockError, match=message):
        Engine(graph, sgd, arm).step(batches()[0])


def test_a_step_under_no_grad_says_so():
    engine = Engine(chain(2), sgd, "early")
    with torch.no_grad(), pytest.raises(BlockError, match="torch.no_grad"):
        engine.step(batches()[0])


def test_a_bad_batch_is_refused_before_any_work():
    engine = Engine(towers(), sgd, "erase-threaded")
    with pytest.raises(GraphError, match="reads 'w'"):
        engine.step({"x": batches()[0]["x"], "y": batches()[0]["y"]})
    assert engine.steps == 0


def test_a_slow_lane_is_waited_for(trap):
    """The other lanes' work has ended when the error reaches the caller."""
    ended = []

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            time.sleep(0.2)
            ended.append(True)
            return grad

    class SlowBody(Mix):
        def forward(self, *inputs):
            return Slow.apply(super().forward(*inputs))

    torch.manual_seed(0)
    bodies = [SlowBody(WIDTH), Trapped(WIDTH)]
    graph = BlockGraph.chain([Block(b, head()) for b in bodies], inputs=("x",), target="y")
    engine = Engine(graph, sgd, "erase-blocking")
    trap["forward"] = ValueError("boom")
    with pytest.raises(BlockError, match="boom"):
        engine.step(batches()[0])
    assert ended == [True]
    assert threads() == []


def test_sparse_gradients_cannot_be_clipped():
    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(5, WIDTH, sparse=True)

        def forward(self, ids):
            return self.table(ids)

    graph = BlockGraph.chain([Block(Table(), head())], inputs=("ids",), target="y")
    batch = {"ids": torch.tensor([0, 1, 1]), "y": torch.ones(3)}
    engine = Engine(graph, sgd, "early", clip_norm=1.0)
    for _ in range(2):  # nothing was updated, so nothing is torn
        with pytest.raises(BlockError, match="`clip_norm` .=1.0. cannot measure the sparse grad"):
            engine.step(batch)
    Engine(graph, sgd, "early").step(batch)


class Body(torch.nn.Module):
    """A linear layer inside a function of (layer, *inputs)."""

    def __init__(self, function):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.function = function

    def forward(self, *inputs):
        return self.function(self.linear, *inputs)


def pair(first, second, objectives=(None, None)):
    """Two blocks that read the field x, the second one behind a cut after the first."""
    torch.manual_seed(0)
    bodies = [Body(first), Body(second)]
    blocks = {
        name: Block(body, objective or head())
        for name, body, objective in zip("ab", bodies, objectives, strict=True)
    }
    return BlockGraph(blocks, {"a": ["x"], "b": ["a", "x"]}, output="b", target="y", cuts=["a"])


@pytest.mark.parametrize("arm", LOCAL)
def test_an_activation_that_cannot_be_cut_is_refused(arm):
    graph = pair(
        lambda linear, x: SimpleNamespace(z=linear(x)),
        lambda linear, a, x: linear(a.z),
        (Objective(lambda a, y: a.z.square().mean()), None),
    )
    with pytest.raises(
        BlockError,
        match="segment 'b' depends on 'blocks.a.body.linear.weight'|"
        "segment 'b' depends on 'blocks.a.body.linear.bias'",
    ):
        Engine(graph, sgd, arm).step(batches()[0])
    assert threads() == []


@pytest.mark.parametrize("arm", LOCAL)
def test_an_objective_that_borrows_another_blocks_module_is_refused(arm):
    graph = chain(2)
    borrowed = graph.block("block0").objective
    own = graph.block("block1").objective
    both = Objective(lambda z, y: own(z, y) + borrowed(z, y))
    graph.block("block1").objective = both
    both.own = own
    with pytest.raises(BlockError, match="segment 'block1' depends on 'blocks.block0.objective"):
        Engine(graph, sgd, arm).step(batches()[0])


@pytest.mark.parametrize("arm", LOCAL)
def test_every_local_arm_refuses_a_segment_whose_loss_trains_nothing(arm):
    idle = Objective(lambda z, y: z.detach().sum())
    graph = pair(lambda f, x: f(x), lambda f, a, x: f(a), (idle, None))
    with pytest.raises(BlockError, match="no loss of segment 'a' depends on a trainable"):
        Engine(graph, sgd, arm).step(batches()[0])


@pytest.mark.parametrize("arm", LOCAL)
@pytest.mark.parametrize("field", ["x", "y"])
def test_changing_a_shared_field_in_place_is_refused(arm, field):
    """Lanes would race for it; where nobody else reads it, a body may do as it likes."""
    halve = Objective(lambda z, y: (z.sum(1) - y.mul_(0.5)).square().mean())
    change = (lambda f, a, x: f(x.mul_(2))) if field == "x" else (lambda f, a, x: f(a))
    graph = pair(lambda f, x: f(x), change, (None, halve if field == "y" else None))
    with pytest.raises(BlockError, match=f"'b' changed its input '{field}' in place"):
        Engine(graph, sgd, arm).step(batches()[0])
    alone = BlockGraph.chain(
        [Block(Body(lambda f, x: f(x.mul_(2))), head())], inputs=("x",), target="y"
    )
    Engine(alone, sgd, arm).step(batches()[0])


def test_parameters_that_share_memory_across_a_cut_are_refused():
    graph = chain(2)
    ours, theirs = (graph.block(name).body.linear for name in graph.names)
    theirs.weight = torch.nn.Parameter(ours.weight.data)
    with pytest.raises(ScheduleError, match="block1.body.linear.weight.* are one tensor"):
        Engine(graph, sgd, "early")
    Engine(graph, sgd, "baseline")


class Checkpointed(Mix):
    def forward(self, *inputs):
        return torch.utils.checkpoint.checkpoint(super().forward, *inputs, use_reentrant=False)


def test_recomputing_draws_beside_forwards_that_draw_is_refused():
    """Its thread sets the global generator back and forth, under the feet of later forwards."""

    def graph(dropout):
        torch.manual_seed(0)
        blocks = [Block(Checkpointed(WIDTH, dropout), head()) for _ in range(3)]
        return BlockGraph.chain(blocks, inputs=("x",), target="y")

    for arm in LOCAL:
        Engine(graph(0.0), sgd, arm).step(batches()[0])
        engine = Engine(graph(0.5), sgd, arm)
        if arm in ("detached", "early"):
            engine.step(batches()[0])
            continue
        with pytest.raises(BlockError, match="segment 'block0' sets the global random state"):
            engine.step(batches()[0])
        assert threads() == []


def test_an_out_of_memory_error_of_another_signature_keeps_its_kind():
    class ArrayMemoryError(MemoryError):  # numpy's is made from a shape and a dtype
        def __init__(self, shape, dtype):
            super().__init__(f"no room for {shape}")

    def fail(linear, x):
        raise ArrayMemoryError((1, 2), "float64")

    graph = BlockGraph.chain([Block(Body(fail), head())], inputs=("x",), target="y")
    with pytest.raises(MemoryError, match="in the forward of block 'block0' at step 0: no room"):
        Engine(graph, sgd).step(batches()[0])


def test_an_error_without_a_message_is_named_by_its_type():
    def fail(linear, x):
        raise AssertionError

    graph = BlockGraph.chain([Block(Body(fail), head())], inputs=("x",), target="y")
    with pytest.raises(BlockError, match="at step 0 failed: AssertionError"):
        Engine(graph, sgd).step(batches()[0])


def test_a_step_in_inference_mode_says_what_is_wrong():
    with torch.inference_mode(), pytest.raises(BlockError, match="no loss of segment"):
        Engine(chain(2), sgd).step(batches()[0])


def test_autocast_must_be_a_dtype():
    with pytest.raises(ScheduleError, match="`autocast` .=True. must be a dtype"):
        Engine(chain(2), sgd, autocast=True)


@ARMS
def test_an_interrupt_after_the_update_leaves_no_uncounted_step(arm, monkeypatch):
    """Either the step counts, or the engine knows that its parameters are between two steps."""
    engine = Engine(towers(), sgd, arm)
    data = batches()
    engine.step(data[0])
    before = {k: v.clone() for k, v in engine.graph.state_dict().items()}
    record = engine._watch.record

    def interrupted(*arguments):
        record(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine._watch, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.step(data[1])
    assert engine.steps == 1
    parameters = dict(engine.graph.named_parameters())
    assert all(torch.equal(p, before[name]) for name, p in parameters.items())
    assert threads() == []


def test_a_second_interrupt_waits_for_the_first_and_the_engine_goes_on(trap, monkeypatch):
    engine = Engine(trapped_graph(), sgd, "erase-threaded")
    data = batches()
    engine.step(data[0])
    close, calls = Workers.close, []

    def interrupted(self, cancel=False):
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        close(self, cancel)

    monkeypatch.setattr(Workers, "close", interrupted)
    trap["backward"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.step(data[1])
    assert len(calls) > 1
    assert threads() == []
    trap.clear()
    engine.step(data[1])
    engine.close()
