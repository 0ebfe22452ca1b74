"""Run a profile from data to report with Snakemake, and say what was done.

    python -m notebooks.reproduce smoke
    python -m notebooks.reproduce full criteo=train.txt avazu=train.gz

Complete cells are not repeated; failed ones, those whose files were removed or changed, and those
made with other parameters are run again. What Snakemake prints goes to runs/PROFILE/snakemake.log.
The exit status is 1 if a cell failed, after all others have run, and 2 if the profile or an
argument is wrong.
"""

import argparse
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from erase_core.bench import ParameterError
from notebooks.grid import ROOT, RUNS, Plan, load_plan, parse_sources
from notebooks.parameters import DIRECTORY
from notebooks.progress import Progress
from notebooks.report import NOT_RUN, Outcome, build, is_built, outcome_of, outcomes
from notebooks.run import command

GRACE_S = 30
"""How long an interrupted cell may take to shut its kernel down."""
POLL_S = 0.2
LOG = "snakemake.log"
INTERRUPTED = 128 + signal.SIGINT


class BusyError(RuntimeError):
    """Another process is running the same profile."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    warning = edited_notebooks()
    if warning:
        print(warning, file=sys.stderr)
    try:
        sources = parse_sources(options.sources)
        plan = load_plan(options.profile, options.runs, sources)
        if options.commands:
            print("\n".join(shlex.join(["python", *command(cell)]) for cell in plan.all_cells))
            return 0
        with _alone(plan.root) as lock:
            code = _snakemake(plan, options.cores, lock)
            if code == 1:  # a job failed for good, a dataset's for example, and with it the report
                build(plan)
    except (ParameterError, BusyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    ended = outcomes(plan)
    print(summary(plan, ended, time.monotonic() - began, interrupted=code == INTERRUPTED))
    if warning:
        print(warning, file=sys.stderr)
    return code or int(any(outcome.status != "complete" for outcome in ended))


def edited_notebooks(directory: Path = DIRECTORY) -> str:
    """Return a warning that names the notebooks that differ from git's HEAD, empty if none does.

    Without git, or outside a repository, nothing is known and nothing said.
    """
    if shutil.which("git") is None:
        return ""
    line = ["git", "-C", str(directory), "diff", "--name-only", "--relative", "HEAD"]
    asked = subprocess.run([*line, "--", "*.ipynb"], capture_output=True, text=True)
    names = ", ".join(asked.stdout.split("\n")[:-1]) if asked.returncode == 0 else ""
    return names and (
        f"warning: edited since the commit, and run as edited: {names} "
        "(to undo: git checkout notebooks)"
    )


def summary(
    plan: Plan, ended: Sequence[Outcome], seconds: float, *, interrupted: bool = False
) -> str:
    """Return what was done, where the report is and what failed, as lines for a terminal.

    After an interruption figures and report are not named: they may be older than the cells.
    """
    by_status = Counter(outcome.status for outcome in ended)
    lines = [
        f"{plan.profile}: {by_status['complete']} of {len(ended)} cells complete, "
        f"{seconds / 60:.1f} minutes"
    ]
    statuses = {outcome.cell.name: outcome.status for outcome in ended}
    figures = plan.figures
    if figures is not None and statuses[figures.name] == "complete" and not interrupted:
        lines.append(f"figures: {os.path.relpath(figures.directory)}")
    if plan.report.exists() and not interrupted:
        lines.append(f"report:  {os.path.relpath(plan.report)}")
    lines += [
        f"{outcome.status}: {outcome.cell.name}: {outcome.error}"
        for outcome in ended
        if outcome.status not in ("complete", NOT_RUN)
    ]
    if by_status[NOT_RUN]:
        lines.append(f"{NOT_RUN}: {by_status[NOT_RUN]} cells")
    return "\n".join(lines)


def _snakemake(plan: Plan, cores: int, lock: int) -> int:
    line = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    line += ["--directory", str(ROOT), "--cores", str(cores), "--resources", "gpu=1"]
    # Snakemake's own lock outlives a killed process; the one held here does not.
    line += ["--nolock", "--rerun-incomplete", "--keep-going", "--quiet", "host", "reason"]
    again = [
        f"{outcome.cell.directory}/run.json"
        for outcome in outcomes(plan)
        if outcome.status != "complete"
    ]
    if not is_built(plan):
        again.append(str(plan.report))
    if again:
        line += ["--forcerun", *again]
    profile, *sources = plan.arguments
    line += ["--config", f"profile={profile}", f"runs={plan.root.parent}", *sources]
    log = plan.root / LOG
    print(f"{plan.profile}: making what is missing; log: {os.path.relpath(log)}", flush=True)
    with (
        log.open("w") as sink,
        log.open() as written,
        # A group of its own: an interruption must reach the notebooks, not only Snakemake.
        subprocess.Popen(
            line, stdout=sink, stderr=sink, start_new_session=True, pass_fds=[lock]
        ) as process,
    ):
        try:
            with _termination_as_interrupt():
                code = _watch(process, written, plan)
            if code:
                print(f"error: not all jobs were done: {os.path.relpath(log)}", file=sys.stderr)
            return code
        except KeyboardInterrupt:
            # SIGTERM: a shell's background jobs are born ignoring SIGINT.
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            print("interrupted: run the same command again to go on", file=sys.stderr)
            return INTERRUPTED


def _watch(process: subprocess.Popen[bytes], written: TextIO, plan: Plan) -> int:
    """Print a line for each job that ends, until Snakemake itself does; return its exit status."""
    cells = {cell.name: cell for cell in plan.all_cells}
    progress = Progress(lambda name: outcome_of(cells[name]).status if name in cells else "")
    code = None
    while code is None:
        code = process.poll()  # before reading: what was written last is read, too
        for line in progress.lines(written.read()):
            print(line, flush=True)
        if code is None:
            time.sleep(POLL_S)
    return code


@contextmanager
def _alone(root: Path) -> Iterator[int]:
    """Hold a lock on a directory, which ends with the last process that has it open."""
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    except BlockingIOError:
        raise BusyError(f"{root} is in use: wait for the other run, or choose --runs DIR") from None
    finally:
        os.close(lock)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m notebooks.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("profile", help="a name under profiles/, or a YAML file")
    parser.add_argument("sources", nargs="*", metavar="KIND=PATH", help="raw files, by kind")
    parser.add_argument("--runs", type=Path, default=ROOT / RUNS, metavar="DIR", help="where to")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--commands",
        action="store_true",
        help="print the command of each cell instead, for a host without Snakemake",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
