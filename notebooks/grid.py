"""The grid of a profile: every dataset, every run of a notebook, and where each goes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erase_core.bench import ParameterError, from_parameters, require
from notebooks.parameters import from_file, load
from notebooks.profile import DatasetConfig, ExperimentConfig, ProfileConfig

ROOT = Path(__file__).resolve().parents[1]
PROFILES = ROOT / "profiles"
RUNS = Path("runs")
DATASET = "dataset"
RAW_KINDS = ("criteo", "avazu")


@dataclass(frozen=True)
class Dataset:
    """A dataset to prepare: into which directory, with which arguments of data_prep."""

    name: str
    directory: Path
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One run of one notebook.

    Attributes:
        name: experiment and position in the grid, unique in the profile; its path under the root.
        notebook: which is run.
        parameters: all that the notebook has, defaults included: they identify the run.
        directory: where it leaves its rows, its sidecar and the executed notebook.
        dataset: the dataset that it reads, if any.
        alone: whether nothing else may run beside it.
        timeout_s: seconds that one cell of the notebook may take.
    """

    name: str
    notebook: str
    parameters: Mapping[str, Any]
    directory: Path
    dataset: Dataset | None
    alone: bool
    timeout_s: int

    @property
    def gpus(self) -> int:
        """How many GPUs it takes."""
        return int(str(self.parameters.get("device", "auto")).startswith("cuda"))


@dataclass(frozen=True)
class Plan:
    """A profile, checked: everything that is to be run, and where it goes.

    Attributes:
        profile: its name.
        arguments: its file and the raw files, as command lines take them.
        description: what it is for.
        root: directory of all its runs.
        datasets: those that a cell reads.
        cells: the grid.
        figures: the cell that draws them at the end, if any.
    """

    profile: str
    arguments: tuple[str, ...]
    description: str
    root: Path
    datasets: tuple[Dataset, ...]
    cells: tuple[Cell, ...]
    figures: Cell | None

    @property
    def report(self) -> Path:
        """The report's page."""
        return self.root / "report" / "index.html"

    @property
    def all_cells(self) -> tuple[Cell, ...]:
        """The cells of the grid and, last, the figures."""
        return self.cells if self.figures is None else (*self.cells, self.figures)


def load_plan(profile: str, runs: Path = RUNS, sources: Mapping[str, object] | None = None) -> Plan:
    """Read a profile and check every part of it.

    Args:
        profile: a name under profiles/, or the path of a YAML file.
        runs: directory under which the profile gets a directory of its own.
        sources: raw files by kind, such as {"criteo": "train.txt"}.

    Raises:
        ParameterError: an unknown key, a wrong type, an unknown notebook or dataset, a parameter
            that the notebook does not have or refuses, a raw file that is missing or that no
            dataset of the profile is made from.
    """
    path = Path(profile) if profile.endswith((".yaml", ".yml")) else PROFILES / f"{profile}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in PROFILES.glob("*.yaml")))
        raise ParameterError(f"there is no profile {profile!r} ({path}). Known: {known}.")
    try:
        config = from_parameters(ProfileConfig, from_file(path))
        # Absolute: the kernel's directory is the notebook's.
        root = (runs / path.stem).resolve()
        _refuse_unused(sources or {}, config)
        datasets = {
            name: _dataset(name, body, root, sources or {})
            for name, body in config.datasets.items()
        }
        cells = tuple(
            cell
            for name, body in config.experiments.items()
            for cell in _cells(name, body, root, datasets)
        )
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    _unique([cell.name for cell in cells], path)
    used = {cell.dataset.name for cell in cells if cell.dataset is not None}
    given = [f"{kind}={Path(str(raw)).resolve()}" for kind, raw in (sources or {}).items()]
    return Plan(
        path.stem,
        (str(path.resolve()), *given),
        config.description.strip(),
        root,
        tuple(dataset for name, dataset in datasets.items() if name in used),
        cells,
        _figures(config.figures, root),
    )


def parse_sources(pairs: Sequence[str]) -> dict[str, str]:
    """Return raw files by kind from "criteo=PATH" and the like.

    Raises:
        ParameterError: a pair has another form or names a kind that is not known.
    """
    sources = {}
    for pair in pairs:
        kind, equals, path = pair.partition("=")
        if kind not in RAW_KINDS or not equals:
            raise ParameterError(f"{pair!r} must be KIND=PATH with KIND one of {RAW_KINDS}.")
        sources[kind] = path
    return sources


def _kinds(datasets: Mapping[str, object]) -> set[object]:
    return {body.get("kind") for body in datasets.values() if isinstance(body, Mapping)}


def _refuse_unused(sources: Mapping[str, object], config: ProfileConfig) -> None:
    for kind, raw in sources.items():
        if kind in _kinds(config.datasets):
            continue
        takers = [
            path.stem
            for path in sorted(PROFILES.glob("*.yaml"))
            if kind in _kinds(from_file(path).get("datasets", {}))
        ]
        raise ParameterError(
            f"the profile takes no {kind}={raw}: no dataset of it is made from that. "
            f"Profiles that take {kind}=PATH: {', '.join(takers)}."
        )


def _unique(names: list[str], path: Path) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"{path}: two cells are named {name}: rename a parameter set.")


def _dataset(name: str, body: object, root: Path, sources: Mapping[str, object]) -> Dataset:
    config = from_parameters(DatasetConfig, _mapping(f"datasets.{name}", body))
    source = None
    if config.kind in RAW_KINDS:
        given = sources.get(config.kind)
        require(
            given is not None,
            f"datasets.{name}",
            config.kind,
            f"needs the raw file: give its path as {config.kind}=PATH.",
        )
        source = Path(str(given)).expanduser().resolve()
        require(source.is_file(), config.kind, str(source), "is not a file.")
    return Dataset(name, root / "data" / name, tuple(config.arguments(source)))


def _cells(name: str, body: object, root: Path, datasets: Mapping[str, Dataset]) -> Iterator[Cell]:
    experiment = from_parameters(ExperimentConfig, _mapping(f"experiments.{name}", body))
    notebook = load(experiment.notebook)
    axes = [list(_axis(axis, values)) for axis, values in experiment.grid.items()]
    for position in itertools.product(*axes):
        parameters = dict(experiment.parameters)
        for _, given in position:
            parameters |= given
        label = "_".join(label for label, _ in position) or "only"
        dataset = datasets.get(str(parameters.get(DATASET)))
        if dataset is not None:
            # Not prepared yet: any directory stands for it in the check.
            parameters[DATASET] = str(ROOT)
        try:
            parameters = notebook.resolve(parameters)
        except ParameterError as error:
            raise ParameterError(f"experiments.{name}, cell {label}: {error}") from error
        if dataset is not None:
            parameters[DATASET] = str(dataset.directory)
        yield Cell(
            f"{name}/{label}",
            experiment.notebook,
            parameters,
            root / name / label,
            dataset,
            experiment.alone,
            experiment.timeout_s,
        )


def _axis(axis: str, values: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield a label for a directory's name and the parameters it stands for."""
    if isinstance(values, Mapping):
        for label, parameters in values.items():
            yield _label(axis, label), dict(_mapping(f"grid.{axis}.{label}", parameters))
    elif isinstance(values, list) and values:
        for value in values:
            text = f"{value}" if isinstance(value, str) else f"{axis}-{value}"
            yield _label(axis, text), {axis: value}
    else:
        raise ParameterError(f"`grid.{axis}` (={values!r}) must be a list or named parameter sets.")


def _label(axis: str, label: object) -> str:
    plain = isinstance(label, str) and all(c.isalnum() or c in "-_.+" for c in label)
    require(plain, f"grid.{axis}", label, "names a directory: use letters, digits and -_.+ only.")
    return str(label)


def _figures(names: tuple[str, ...], root: Path) -> Cell | None:
    if not names:
        return None
    parameters = load("figures").resolve({"figures": list(names), "runs": str(root)})
    return Cell("figures", "figures", parameters, root / "figures", None, False, 600)


def _mapping(name: str, body: object) -> Mapping[str, object]:
    if not isinstance(body, Mapping):
        raise ParameterError(f"`{name}` (={body!r}) must be a mapping of names to values.")
    return body
