"""Schedules: the ladder, and the contradictions that are refused."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from toy import WIDTH, Mix, chain, head

from erase_core import LADDER, Block, BlockGraph, Engine, Schedule, ScheduleError, schedule


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def test_each_arm_is_one_step_from_the_one_before():
    arms = list(LADDER.values())
    for before, after in zip(arms[:-1], arms[1:], strict=True):
        changed = [
            f.name
            for f in fields(Schedule)
            if f.name != "name" and getattr(before, f.name) != getattr(after, f.name)
        ]
        assert len(changed) == 1, (before.name, after.name, changed)


def test_schedules_are_frozen_and_found_by_name():
    assert schedule("early") is LADDER["early"]
    with pytest.raises(FrozenInstanceError):
        LADDER["early"].update = "early"
    with pytest.raises(TypeError):
        LADDER["mine"] = LADDER["early"]
    with pytest.raises(ScheduleError, match="no schedule 'erase'.*erase-threaded"):
        schedule("erase")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradients": "both"}, "`gradients` .='both'."),
        ({"backward": "later"}, "`backward`"),
        ({"dispatch": "async"}, "`dispatch`"),
        ({"update": "never"}, "`update`"),
        ({"streams": "many"}, "`streams`"),
        ({"streams": 0}, "`streams` .=0."),
        ({"streams": True}, "`streams` .=True."),
        ({"gradients": "exact"}, "whole forward"),
        ({"auxiliary": False}, "untrained"),
        ({"backward": "end"}, "nothing to run beside"),
        ({"streams": "one", "dispatch": "threaded"}, "needs lanes"),
    ],
)
def test_contradictions_are_refused(change, message):
    with pytest.raises(ScheduleError, match=message):
        replace(LADDER["erase-blocking"], **change)


def tied():
    graph = chain(2)
    graph.block("block1").body.linear.weight = graph.block("block0").body.linear.weight
    return graph


def test_parameters_shared_across_a_cut_are_refused_by_local_arms_alone():
    for arm in LADDER.values():
        if arm.gradients == "local":
            with pytest.raises(ScheduleError, match="block1.body.linear.weight.*shared across"):
                Engine(tied(), sgd, arm)
        else:
            Engine(tied(), sgd, arm)


def test_shared_buffers_are_refused_too():
    graph = chain(2, norm=True)
    graph.block("block1").body.norm.running_mean = graph.block("block0").body.norm.running_mean
    with pytest.raises(ScheduleError, match="running_mean"):
        Engine(graph, sgd, "detached")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda p: torch.optim.LBFGS(p), "LBFGS re-evaluates"),
        (lambda p: torch.optim.SGD(p[1:], lr=1), "is in 0 optimizers"),
        (lambda p: [torch.optim.SGD(p, lr=1), torch.optim.Adam(p)], "is in 2 optimizers"),
        (lambda p: "adam", "returned a str"),
        (lambda p: torch.optim.SGD([*p, torch.nn.Parameter(torch.ones(1))], lr=1), "not given"),
    ],
)
def test_optimizers_that_cannot_be_honoured_are_refused(factory, message):
    with pytest.raises(ScheduleError, match=message):
        Engine(chain(2), factory, "early")


def test_clipping_cannot_be_early():
    early = replace(LADDER["early"], update="early")
    with pytest.raises(ScheduleError, match="`clip_norm` needs every gradient"):
        Engine(chain(2), sgd, early, clip_norm=1.0)
    with pytest.raises(ScheduleError, match="`clip_norm` .=-1. must be positive"):
        Engine(chain(2), sgd, "early", clip_norm=-1)


def test_lazy_modules_are_refused_by_name():
    class Lazy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.LazyLinear(WIDTH)

        def forward(self, x):
            return self.linear(x)

    graph = BlockGraph.chain([Block(Lazy(), head())], inputs=("x",))
    with pytest.raises(ScheduleError, match="linear.weight' is not initialised"):
        Engine(graph, sgd)


def test_engine_arguments_are_checked():
    with pytest.raises(ScheduleError, match="`graph` is a Mix"):
        Engine(Mix(WIDTH), sgd)
    with pytest.raises(ScheduleError, match="`nonfinite`"):
        Engine(chain(2), sgd, nonfinite="warn")
    graph = chain(2)
    graph.block("block1").to("meta")
    with pytest.raises(ScheduleError, match="lies on cpu, meta"):
        Engine(graph, sgd)
    with pytest.raises(ScheduleError, match="no lanes for devices of type 'meta'"):
        Engine(chain(2).to("meta"), sgd, "erase-blocking")
