"""The report says how every cell ended, whatever its state, and needs no network."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from erase_core.bench import RunRecord
from erase_core.bench.records import mark
from notebooks.grid import Cell, Plan
from notebooks.report import build, is_built, main, outcome_of, outcomes
from notebooks.reproduce import summary
from notebooks.run import EXECUTED, FAILED

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c63600000000200015e6aa4b50000000049454e44ae426082"
)


class Links(HTMLParser):
    """Collects everything that a page points to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("href", "src") and value]


def notebook(path: Path, text: str) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)


@pytest.fixture
def plan(tmp_path):
    root = tmp_path / "smoke"

    def cell(name):
        return Cell(name, "throughput", {}, root / name, None, False, 60)

    states = ("complete", "failed", "oom", "timeout", "killed", "unsaved", "absent", "broken")
    cells = tuple(cell(f"throughput/{state}") for state in states)
    by_state = dict(zip(states, cells, strict=True))
    for state in ("complete", "unsaved"):
        with RunRecord(by_state[state].directory, "throughput", {}) as record:
            record.note(arms={"early": {"status": "oom"}, "baseline": {"status": "complete"}})
    notebook(by_state["complete"].directory / EXECUTED, "# It *ran*")
    for state in ("failed", "oom", "timeout"):
        mark(by_state[state].directory, state, f"In [3]: <b>{state}</b>")
        notebook(by_state[state].directory / FAILED, "# It broke")
    mark(by_state["killed"].directory, "running")
    by_state["broken"].directory.mkdir(parents=True)
    (by_state["broken"].directory / "run.json").write_text("{")
    figures = cell("figures")
    figures.directory.mkdir()
    (figures.directory / "throughput.png").write_bytes(PIXEL)
    for kind in ("pdf", "svg"):
        (figures.directory / f"throughput.{kind}").write_text("")
    (figures.directory / "throughput.json").write_text(json.dumps({"caption": "Speed < light"}))
    return Plan("smoke", ("smoke",), "What <it> is for", root, (), cells, figures)


def test_every_state_is_told_apart(plan):
    states = {o.cell.name.partition("/")[2]: (o.status, o.error) for o in outcomes(plan)}
    assert states["complete"] == ("complete", "")
    for state in ("failed", "oom", "timeout"):
        assert states[state] == (state, f"In [3]: <b>{state}</b>")
    assert states["killed"] == ("failed", "was killed while running")
    assert states["unsaved"][0] == "failed" and "no executed notebook" in states["unsaved"][1]
    assert states["absent"] == ("not run", "no record of a run")
    assert states["broken"][0] == "failed" and "not JSON" in states["broken"][1]
    assert states[""] == ("not run", "no record of a run")  # the figures


def test_a_complete_run_is_the_plan_s_by_all_its_parameters_and_its_rows(tmp_path):
    cell = Cell("x/y", "throughput", {"a": 1, "b": [2]}, tmp_path, None, False, 60)
    notebook(tmp_path / EXECUTED, "")
    for recorded, status, error in [
        ({"a": 1, "b": [2]}, "complete", ""),
        ({"a": 1, "b": [3]}, "outdated", "was made with b=[3] instead of [2]"),
        ({"a": 1}, "outdated", "was made with b=null instead of [2]"),
    ]:
        with RunRecord(tmp_path, "throughput", recorded, overwrite=True) as record:
            rows = record.write_rows([{"a": 1}])
        assert (outcome_of(cell).status, outcome_of(cell).error) == (status, error)
    rows.write_text("a\n2\n")
    assert outcome_of(cell).status == "failed"
    assert "SHA-256 differs" in outcome_of(cell).error


def test_a_report_without_one_of_its_pages_is_not_built(plan):
    assert not is_built(plan)
    for page in ("index.html", "throughput_complete.html", "throughput_oom.html"):
        directory = build(plan).parent
        assert is_built(plan)
        (directory / page).unlink()
        assert not is_built(plan)


def test_the_page_shows_states_figures_and_environment(plan):
    page = build(plan)
    text = page.read_text(encoding="utf-8")
    assert page == plan.root / "report" / "index.html"
    assert "1 of 9 cells complete" in text and "<th>measurement (s)</th>" in text
    assert "What &lt;it&gt; is for" in text and "Speed &lt; light" in text
    assert "&lt;b&gt;oom&lt;/b&gt;" in text and "<b>oom</b>" not in text
    assert "early: out of memory" in text and "baseline: out of memory" not in text
    assert 'name="viewport"' in text
    assert "&quot;torch&quot;" in text


def test_it_works_offline_and_no_link_is_dead(plan):
    directory = build(plan).parent
    for page in directory.glob("*.html"):
        assert not re.search(r"https?://", page.read_text(encoding="utf-8")), page
        for link in Links(page).found:
            if not link.startswith(("data:", "#")):
                assert (directory / link).exists(), f"{page.name} -> {link}"
    assert "<em>ran</em>" in (directory / "throughput_complete.html").read_text()
    assert "It broke" in (directory / "throughput_failed.html").read_text()


def test_an_empty_run_directory_gives_a_report_too(plan, tmp_path):
    empty = Plan("smoke", ("smoke",), "", tmp_path / "none", (), plan.cells[6:7], None)
    assert "No figure was made" in build(empty).read_text()


def test_the_last_lines_say_what_was_done_and_what_failed(plan):
    build(plan)
    lines = summary(plan, outcomes(plan), 90).splitlines()
    assert lines[0] == "smoke: 1 of 9 cells complete, 1.5 minutes"
    assert any(line.endswith("smoke/report/index.html") for line in lines)
    assert "oom: throughput/oom: In [3]: <b>oom</b>" in lines
    assert lines[-1] == "not run: 2 cells"
    assert not any("throughput/complete" in line for line in lines)
    lines = summary(plan, outcomes(plan), 90, interrupted=True).splitlines()
    assert not any(line.startswith(("figures:", "report:")) for line in lines)


def test_a_wrong_profile_is_an_error(capsys):
    assert main(["nonesuch"]) == 2
    assert "there is no profile 'nonesuch'" in capsys.readouterr().err
