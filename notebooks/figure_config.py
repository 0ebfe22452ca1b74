"""What the figures notebook draws."""

from dataclasses import dataclass
from pathlib import Path

from erase_core.bench import conform_fields, require
from figures import FIGURES


@dataclass(frozen=True)
class FiguresConfig:
    """Parameters of the figures notebook.

    Attributes:
        figures: names of figures, as `python -m figures` knows them.
        runs: directory whose complete runs are drawn beside the reference rows; it need not exist.
    """

    figures: tuple[str, ...]
    runs: str

    def __post_init__(self) -> None:
        """Check types and names.

        Raises:
            ParameterError: naming the parameter, its value and the remedy.
        """
        conform_fields(self)
        require(len(self.figures) > 0, "figures", self.figures, "must name at least one figure.")
        for name in self.figures:
            require(name in FIGURES, "figures", name, f"must be one of: {', '.join(FIGURES)}.")

    @property
    def runs_directory(self) -> Path | None:
        """The runs' directory, or None where there are no runs yet."""
        return Path(self.runs) if Path(self.runs).is_dir() else None
