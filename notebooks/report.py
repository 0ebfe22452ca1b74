"""One offline HTML page from the runs of a profile: status, figures, executed notebooks.

python -m notebooks.report smoke
"""

import argparse
import base64
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import nbformat

from erase_core.bench import ParameterError
from erase_core.bench.records import SIDECAR, RunRecordError, read, write_atomically
from notebooks.grid import ROOT, RUNS, Cell, Plan, load_plan, parse_sources
from notebooks.run import EXECUTED, FAILED, differences, flaw

NOT_RUN = "not run"
OUTDATED = "outdated"
"""Complete, but made with other parameters than the plan's."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8884; padding: .25rem .6rem; text-align: left; }
pre { overflow-x: auto; background: #8881; padding: .6rem; font-size: .85rem; }
img { max-width: 100%; height: auto; background: white; }
figure { margin: 1.5rem 0; } figcaption { font-size: .9rem; }
.failed, .oom, .timeout, .outdated { color: #b00020; font-weight: bold; }
.anchor-link, .jp-InputPrompt, .jp-OutputPrompt, .prompt { display: none; }
"""


@dataclass(frozen=True)
class Outcome:
    """How a cell of the grid ended.

    Attributes:
        cell: which.
        status: as in run.json, or `NOT_RUN`, or `OUTDATED`.
        error: what went wrong, empty if nothing did.
        sidecar: run.json, empty if there is none.
    """

    cell: Cell
    status: str
    error: str
    sidecar: dict[str, Any]

    @property
    def out_of_memory(self) -> list[str]:
        """Arms that did not fit, in a cell that could go on without them."""
        arms = self.sidecar.get("details", {}).get("arms", {})
        return [arm for arm, note in arms.items() if note.get("status") == "oom"]


def outcomes(plan: Plan) -> list[Outcome]:
    """Return how every cell of the plan ended, in the plan's order."""
    return [outcome_of(cell) for cell in plan.all_cells]


def build(plan: Plan) -> Path:
    """Write the report of a plan's runs, whatever their state; return its page."""
    ended = outcomes(plan)
    pages = plan.report.parent
    pages.mkdir(parents=True, exist_ok=True)
    links = {outcome.cell.name: _notebook_page(outcome.cell, pages) for outcome in ended}
    body = [
        f"<h1>Profile {escape(plan.profile)}</h1>",
        f"<p>{escape(plan.description)}</p>",
        _counts(ended),
        "<h2>Figures</h2>",
        *_figures(plan),
        "<h2>Cells</h2>",
        _table(ended, links),
        "<h2>Environment</h2>",
        *_environment(ended),
    ]
    write_atomically(plan.report, _page(f"Report: {plan.profile}", "\n".join(body)).encode())
    return plan.report


def is_built(plan: Plan) -> bool:
    """Whether the report has its page and one for every notebook that was run."""
    pages = [
        plan.report.parent / _page_name(cell)
        for cell in plan.all_cells
        if any((cell.directory / name).exists() for name in (EXECUTED, FAILED))
    ]
    return all(page.exists() for page in (plan.report, *pages))


def outcome_of(cell: Cell) -> Outcome:
    """Return how one cell ended, and whether what it left is still there and the plan's."""
    if not (cell.directory / SIDECAR).exists():
        return Outcome(cell, NOT_RUN, "no record of a run", {})
    try:
        sidecar = read(cell.directory)
    except RunRecordError as unreadable:
        return Outcome(cell, "failed", str(unreadable), {})
    status, error = str(sidecar["status"]), str(sidecar.get("error") or "")
    if status == "running":  # its process was killed: a live one would hold up this report
        return Outcome(cell, "failed", "was killed while running", sidecar)
    if status == "complete":
        if lacking := flaw(cell.directory, sidecar):
            return Outcome(cell, "failed", lacking, sidecar)
        if other := differences(sidecar, cell.parameters):
            return Outcome(cell, OUTDATED, f"was made with {other}", sidecar)
    return Outcome(cell, status, error, sidecar)


def _page_name(cell: Cell) -> str:
    return f"{cell.name.replace('/', '_')}.html"


def _notebook_page(cell: Cell, pages: Path) -> str | None:
    """Render the executed or failed notebook; return its file name."""
    # Here, because a host that only runs cells need not have it.
    from nbconvert import HTMLExporter

    for name in (EXECUTED, FAILED):
        if (source := cell.directory / name).exists():
            notebook = nbformat.read(source, as_version=4)
            # The basic template loads nothing from the network.
            content, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
            page = _page_name(cell)
            back = '<p><a href="index.html">Report</a></p>'
            write_atomically(pages / page, _page(cell.name, back + content).encode())
            return page
    return None


def _counts(ended: Sequence[Outcome]) -> str:
    complete = sum(outcome.status == "complete" for outcome in ended)
    return f"<p><b>{complete} of {len(ended)} cells complete.</b></p>"


def _table(ended: Sequence[Outcome], links: dict[str, str | None]) -> str:
    rows = []
    for outcome in ended:
        name = escape(outcome.cell.name)
        page = links[outcome.cell.name]
        label = f'<a href="{escape(page)}">{name}</a>' if page else name
        notes = [outcome.error] if outcome.error else []
        notes += [f"{arm}: out of memory" for arm in outcome.out_of_memory]
        seconds = outcome.sidecar.get("duration_s")
        rows.append(
            f'<tr><td>{label}</td><td class="{outcome.status}">{outcome.status}</td>'
            f"<td>{'' if seconds is None else f'{seconds:.1f}'}</td>"
            f"<td>{escape('; '.join(notes))}</td></tr>"
        )
    head = "<tr><th>cell</th><th>status</th><th>measurement (s)</th><th>notes</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _figures(plan: Plan) -> list[str]:
    directory = plan.root / "figures"
    found = []
    for sidecar in sorted(directory.glob("*.json")):
        image = sidecar.with_suffix(".png")
        if not image.exists():
            continue
        caption = json.loads(sidecar.read_text(encoding="utf-8")).get("caption", "")
        data = base64.b64encode(image.read_bytes()).decode()
        files = ", ".join(
            f'<a href="../figures/{sidecar.stem}.{kind}">{kind}</a>'
            for kind in ("pdf", "svg", "png", "json")
        )
        found.append(
            f'<figure><img alt="{escape(sidecar.stem)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(caption)} ({files})</figcaption></figure>"
        )
    return found or ["<p>No figure was made.</p>"]


def _environment(ended: Sequence[Outcome]) -> list[str]:
    """Describe what the runs were made with, once for each combination."""
    seen: dict[str, None] = {}
    for outcome in ended:
        facts = {
            key: outcome.sidecar[key]
            for key in ("device", "commit", "dirty", "versions")
            if key in outcome.sidecar
        }
        if facts:
            seen[json.dumps(facts, indent=2)] = None
    return [f"<pre>{escape(facts)}</pre>" for facts in seen]


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: build the report of a profile."""
    parser = argparse.ArgumentParser(prog="python -m notebooks.report", description=__doc__)
    parser.add_argument("profile")
    parser.add_argument("sources", nargs="*", metavar="KIND=PATH")
    parser.add_argument("--runs", type=Path, default=ROOT / RUNS, metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        plan = load_plan(options.profile, options.runs, parse_sources(options.sources))
    except ParameterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(build(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
