"""What a notebook takes: the literals of its `parameters` cell and the configuration they make.

A notebook names its configuration class in its metadata, `erase.config`, as "module:Class". Every
parameter but `run_dir`, which says where the rows go, is a field of that class.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import yaml

from erase_core.bench import ParameterError, from_parameters

DIRECTORY = Path(__file__).resolve().parent
RUN_DIR = "run_dir"


@dataclass(frozen=True)
class NotebookSpec:
    """A notebook that can be run: its file, its parameters' defaults, its configuration class."""

    name: str
    path: Path
    defaults: Mapping[str, Any]
    config: type

    def resolve(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return all parameters but `run_dir`: the defaults, replaced by those that are given.

        Raises:
            ParameterError: a name is unknown, or the configuration class refuses a value.
        """
        known = {name: value for name, value in self.defaults.items() if name != RUN_DIR}
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ParameterError(
                f"notebook {self.name} has no parameter `{unknown[0]}`. Known: {', '.join(known)}."
            )
        parameters = {**known, **given}
        from_parameters(self.config, parameters)
        return parameters


def names(directory: Path = DIRECTORY) -> list[str]:
    """Return the names of the notebooks, sorted."""
    return sorted(path.stem for path in directory.glob("*.ipynb"))


def load(name: str, directory: Path = DIRECTORY) -> NotebookSpec:
    """Read what the notebook of this name takes, without running it.

    Raises:
        ParameterError: there is no such notebook, or its parameters cell or metadata are not as
            described above.
    """
    path = directory / f"{name}.ipynb"
    if not path.is_file():
        known = ", ".join(names(directory))
        raise ParameterError(f"there is no notebook `{name}` in {directory}. Known: {known}.")
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ParameterError(f"{path} has {len(cells)} cells tagged `parameters`; it needs one.")
    reference = notebook.metadata.get("erase", {}).get("config", "")
    module, _, attribute = reference.partition(":")
    if not attribute:
        raise ParameterError(
            f'{path} names no configuration class: its metadata need {{"erase": {{"config": '
            f'"module:Class"}}}}, not {reference!r}.'
        )
    return NotebookSpec(
        name, path, literals(cells[0].source, path), getattr(import_module(module), attribute)
    )


def literals(source: str, path: Path) -> dict[str, Any]:
    """Return the assignments of a parameters cell, which may hold nothing but JSON-typed literals.

    Raises:
        ParameterError: a statement is no `name = literal`, or the literal has no JSON form.
    """
    values: dict[str, Any] = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    values[name] = json.loads(json.dumps(literal := ast.literal_eval(value)))
                except (ValueError, TypeError) as error:
                    raise ParameterError(f"{path}: `{name}` is no JSON literal: {error}") from error
                if values[name] != literal:
                    raise ParameterError(f"{path}: `{name}` (={literal!r}) changes as JSON.")
            case _:
                line = ast.unparse(statement)
                raise ParameterError(f"{path}: parameters must be literals: {line}")
    return values


def from_command_line(pairs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return parameters given as name and text; text that is JSON is read as such, else as str.

    Raises:
        ParameterError: a name is given twice.
    """
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name in values:
            raise ParameterError(f"parameter `{name}` is given twice on the command line.")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def from_file(path: Path) -> dict[str, Any]:
    """Return the parameters in a YAML (or JSON) file: one mapping from name to value.

    Raises:
        ParameterError: the file cannot be read or holds something else.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ParameterError(f"cannot read parameters from {path}: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ParameterError(f"{path} must hold one mapping from parameter names to values.")
    return values
