"""Profiles: which notebooks run over which grid of parameters, on which prepared data.

A profile is a YAML file:

    description: what it is for and how long it takes
    datasets:                     # prepared by data_prep before a cell that names them
      synthetic-criteo: {kind: synthetic, name: criteo, rows: 40000}
      criteo: {kind: criteo}      # a raw file, whose path is given on the command line
    experiments:
      throughput:                 # a name of your choice
        notebook: throughput
        grid:                     # one cell for each combination
          batch_size: [256, 512]  # values of one parameter, or named sets of parameters:
          model: {proxy: {model: proxy, model_options: {blocks: 8}}, ranking: {model: ranking}}
        parameters: {windows: 5}  # the same in every cell
    figures: [throughput]         # drawn from all complete cells at the end

A `dataset` among the profile's datasets is prepared first, and the cell gets its directory. All
parameters are checked against the notebooks' configuration classes before anything runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from erase_core.bench import require


@dataclass(frozen=True)
class DatasetConfig:
    """How a dataset is prepared: the options of `python -m data_prep`.

    Attributes:
        kind: "synthetic", or the raw form of a file given on the command line.
        name: whose schema synthetic rows have; for `kind: synthetic` alone.
        rows: how many synthetic rows; for `kind: synthetic` alone.
        recipe, min_count, split, valid_fraction, test_fraction, seed: as data_prep documents them.
    """

    kind: Literal["synthetic", "criteo", "avazu"]
    name: Literal["criteo", "avazu"] | None = None
    rows: int | None = None
    recipe: str | None = None
    min_count: int | None = None
    split: Literal["time", "random"] | None = None
    valid_fraction: float | None = None
    test_fraction: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse options that this kind does not have, or lacks.

        Raises:
            ParameterError: naming the option.
        """
        for option in ("name", "rows"):
            given = getattr(self, option)
            if self.kind == "synthetic":
                require(given is not None, option, given, "is needed for a synthetic dataset.")
            else:
                require(given is None, option, given, "belongs to synthetic datasets alone.")

    def arguments(self, source: Path | None) -> list[str]:
        """Return the arguments of `python -m data_prep`, except `--out`."""
        arguments: list[str] = [self.kind]
        if source is not None:
            arguments += ["--source", str(source)]
        for option, value in vars(self).items():
            if option != "kind" and value is not None:
                arguments += [f"--{option.replace('_', '-')}", str(value)]
        return arguments


@dataclass(frozen=True)
class ExperimentConfig:
    """One notebook over one grid.

    Attributes:
        notebook: its name.
        grid: axis to values, or to named sets of parameters.
        parameters: those that all cells share.
        alone: nothing else runs beside a cell, as timing needs it.
        timeout_s: seconds that one cell of the notebook may take.
    """

    notebook: str
    grid: Mapping[str, object]
    parameters: Mapping[str, object] = field(default_factory=dict)
    alone: bool = False
    timeout_s: int = 3600


@dataclass(frozen=True)
class ProfileConfig:
    """A profile's file, its inner parts not yet checked."""

    description: str
    experiments: Mapping[str, object]
    datasets: Mapping[str, object] = field(default_factory=dict)
    figures: tuple[str, ...] = ()
