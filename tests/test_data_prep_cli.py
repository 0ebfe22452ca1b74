"""The command line of data preparation."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import data_prep_reference as reference
import pytest

from data_prep.cli import main


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text(reference.criteo_text(50))
    return path


def test_prepares_and_tells_what_it_did(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["criteo", "--source", str(source), "--out", str(out), "--min-count", "2"]) == 0
    captured = capsys.readouterr()
    assert "criteo-sample (log-bins)" in captured.out and "40 rows" in captured.out
    assert "fingerprint" in captured.out
    assert "fit and encode" in captured.err
    assert (out / "manifest.json").is_file()


def test_quiet_shows_no_bars(source, tmp_path, capsys):
    assert main(["criteo", "--source", str(source), "--out", str(tmp_path / "o"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_skipped_rows_are_reported(source, tmp_path, capsys):
    with source.open("a") as file:
        file.write("2" + "\t" * 39 + "\n")
    arguments = ["criteo", "--source", str(source), "--out", str(tmp_path / "out"), "--quiet"]
    assert main(arguments) == 1
    assert f"error: {source}:51: label = '2' is not a label" in capsys.readouterr().err
    assert main([*arguments, "--on-bad-row", "skip"]) == 0
    assert "left out 1 rows for label, the first at line 51" in capsys.readouterr().out


def test_bad_options_are_a_usage_error(source, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["criteo", "--source", str(source), "--out", "x", "--test-fraction", "2"])
    assert stopped.value.code == 2
    assert "`test_fraction` (=2.0)" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["criteo"], ["avazu"], ["synthetic"]])
def test_help_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    expected = ["--out", "--min-count", "--split"] if command else ["recipes:", "examples:"]
    assert all(word in shown for word in expected)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_terminated_process_leaves_nothing(tmp_path, number):
    out = tmp_path / "made" / "out"
    command = [sys.executable, "-m", "data_prep", "synthetic", "--rows", "5000000"]
    process = subprocess.Popen(
        [*command, "--out", str(out)],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob(".out.partial-*/scratch/*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
