"""Every notebook keeps the rules, and runs from its own directory with small parameters."""

import ast
import re
from dataclasses import fields

import nbformat
import papermill
import pytest

from data_prep import prepare
from erase_core.bench import from_parameters
from erase_core.bench.records import read
from notebooks.parameters import DIRECTORY, RUN_DIR, load, names
from notebooks.run import EXECUTED, main, run

NAMES = names()
SMALL = {
    "throughput": {"batch_size": 32, "windows": 2, "steps": 1, "warmup": 1, "device": "cpu"},
    "normalized_entropy": {"synthetic_rows": 2000, "evaluations": 2, "device": "cpu"},
    "references": {"synthetic_rows": 2000, "device": "cpu"},
    "figures": {},  # given the runs of the others
}


@pytest.fixture(params=NAMES)
def notebook(request):
    found = nbformat.read(DIRECTORY / f"{request.param}.ipynb", as_version=nbformat.NO_CONVERT)
    found.name = request.param
    return found


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebooks_are_those_that_are_tested_here():
    assert set(NAMES) == set(SMALL)


def test_is_valid_and_names_the_kernel(notebook):
    del notebook["name"]
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"


def test_holds_no_outputs(notebook):
    for cell in code_cells(notebook):
        assert not cell.outputs, cell.id
        assert cell.execution_count is None, cell.id


def test_cell_ids_are_chosen_and_unique(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    for name in ids:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name), f"{name} looks generated"


def test_the_first_code_cell_alone_is_tagged_parameters(notebook):
    tagged = [cell.metadata.get("tags") == ["parameters"] for cell in code_cells(notebook)]
    assert tagged == [True] + [False] * (len(tagged) - 1)


def test_every_parameter_is_explained_on_its_line(notebook):
    for line in code_cells(notebook)[0].source.splitlines():
        assert re.fullmatch(r"\w+ = .+  # \S.*", line), line
    shown = papermill.inspect_notebook(str(DIRECTORY / f"{notebook.name}.ipynb"))
    assert set(shown) == set(load(notebook.name).defaults)
    assert all(parameter["help"] for parameter in shown.values())


def test_the_second_code_cell_builds_the_configuration_from_every_parameter(notebook):
    spec = load(notebook.name)
    (call,) = [
        node.value
        for node in ast.parse(code_cells(notebook)[1].source).body
        if isinstance(node, ast.Assign)
    ]
    assert ast.unparse(call.func) == spec.config.__name__
    passed = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert passed == {name: name for name in spec.defaults if name != RUN_DIR}
    known = {field.name for field in fields(spec.config)}
    assert set(passed) <= known
    if notebook.name != "references":  # which trains no network
        assert set(passed) == known


def test_the_defaults_are_accepted(notebook):
    spec = load(notebook.name)
    assert RUN_DIR in spec.defaults
    from_parameters(spec.config, spec.resolve({}))


def test_is_thin(notebook):
    for cell in code_cells(notebook):
        tree = ast.parse(cell.source)
        for node in ast.walk(tree):
            assert not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        assert len(cell.source.splitlines()) <= 35, cell.id


def test_opens_with_what_it_shows_what_to_expect_and_how_long(notebook):
    first = notebook.cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    for part in ("**Claim under test.**", "**What to expect.**", "**How long.**"):
        assert part in first.source


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """All notebooks, run once with small parameters: name to run directory."""
    root = tmp_path_factory.mktemp("runs")
    found = {}
    for name in sorted(NAMES, key=lambda name: name == "figures"):
        given = SMALL[name] if name != "figures" else {"runs": str(root)}
        found[name] = root / name
        run(load(name), found[name], given, progress=False)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_runs_and_records(executed, name):
    sidecar = read(executed[name])
    assert sidecar["status"] == "complete"
    if name != "figures":
        assert sidecar["rows"]["count"] > 0
        assert "synthetic" in (executed[name] / "rows.csv").read_text()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throughput", "image/png"),
        ("throughput", "text/markdown"),
        ("normalized_entropy", "image/png"),
        ("normalized_entropy", "text/markdown"),
        ("normalized_entropy", "text/html"),
        ("references", "text/html"),
        ("figures", "image/png"),
        ("figures", "text/markdown"),
    ],
)
def test_shows_figure_and_table_in_place(executed, name, kind):
    notebook = nbformat.read(executed[name] / EXECUTED, as_version=4)
    kinds = [
        kind
        for cell in code_cells(notebook)
        for out in cell.outputs
        for kind in out.get("data", {})
    ]
    assert kind in kinds


def test_a_complete_run_is_not_repeated(executed, capsys):
    out = executed["references"]
    before = (out / "run.json").read_bytes()
    line = ["references", "--out", str(out)]
    for name, value in SMALL["references"].items():
        line += ["-p", name, str(value)]
    assert main(line) == 0
    assert "is complete" in capsys.readouterr().out
    assert (out / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_prints_no_warning(executed, name):
    notebook = nbformat.read(executed[name] / EXECUTED, as_version=4)
    errors = [
        out.text
        for cell in code_cells(notebook)
        for out in cell.outputs
        if out.get("name") == "stderr" and "Warning" in out.text
    ]
    assert not errors


def test_real_rows_go_from_the_raw_file_to_a_figure(real_data, tmp_path):
    prepare("avazu", real_data / "avazu" / "random_20000.csv", tmp_path / "data", min_count=2)
    given = {"dataset": str(tmp_path / "data"), "evaluations": 1, "device": "cpu"}
    run(load("normalized_entropy"), tmp_path / "run", given, progress=False)
    sidecar = read(tmp_path / "run")
    splits = sidecar["details"]["splits"].values()
    assert sum(split["rows"] for split in splits) == 20_000
    assert sum(round(split["rows"] * split["click_rate"]) for split in splits) == 3_354
    assert "synthetic" not in (tmp_path / "run" / "rows.csv").read_text()
    assert (tmp_path / "run" / "normalized_entropy.pdf").stat().st_size > 0
