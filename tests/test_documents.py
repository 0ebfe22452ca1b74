"""README.md and paper_repro.md: their code runs, their numbers are in the rows, links exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from erase_core import LADDER
from figures import FIGURES

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "paper_repro.md")
RATIO = re.compile(r"-?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]")
ENTROPY = re.compile(r"(?<![\d.,])0\.\d{5}(?!\d)")


def text(name: str) -> str:
    return (ROOT / name).read_text()


@cache
def tables() -> str:
    return "\n".join(figure.table(figure.rows()) for figure in FIGURES.values())


def test_the_example_of_the_readme_runs():
    (example,) = re.findall(r"```python\n(.*?)```", text("README.md"), re.S)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["logits"].shape == (64,)
    assert list(names["losses"]) == [f"block{i}" for i in range(6)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_measured_number_is_in_a_table_of_the_rows(document):
    """Ratios with intervals and normalized entropies, as `python -m figures table` prints them."""
    found = RATIO.findall(text(document)) + ENTROPY.findall(text(document))
    assert found, "a document without results"
    assert [number for number in found if number not in tables()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_exist(document):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text(document))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_readme_tells_of_every_schedule_and_notebook():
    readme = text("README.md")
    assert [name for name in LADDER if f"`{name}`" not in readme] == []
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [path.name for path in notebooks if f"(notebooks/{path.name})" not in readme] == []
