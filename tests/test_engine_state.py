"""Resuming, evaluation in the middle, changing learning rates, autocast."""

import copy
import io
import itertools
import os
import pickle
import signal

import pytest
import torch
from toy import WIDTH, batches, chain, same_state, towers

from erase_core import LADDER, CheckpointError, Engine

pytestmark = pytest.mark.usefixtures("one_thread")
ARMS = pytest.mark.parametrize("arm", LADDER)
LOCAL = [name for name, arm in LADDER.items() if arm.gradients == "local"]


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def saved(engine):
    """Through a file, as a user would, and without unpickling anything but tensors."""
    buffer = io.BytesIO()
    torch.save(engine.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [(a, a) for a in LADDER] + [(a, b) for a, b in itertools.permutations(LOCAL, 2)],
)
def test_a_resumed_run_equals_an_uninterrupted_one(first, second):
    data = batches(6)
    torch.manual_seed(3)
    with Engine(towers(), adam, first) as whole:
        for batch in data:
            whole.step(batch)
    torch.manual_seed(3)
    with Engine(towers(), adam, first) as engine:
        for batch in data[:3]:
            engine.step(batch)
        state = saved(engine)
    torch.manual_seed(99)
    with Engine(towers(seed=5), adam, second) as resumed:
        resumed.load_state_dict(state)
        assert resumed.steps == 3
        for batch in data[3:]:
            resumed.step(batch)
    assert same_state(whole.graph, resumed.graph)


def test_loading_does_not_share_tensors_with_the_state():
    engine = Engine(towers(), adam)
    engine.step(batches()[0])
    state = saved(engine)
    moments = state["optimizer"][0]["state"]["blocks.top.body.linear.bias"]["exp_avg"]
    before = moments.clone()
    engine.load_state_dict(state)
    engine.step(batches()[1])
    assert torch.equal(moments, before)


def test_unfit_states_are_refused_and_nothing_is_loaded():
    engine = Engine(towers(), adam)
    engine.step(batches()[0])
    before = {k: v.clone() for k, v in engine.graph.state_dict().items()}
    other = Engine(chain(4), adam)
    sgd = Engine(towers(seed=9), lambda p: torch.optim.SGD(p, lr=1.0))
    wide = saved(Engine(towers(seed=9), adam))
    wide["graph"]["blocks.top.body.linear.bias"] = torch.zeros(WIDTH + 1)
    right = saved(Engine(towers(seed=9), adam))
    for state, message in (
        (saved(other), "differ in blocks.block0"),
        (saved(sgd), "Adam here and by SGD"),
        (wide, "has shape"),
        ({**saved(sgd), "optimizer": []}, "no optimizer state for parameter"),
        ({}, "lacks 'graph'"),
        ({**saved(sgd), "steps": None}, "'steps' of the checkpoint has type NoneType, not int"),
        ({**saved(sgd), "graph": 3}, "'graph' of the checkpoint has type int"),
        ({**right, "random": {}}, "no state of the CPU generator"),
        ({**right, "random": {"cpu": torch.zeros(3)}}, "no state of the CPU generator"),
        ({**right, "optimizer": [{"class": "Adam"}]}, "not by parameter name"),
        ({**right, "graph": {k: 3 for k in right["graph"]}}, "here and int in the checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=message):
            engine.load_state_dict(state)
    assert all(torch.equal(v, before[k]) for k, v in engine.graph.state_dict().items())


@ARMS
def test_evaluation_in_the_middle_changes_nothing(arm):
    data = batches(5)
    torch.manual_seed(3)
    with Engine(towers(), adam, arm) as plain:
        for batch in data:
            plain.step(batch)
    torch.manual_seed(3)
    with Engine(towers(), adam, arm) as engine:
        for batch in data:
            engine.step(batch)
            engine.predict(batch)
            engine.predict_each(batch)
    assert same_state(plain.graph, engine.graph)
    assert all(module.training for module in engine.graph.modules())


def test_predictions_are_the_heads_logits_in_evaluation_mode():
    graph = towers()
    engine = Engine(graph, adam)
    batch = batches()[0]
    each = engine.predict_each(batch)
    assert list(each) == ["stem", "left", "right", "top"]
    assert torch.equal(engine.predict(batch), each["top"])
    assert each["top"].shape == (8,)
    assert not each["top"].requires_grad
    graph.eval()
    stem = graph.block("stem")
    expected = stem.objective.predict(stem.body(batch["x"], batch["w"]))
    assert torch.equal(each["stem"], expected.detach())
    without_target = {"x": batch["x"], "w": batch["w"]}
    assert torch.equal(engine.predict(without_target), each["top"])
    assert torch.equal(engine.predict((batch["x"], batch["w"])), each["top"])


@ARMS
def test_learning_rates_can_change(arm):
    data = batches(4)
    graph = towers()
    with Engine(graph, lambda p: torch.optim.SGD(p, lr=0.1), arm) as engine:
        schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, 0.0) for o in engine.optimizers]
        engine.step(data[0])
        after_one = {k: v.clone() for k, v in graph.named_parameters()}
        for scheduler in schedulers:
            scheduler.step()
        for batch in data[1:]:
            engine.step(batch)
    assert all(torch.equal(v, after_one[k]) for k, v in graph.named_parameters())


@pytest.mark.parametrize("arm", LOCAL)
def test_autocast_is_the_same_in_every_local_arm(arm):
    def run(name):
        graph = chain(3)
        with Engine(graph, adam, name, autocast=torch.bfloat16) as engine:
            for batch in batches():
                losses = engine.step(batch)
            assert engine.predict(batches()[0]).dtype == torch.bfloat16
        assert losses["block0"].dtype == torch.float32
        return graph

    assert same_state(run(arm), run("detached"))
    full = chain(3)
    with Engine(full, adam, arm) as engine:
        for batch in batches():
            engine.step(batch)
    assert not same_state(run(arm), full)


def test_loading_forgets_the_losses_of_steps_taken_back():
    engine = Engine(towers(), adam)
    state = saved(engine)
    data = batches(2)
    engine.step({name: value * float("nan") for name, value in data[0].items()})
    engine.load_state_dict(state)
    engine.step(data[1])
    engine.flush()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_of_a_running_engine_has_threads_of_its_own(copied):
    data = batches(2)
    with Engine(towers(), adam, "erase-threaded") as engine:
        engine.step(data[0])
        with copied(engine) as twin:
            for each in (engine, twin):
                torch.manual_seed(1)
                each.step(data[1])
            assert twin.graph is not engine.graph
            assert same_state(twin.graph, engine.graph)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_trains_with_threads_of_its_own():
    data = batches(2)
    with Engine(towers(), adam, "erase-threaded") as engine:
        engine.step(data[0])
        child = os.fork()
        if not child:
            signal.alarm(20)  # a hang ends here
            code = 1
            try:
                engine.step(data[1])
                engine.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        engine.step(data[1])
