"""Lanes: order within one, overlap between two, marks, and errors."""

import threading
import time

import pytest
import torch

from erase_core.lanes import HostLane, lanes


@pytest.fixture
def pair():
    made = [HostLane(worker=True), HostLane(worker=True)]
    yield made
    for lane in made:
        lane.close()


def test_a_lane_keeps_order(pair):
    seen = []
    marks = [
        pair[0].launch(lambda i=i: (time.sleep(0.01 * (3 - i)), seen.append(i))) for i in range(3)
    ]
    pair[1].wait(marks)
    assert seen == [0, 1, 2]


def test_two_lanes_run_at_once(pair):
    meet = threading.Barrier(2, timeout=5)
    HostLane().wait([lane.launch(meet.wait) for lane in pair])


def test_work_follows_the_marks_of_other_lanes(pair):
    seen = []
    first = pair[0].launch(lambda: (time.sleep(0.05), seen.append("first")))
    second = pair[1].launch(lambda: seen.append("second"), after=[first])
    HostLane().wait([second])
    assert seen == ["first", "second"]


def test_run_returns_the_result_and_runs_in_the_calling_thread(pair):
    result, mark = pair[0].run(threading.get_ident)
    assert result == threading.get_ident()
    pair[1].wait([mark])


def test_errors_reach_whoever_waits(pair):
    failed = pair[0].launch(lambda: 1 / 0)
    after = pair[1].launch(lambda: None, after=[failed])
    with pytest.raises(ZeroDivisionError):
        HostLane().wait([after])


def test_close_finishes_the_queue_and_the_lane_can_be_used_again(pair):
    seen = []
    pair[0].launch(lambda: (time.sleep(0.02), seen.append(1)))
    pair[0].close()
    assert seen == [1]
    HostLane().wait([pair[0].launch(lambda: seen.append(2))])
    assert seen == [1, 2]


def test_one_lane_needs_no_device_support():
    caller, side = lanes(torch.device("meta"), 0)
    assert side == []
    assert caller.launch(lambda: None) is None
