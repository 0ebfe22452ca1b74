import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from erase_core.bench import trace
from erase_core.bench.timeline import Kernel, TraceError


def kernel(stream, start, end, label):
    return Kernel(start, end, stream, f"k{start}", label)


def test_summary_counts_what_a_table_needs():
    kernels = [
        kernel(7, 0, 10, "forward:block0"),
        kernel(7, 10, 30, "backward:block0"),
        kernel(8, 12, 20, "forward:block1"),
        kernel(8, 30, 40, None),
    ]
    found = trace.summary(kernels, steps=2)
    assert found["kernels_per_step"] == 2
    assert found["unlabelled_kernels"] == 1
    assert found["overlaps"] == 1
    assert found["longest_overlaps"][0]["duration_us"] == 8
    assert found["occupancy"]["concurrent_share"] == pytest.approx(8 / 40)
    json.dumps(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--option", "width"], "NAME=JSON"),
        (["--option", "widht=3"], "widht"),
        (["--batch-size", "0"], "batch_size"),
    ],
)
def test_bad_command_lines_are_refused(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        trace.main([*arguments, "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_ranges_of_worker_threads_are_seen_if_all_threads_are_profiled():
    def work() -> None:
        with torch.profiler.record_function("backward:block0"):
            torch.ones(2) + 1

    with ThreadPoolExecutor(1) as pool, trace.profiler(all_threads=True) as profiled:
        pool.submit(work).result()
    assert "backward:block0" in {event.name for event in profiled.events()}


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_without_cuda_there_is_no_trace(tmp_path):
    with pytest.raises(TraceError, match="CUDA"):
        trace.record_trace(lambda: None, tmp_path / "t.json.gz")


@pytest.mark.gpu
@pytest.mark.parametrize("arm", ["erase-blocking", "erase-threaded"])
def test_backward_overlaps_the_next_forward_on_a_gpu(tmp_path, capsys, arm):
    """The claim of early backward on streams, read off a real trace."""
    size = ["--batch-size", "32768", "--option", "width=1024"]
    trace.main([*size, "--arm", arm, "--out", str(tmp_path)])
    found = json.loads(capsys.readouterr().out)
    assert found["overlaps"] > 0
    assert found["occupancy"]["streams"] > 1
    assert (tmp_path / found["trace"]).exists()
