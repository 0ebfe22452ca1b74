"""One line for every job that ends, from what Snakemake logs: its own log is for a search."""

import re
import time
from collections.abc import Callable, Iterator

_TOTAL = re.compile(r"total\s+(\d+)$")
_BEGUN = re.compile(r"Job (\d+): (.+)$")
_FINISHED = re.compile(r"Finished jobid: (\d+) ")
_FAILED = re.compile(r"Error in rule ")
_JOB = re.compile(r"    jobid: (\d+)$")


class Progress:
    """Reads Snakemake's log piece by piece; jobs without a message, such as `all`, are passed over.

    Args:
        status: from a job's message to how it ended; "complete" and "" go unsaid.
        clock: seconds, monotonic.
    """

    def __init__(
        self, status: Callable[[str], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._status = status
        self._clock = clock
        self._rest = ""
        self._total = 0
        self._ended = 0
        self._failing = False
        self._begun: dict[str, tuple[str, float]] = {}

    def lines(self, logged: str) -> Iterator[str]:
        """Yield what to print after the next piece of the log, which may end within a line."""
        *whole, self._rest = (self._rest + logged).split("\n")
        for line in whole:
            if line.startswith("error: "):  # of a program of the project's own
                yield line
            elif found := _TOTAL.match(line):
                self._total = int(found[1]) - 1  # without `all`
            elif found := _BEGUN.match(line):
                self._begun[found[1]] = found[2], self._clock()
            elif found := _FINISHED.match(line):
                yield from self._end(found[1])
            elif _FAILED.match(line):
                self._failing = True
            elif self._failing and (found := _JOB.match(line)):
                self._failing = False
                yield from self._end(found[1], "failed")

    def _end(self, job: str, status: str = "") -> Iterator[str]:
        if job not in self._begun:
            return
        name, began = self._begun.pop(job)
        self._ended += 1
        status = status or self._status(name)
        said = "" if status in ("", "complete") else f"{status} after "
        yield f"[{self._ended}/{self._total}] {name} {said}{self._clock() - began:.0f} s"
