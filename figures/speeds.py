"""What rows of throughput say: speeds, ratios with intervals, and what contradicts itself."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from erase_core.bench import Interval, Summary, ratio, summarize
from figures import style
from figures.errors import DuplicateRowsError, UnitsError
from figures.rows import ORIGIN, OWN, REFERENCE_ARM, SOURCE, Experiment, Rows

_PANEL = (ORIGIN, "device", "dataset", "model", "blocks", "width", "precision")
CELL = (*_PANEL, "batch_size")


def check(frame: pd.DataFrame) -> None:
    """Refuse rows whose times and speeds contradict each other, or that were measured twice.

    Raises:
        UnitsError: examples_per_s is not batch_size / step_time_us within 1 %.
        DuplicateRowsError: one file has two rows of the same arm and window of a cell.
    """
    measured = frame[frame["step_time_us"].notna()]
    implied = measured["batch_size"] * 1e6 / measured["step_time_us"]
    wrong = measured[~np.isclose(implied, measured["examples_per_s"], rtol=0.01)]
    if not wrong.empty:
        row = wrong.iloc[0]
        raise UnitsError(
            f"{row[SOURCE]}: batch_size (={row['batch_size']:g}) in step_time_us "
            f"(={row['step_time_us']:g}) is not examples_per_s (={row['examples_per_s']:g}): times "
            "must be microseconds a step, speeds examples a second"
        )
    twice = measured[measured.duplicated([*CELL, SOURCE, "arm", "window"])]
    if not twice.empty:
        row = twice.iloc[0]
        raise DuplicateRowsError(
            f"{row[SOURCE]} has window {row['window']:g} of {row['arm']} ({row['model']}, batch "
            f"{row['batch_size']:g}, {row['device']}) more than once: keep one measurement"
        )


EXPERIMENT = Experiment(
    name="throughput",
    text=("device", "torch", "commit", "dataset", "model", "precision", "arm", "gradients"),
    numbers=("blocks", "width", "batch_size", "window", "step_time_us", "examples_per_s"),
    check=check,
)


@dataclass(frozen=True)
class Point:
    """One arm at one batch size.

    Attributes:
        arm, batch_size: which.
        summary: of its windows, None where it ran out of memory.
        ratio: to the reference arm of the same windows, None where there is none.
    """

    arm: str
    batch_size: int
    summary: Summary | None
    ratio: Interval | None


@dataclass(frozen=True)
class Panel:
    """All points of one model on one device with one kind of data."""

    origin: str
    device: str
    dataset: str
    model: str
    blocks: int
    width: int | None
    precision: str
    points: tuple[Point, ...]

    @property
    def compared(self) -> bool:
        """Whether some arm has a ratio to the reference arm."""
        return any(point.ratio for point in self.points if point.arm != REFERENCE_ARM)

    @property
    def model_label(self) -> str:
        """The model with its number of blocks and, where it has one, its width."""
        size = f"{self.blocks} blocks" if self.width is None else f"{self.blocks} × {self.width}"
        return f"{self.model}, {size}"

    @property
    def heading(self) -> str:
        """What keeps this panel's series apart from all others."""
        device = style.device_label(self.device) + (f", {OWN}" if self.origin == OWN else "")
        data = f"{style.dataset_label(self.dataset)}, {self.precision}"
        return "\n".join((self.model_label, device, data))


def summarize_rows(rows: Rows) -> list[Panel]:
    """Reduce rows to panels, reference measurements first."""
    frame = rows.frame.assign(_own=rows.frame[ORIGIN] == OWN)
    frame = frame.sort_values(["_own", *_PANEL], kind="stable")
    return [_panel(part) for _, part in frame.groupby(list(_PANEL), sort=False, dropna=False)]


def _panel(part: pd.DataFrame) -> Panel:
    first = part.iloc[0]
    return Panel(
        origin=first[ORIGIN],
        device=first["device"],
        dataset=first["dataset"],
        model=first["model"],
        blocks=int(first["blocks"]),
        width=None if pd.isna(first["width"]) else int(first["width"]),
        precision=first["precision"],
        points=tuple(_points(part)),
    )


def _points(panel: pd.DataFrame) -> Iterable[Point]:
    arms = style.looks(panel["arm"])
    for batch_size in sorted(panel["batch_size"].unique()):
        cell = panel[panel["batch_size"] == batch_size].set_index([SOURCE, "window"])
        speeds = {
            arm: cell[cell["arm"] == arm]["examples_per_s"].dropna() for arm in set(cell["arm"])
        }
        for arm in arms:
            if arm not in speeds:
                continue
            speed = speeds[arm]
            summary = summarize(speed.to_list()) if len(speed) else None
            interval = _ratio(speed, speeds.get(REFERENCE_ARM))
            yield Point(arm, int(batch_size), summary, interval)


def _ratio(speed: pd.Series, reference: pd.Series | None) -> Interval | None:
    """Pair by file and window: windows of different runs were not taken next to each other."""
    if reference is None:
        return None
    both = speed.index.intersection(reference.index)
    if len(both) < 2:
        return None
    return ratio(speed.loc[both].to_list(), reference.loc[both].to_list())
