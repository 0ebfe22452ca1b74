"""Every figure by name, and how one is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from figures import curves, normalized_entropy, speeds, throughput
from figures.provenance import save
from figures.rows import Experiment, Rows, load, portable
from figures.style import styled

DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class FigureSpec:
    """A figure: the rows it needs and what it makes of them.

    Attributes:
        name: on the command line and, with underscores, of its files.
        experiment: whose rows it reads.
        draw: rows to a figure.
        caption: rows to the caption.
        table: rows to a Markdown table of the numbers in the figure.
    """

    name: str
    experiment: Experiment
    draw: Callable[[Rows], Figure]
    caption: Callable[[Rows], str]
    table: Callable[[Rows], str]

    @property
    def reference(self) -> Path:
        """The committed reference rows."""
        return DATA / f"{self.experiment.name}.csv"

    def rows(self, files: Sequence[Path] = (), runs: Path | None = None) -> Rows:
        """Read the rows: the given files, or else the reference rows, and a user's runs.

        Without given files, missing reference rows are passed over if there are runs.

        Raises:
            RowsError: there are no rows, or they are not as expected.
        """
        if not files and (self.reference.exists() or runs is None):
            files = (self.reference,)
        return load(self.experiment, files, runs)


FIGURES: Mapping[str, FigureSpec] = MappingProxyType(
    {
        name: FigureSpec(name, rows.EXPERIMENT, module.draw, module.caption, module.table)
        for name, rows, module in (
            ("throughput", speeds, throughput),
            ("normalized-entropy", curves, normalized_entropy),
        )
    }
)


def make(
    name: str,
    out: Path,
    files: Sequence[Path] = (),
    runs: Path | None = None,
    command: Sequence[str] | None = None,
) -> list[Path]:
    """Draw a figure into a directory; return the paths of its PDF, SVG, PNG and sidecar.

    Args:
        name: a key of `FIGURES`.
        out: directory, made if absent.
        files: CSVs of rows; the committed reference rows by default.
        runs: directory with a user's runs, drawn beside them.
        command: how to make it again, for the sidecar; by default the equivalent command line, to
            be given in the project's directory.

    Raises:
        RowsError: there are no rows, or they are not as expected. Then nothing is written.
    """
    spec = FIGURES[name]
    rows = spec.rows(files, runs)
    if command is None:
        command = _command(name, out, files, runs)
    with styled():
        figure = spec.draw(rows)
        return save(figure, name.replace("-", "_"), spec.caption(rows), rows, command, out)


def _command(name: str, out: Path, files: Sequence[Path], runs: Path | None) -> list[str]:
    words = ["python", "-m", "figures", name]
    for option, paths in (("--rows", files), ("--runs", () if runs is None else (runs,))):
        if paths:
            words += [option, *(portable(path.resolve()) for path in paths)]
    return [*words, "--out", portable(out.resolve())]
