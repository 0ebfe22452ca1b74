"""Make reference rows of complete runs: a CSV under figures/data, and their sidecars beside it."""

import csv
import io
import json
import re
from pathlib import Path

from erase_core.bench import records
from erase_core.bench.records import write_atomically
from figures.errors import MissingRowsError
from figures.rows import Experiment, rows_of_run, runs_of


def collect(experiment: Experiment, runs: Path, out: Path) -> tuple[Path, Path]:
    """Write the rows of every complete run under `runs` to one CSV, and their sidecars to a JSON.

    Args:
        experiment: whose runs.
        runs: directory that holds them.
        out: directory that gets NAME.csv and NAME.json; both are replaced.

    Returns:
        The paths of the two files.

    Raises:
        MissingRowsError: there is no complete run.
        RowsError: a run's rows are not those that its sidecar states.
    """
    columns = [*experiment.text, *experiment.numbers]
    rows: list[dict[str, str]] = []
    sidecars = []
    for directory in sorted(runs_of(experiment, runs), key=_natural):
        content, _ = rows_of_run(directory)
        if content is None:
            continue
        found = list(csv.DictReader(io.StringIO(content.decode())))
        columns = list(found[0]) if not rows and found else columns
        rows += found
        name = directory.relative_to(runs).as_posix()
        sidecars.append({"run": name} | records.read(directory))
    if not rows:
        raise MissingRowsError(f"there is no complete run of {experiment.name} under {runs}")
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    out.mkdir(parents=True, exist_ok=True)
    paths = out / f"{experiment.name}.csv", out / f"{experiment.name}.json"
    write_atomically(paths[0], table.getvalue().encode())
    text = json.dumps(sidecars, indent=1, ensure_ascii=False) + "\n"
    write_atomically(paths[1], text.encode())
    return paths


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort batch_size-512 before batch_size-4096."""
    return [
        (int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", path.as_posix())
    ]
