import time

import pytest
import torch

from erase_core.bench import ParameterError, Sample, compare


def test_arms_are_interleaved_and_the_first_rotates():
    calls = []
    arms = {name: (lambda name=name: calls.append(name)) for name in "ABC"}
    samples = compare(arms, device="cpu", windows=4, steps=2, warmup=1)
    assert "".join(calls) == "ABC" + "AABBCC" + "BBCCAA" + "CCAABB" + "AABBCC"
    assert [(s.window, s.arm) for s in samples] == [
        (window, arm) for window, order in enumerate(("ABC", "BCA", "CAB", "ABC")) for arm in order
    ]
    assert all(isinstance(s, Sample) and s.step_time_us > 0 for s in samples)


def test_a_sample_is_the_time_of_one_step_and_includes_finish():
    samples = compare(
        {"slow": lambda: time.sleep(0.004), "late": lambda: None},
        device="cpu",
        windows=2,
        steps=3,
        warmup=0,
        finish={"late": lambda: time.sleep(0.03)},
    )
    slow = [s.step_time_us for s in samples if s.arm == "slow"]
    late = [s.step_time_us for s in samples if s.arm == "late"]
    assert min(slow) >= 4_000
    assert min(late) >= 10_000  # 30 ms over 3 steps


def test_progress_counts_windows():
    seen = []
    compare({"a": int}, device="cpu", windows=3, steps=1, warmup=0, on_window=seen.append)
    assert seen == [1, 2, 3]


def test_an_arm_s_error_is_not_swallowed():
    def fail():
        raise RuntimeError("arm failed")

    with pytest.raises(RuntimeError, match="arm failed"):
        compare({"a": fail}, device="cpu", warmup=0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"arms": {}}, "arms"),
        ({"windows": 0}, "windows"),
        ({"steps": 0}, "steps"),
        ({"warmup": -1}, "warmup"),
        ({"finish": {"b": int}}, "finish"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ParameterError, match=f"`{name}`"):
        compare(**{"arms": {"a": int}, "device": "cpu"} | arguments)


@pytest.mark.gpu
def test_side_stream_work_that_nobody_joined_is_inside_the_window():
    side = torch.cuda.Stream()
    x = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()

    def on_side() -> None:
        with torch.cuda.stream(side):
            for _ in range(4):
                torch.mm(x, x)

    def on_current() -> None:
        for _ in range(4):
            torch.mm(x, x)

    samples = compare({"side": on_side, "current": on_current}, device="cuda", windows=5, steps=5)
    best = {
        arm: min(s.step_time_us for s in samples if s.arm == arm) for arm in ("side", "current")
    }
    assert best["side"] > 0.7 * best["current"]
