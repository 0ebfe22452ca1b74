"""How figures look: one style file, one colour, marker and dash pattern for each arm.

The colours are those of Okabe and Ito, which stay apart under the common kinds of colour blindness;
markers differ too, so that a figure survives a black-and-white printer.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

COLUMN_WIDTH = 3.3
"""Inches: one column of a two-column paper."""

_LEGEND_MARGIN = 0.02
"""Of the figure's width, free on either side of the legend."""

_LABEL_GAP = 2.0
"""Points between neighbouring tick labels."""

_STYLE_FILE = Path(__file__).with_name("erase.mplstyle")


@dataclass(frozen=True)
class Look:
    """How one arm is drawn."""

    color: str
    marker: str
    dashes: Any = "-"
    size: float = 3.2

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of a matplotlib line."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.dashes,
            "markersize": self.size,
        }


ARMS = {
    "baseline": Look("#000000", "o"),
    "auxiliary": Look("#8c8c8c", "s", (0, (4, 1.5))),
    "detached": Look("#E69F00", "^"),
    "early": Look("#56B4E9", "D", (0, (4, 1.5))),
    "erase-blocking": Look("#0072B2", "v"),
    "erase-threaded": Look("#D55E00", "*", size=4.6),
}
_OTHERS = (
    Look("#009E73", "X"),
    Look("#CC79A7", "<"),
    Look("#661100", ">"),
    Look("#332288", "p"),
    Look("#999933", "h"),
)


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the package's style and with nothing of the user's own."""
    with mpl.rc_context():
        mpl.rcdefaults()
        sns.set_theme(style="ticks", rc={})
        matplotlib.style.use(_STYLE_FILE)
        yield


def looks(arms: Iterable[str]) -> dict[str, Look]:
    """Return a look for each arm, in the order of the ladder, unknown arms last and by name."""
    present = set(arms)
    known = [arm for arm in ARMS if arm in present]
    others = sorted(present - set(ARMS))
    return {arm: ARMS[arm] for arm in known} | {
        arm: _OTHERS[index % len(_OTHERS)] for index, arm in enumerate(others)
    }


def panels(columns: int, height: float = 3.5) -> tuple[Figure, list[Axes], list[Axes]]:
    """Return a figure with two rows of axes: one paper column wide for up to two columns."""
    width = COLUMN_WIDTH if columns <= 2 else COLUMN_WIDTH / 2 * columns
    figure = Figure(figsize=(width, height))
    upper, lower = figure.subplots(2, columns, squeeze=False, sharex="col")
    return figure, list(upper), list(lower)


def share_scale(axes: Sequence[Axes], groups: Sequence[Hashable]) -> None:
    """Give axes of the same group one vertical scale that holds all of them.

    Call it after drawing. The numbers stand at the first axes of each group.
    """
    limits: dict[Hashable, list[float]] = {}
    for one, group in zip(axes, groups, strict=True):
        limits.setdefault(group, []).extend(one.get_ylim())
    labelled: set[Hashable] = set()
    for one, group in zip(axes, groups, strict=True):
        one.set_ylim(min(limits[group]), max(limits[group]))
        one.tick_params(labelleft=group not in labelled)
        labelled.add(group)


def no_comparison(axes: Axes, arms: Iterable[str], reference: str) -> None:
    """Write into a panel of ratios to a reference arm why it is empty, and take its scale away.

    The horizontal axis keeps its numbers: they belong to the panel above it too.
    """
    arms = set(arms)
    if reference not in arms:
        reason = f"no {reference} run"
    elif arms == {reference}:
        reason = f"{reference} alone"
    else:
        reason = f"nothing pairs with {reference}"
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center")
    axes.set_yticks([])
    axes.tick_params(bottom=False)
    axes.grid(visible=False)


def thin_labels(figure: Figure, axes: Iterable[Axes]) -> None:
    """Keep every horizontal tick, and those labels that do not overlap the next to their right.

    Call it last: it lays the figure out to measure.
    """
    figure.draw_without_rendering()
    gap = _LABEL_GAP / 72 * figure.dpi
    for one in axes:
        labels, edge = [], float("inf")
        for label in reversed(one.get_xticklabels()):
            box = label.get_window_extent()
            fits = box.x1 + gap <= edge
            labels.append(label.get_text() if fits else "")
            edge = box.x0 if fits else edge
        one.set_xticks(one.get_xticks(), labels[::-1])


def legend(figure: Figure, arms: dict[str, Look], extra: Iterable[Line2D] = ()) -> None:
    """Put one legend of the arms below all panels, in as few rows as the figure's width allows."""
    handles = [Line2D([], [], label=arm, **look.line) for arm, look in arms.items()]
    handles += list(extra)
    room = figure.bbox.width * (1 - 2 * _LEGEND_MARGIN)
    for rows in range(1, len(handles) + 1):
        columns = -(-len(handles) // rows)
        box = figure.legend(handles=handles, loc="outside lower center", ncols=columns)
        if columns == 1 or box.get_window_extent().width <= room:
            return
        box.remove()


def counted(counts: Iterable[int], thing: str) -> str:
    """Return a count or the range of several with its noun: "1 seed", "3 seeds", "1–3 seeds"."""
    counts = sorted(set(counts))
    number = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{number} {thing}" + ("" if counts[-1] == 1 else "s")


def device_label(device: str) -> str:
    """Return a device's name for a heading: "H200" for "NVIDIA H200", "CPU, 2 threads"."""
    if device.startswith("CPU ("):
        return "CPU, " + device.rstrip(")").rpartition(", ")[2]
    return device.removeprefix("NVIDIA ").removeprefix("Tesla ")


def dataset_kind(dataset: str) -> str:
    """Return the kind of data that a name in rows states: synthetic, sample, full or unstated."""
    if dataset.startswith("synthetic-"):
        return "synthetic"
    suffix = dataset.rpartition("-")[2]
    return suffix if suffix in ("sample", "full") else "unstated"


def dataset_label(dataset: str) -> str:
    """Return the data set for a heading, with its kind: "synthetic Criteo", "Criteo (sample)"."""
    kind = dataset_kind(dataset)
    if kind == "unstated":
        return f"{_capitalized(dataset)} (extent unstated)"
    name = _capitalized(dataset.removeprefix("synthetic-").removesuffix(f"-{kind}"))
    return f"synthetic {name}" if kind == "synthetic" else f"{name} ({kind})"


def _capitalized(name: str) -> str:
    return name[:1].upper() + name[1:]
