"""The lock, pyproject.toml, environment.yml, CITATION.cff and the set-up commands agree."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK_LINES = [
    line for line in (ROOT / "requirements.lock").read_text().splitlines() if line[0] != "#"
]
LOCK = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in LOCK_LINES)
}


def declared(extra: str) -> list[Requirement]:
    """The requirements of an extra, its own extras unfolded, those of the core included."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    for text in EXTRAS[extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            found += [inner for name in requirement.extras for inner in declared(name)]
        else:
            found.append(requirement)
    return found


def closure(requirements: list[Requirement]) -> set[str]:
    """Names of the installed distributions that these requirements lead to."""
    reached: set[tuple[str, str]] = set()
    todo = [(req.name, extra) for req in requirements for extra in ("", *req.extras)]
    while todo:
        name, extra = todo.pop()
        key = (canonicalize_name(name), extra)
        if key in reached:
            continue
        reached.add(key)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo += [(requirement.name, inner) for inner in ("", *requirement.extras)]
    return {name for name, _ in reached}


def test_every_line_of_the_lock_is_an_exact_pin_in_order():
    for line in LOCK_LINES:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.!]*", line), line
    assert LOCK_LINES == sorted(LOCK_LINES, key=str.upper)
    assert len(LOCK) == len(LOCK_LINES)


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_lock_satisfies_every_range(extra):
    for requirement in declared(extra):
        version = LOCK.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} of [{extra}] is not locked"
        assert requirement.specifier.contains(version), f"{requirement} but locked {version}"


def test_the_lock_holds_what_the_package_leads_to_and_nothing_else():
    reached = closure([*declared("dev"), Requirement("setuptools")])
    # A host with a GPU has torch's CUDA libraries besides, whose versions torch itself pins.
    cuda = {name for name in reached if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert reached - cuda == set(LOCK)


def test_installed_versions_are_the_locked_ones():
    installed = {name: metadata.version(name).partition("+")[0] for name in LOCK}
    assert installed == LOCK


def test_every_extra_is_part_of_dev():
    everything = {str(requirement) for requirement in declared("dev")}
    for extra in EXTRAS:
        assert {str(requirement) for requirement in declared(extra)} <= everything, extra


def test_conda_users_get_the_locked_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [item for item in environment["dependencies"] if isinstance(item, str)]
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert environment["name"] == PROJECT["name"]
    assert pip == ["-r requirements.lock", "-e ."]
    python = next(item for item in plain if item.startswith("python="))
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(
        python.removeprefix("python=")
    )


def test_the_core_alone_needs_torch_alone():
    assert [Requirement(text).name for text in PROJECT["dependencies"]] == ["torch"]


def test_citation_names_the_package_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == [{"name": "The erase-repro contributors"}]
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys()
    assert [author["family-names"] for author in paper["authors"]] == ["Shang", "Truzzi"]
    assert paper["title"].startswith("ERASE: EaRly bAckpropagation SchEdule")
    assert paper["identifiers"][0]["value"] == "arXiv:2608.18469"
    assert paper["date-published"].isoformat() == "2026-08-19"


def test_the_license_is_the_declared_one():
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "[yyyy]" not in text


def test_make_says_what_python_it_needs(tmp_path):
    fake = tmp_path / "old-python"
    old = "import sys; sys.version_info = (3, 9); "
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{old}$2"\n')
    fake.chmod(0o755)
    made = subprocess.run(
        ["make", "install", f"PYTHON={fake}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode != 0
    assert "Python 3.11 or newer is needed" in made.stderr
    assert not (tmp_path / "venv").exists()
