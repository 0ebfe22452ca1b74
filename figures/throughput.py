"""Throughput against batch size: examples per second, and the ratio to ordinary training."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullLocator,
)

from erase_core.bench import Interval, Summary, ratio, summarize
from figures import style
from figures.errors import DuplicateRowsError, UnitsError
from figures.rows import ORIGIN, OWN, SOURCE, Experiment, Rows, explain_origins

REFERENCE_ARM = "baseline"
_PANEL = (ORIGIN, "device", "dataset", "model", "blocks", "width", "precision")
_CELL = (*_PANEL, "batch_size")


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
    twice = measured[measured.duplicated([*_CELL, SOURCE, "arm", "window"])]
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


def draw(rows: Rows) -> Figure:
    """Draw one column of two panels for each model, device and kind of data."""
    columns = summarize_rows(rows)
    arms = style.looks(point.arm for panel in columns for point in panel.points)
    figure, speeds, ratios = style.panels(len(columns))
    for index, panel in enumerate(columns):
        batches = sorted({point.batch_size for point in panel.points})
        for place, (arm, look) in enumerate(arms.items()):
            at = np.array(batches, dtype=float)
            if len(batches) == 1:  # side by side, where lines could not tell the arms apart
                at *= 2 ** (0.16 * (place - (len(arms) - 1) / 2))
            places = dict(zip(batches, at, strict=True))
            _draw_arm(speeds[index], ratios[index], panel, arm, look, places)
        _label_gaps(speeds[index], panel, arms)
        _finish(speeds[index], ratios[index], panel, batches)
    speeds[0].set_ylabel("examples / s")
    ratios[0].set_ylabel(f"speed relative to {REFERENCE_ARM}")
    figure.align_ylabels([speeds[0], ratios[0]])
    scales = [(panel.origin, panel.device) for panel in columns]
    style.share_scale(speeds, scales)
    compared = [index for index, panel in enumerate(columns) if panel.compared]
    style.share_scale([ratios[i] for i in compared], [scales[i] for i in compared])
    style.legend(figure, arms)
    style.thin_labels(figure, ratios)
    return figure


def _draw_arm(
    speeds: Axes,
    ratios: Axes,
    panel: Panel,
    arm: str,
    look: style.Look,
    places: dict[int, float],
) -> None:
    """Draw an arm's points, at the place on the horizontal axis of each batch size."""
    points = {point.batch_size: point for point in panel.points if point.arm == arm}
    nothing = (np.nan, np.nan, np.nan)
    speed, spread = [], []
    for batch in places:  # a batch size without a measurement breaks the line
        point = points.get(batch)
        speed.append(point.summary.median if point and point.summary else np.nan)
        found = point.ratio if point else None
        spread.append((found.estimate, found.low, found.high) if found else nothing)
    at = list(places.values())
    speeds.plot(at, speed, **look.line)
    if arm != REFERENCE_ARM:
        estimate, low, high = np.transpose(spread)
        ratios.plot(at, estimate, **look.line)
        ratios.fill_between(at, low, high, color=look.color, alpha=0.2)
        ratios.vlines(at, low, high, color=look.color, linewidth=0.6)


def _label_gaps(axes: Axes, panel: Panel, arms: dict[str, style.Look]) -> None:
    """Write "OOM" at the foot of the panel for every arm and batch size that did not fit."""
    for batch in sorted({point.batch_size for point in panel.points}):
        failed = [p.arm for p in panel.points if p.batch_size == batch and p.summary is None]
        for level, arm in enumerate(failed):
            axes.annotate(
                "OOM",
                (batch, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2 + 6 * level),
                textcoords="offset points",
                ha="center",
                fontsize=5,
                color=arms[arm].color,
            )


def _finish(speeds: Axes, ratios: Axes, panel: Panel, batches: list[int]) -> None:
    speeds.set_title(panel.heading)
    medians = [point.summary.median for point in panel.points if point.summary]
    if medians and max(medians) > 4 * min(medians):
        speeds.set_yscale("log")
        narrow = max(medians) < 50 * min(medians)
        speeds.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
        speeds.yaxis.set_minor_locator(NullLocator())
    speeds.yaxis.set_major_formatter(EngFormatter(sep=""))
    if panel.compared:
        ratios.axhline(1, color="black", linewidth=0.6)
    else:
        style.no_comparison(ratios, (point.arm for point in panel.points), REFERENCE_ARM)
    ratios.set_xscale("log", base=2)
    ratios.set_xlabel("batch size")
    ratios.xaxis.set_major_locator(FixedLocator(batches))
    ratios.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    ratios.xaxis.set_minor_locator(NullLocator())
    ratios.set_xlim(batches[0] / 1.6, batches[-1] * 1.6)


def _short(value: float) -> str:
    return f"{value / 1024:g}k" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def caption(rows: Rows) -> str:
    """Return the figure's caption, with what is measured and the kind of the data."""
    panels = summarize_rows(rows)
    data = ", ".join(dict.fromkeys(style.dataset_label(panel.dataset) for panel in panels))
    devices = ", ".join(dict.fromkeys(panel.device for panel in panels))
    windows = sorted({p.summary.samples for panel in panels for p in panel.points if p.summary})
    return (
        f"Training throughput against batch size on {devices}; batches of {data} data resident on "
        f"the device. Top: median over {style.counted(windows or [0], 'window')}."
        + _pooling(rows.frame)
        + (_pairing(rows.frame) if any(panel.compared for panel in panels) else "")
        + " A broken line was not measured there; OOM: out of memory."
        + explain_origins(rows)
    )


def _pooling(frame: pd.DataFrame) -> str:
    """Return a sentence where the windows of a point come from several runs, else nothing."""
    measured = frame[frame["window"].notna()]
    runs = measured.groupby([*_CELL, "arm"], dropna=False)[SOURCE].nunique().max()
    return f" Windows of up to {runs} runs of the same cell are pooled." if runs > 1 else ""


def _pairing(frame: pd.DataFrame) -> str:
    """Return a sentence on the ratios; their arms were interleaved if all windows say so.

    Rows stand in the order of measurement. Arms that were measured one after the other begin again
    with window 0; arms that took turns never go back.
    """
    runs = frame[frame["window"].notna()].groupby([*_CELL, SOURCE], dropna=False)
    paired = [run for _, run in runs if run["arm"].nunique() > 1]
    together = all(run["window"].is_monotonic_increasing for run in paired)
    return (
        f" Bottom: ratio of the medians to {REFERENCE_ARM} with 95 % percentile-bootstrap "
        "interval, paired by window of the same run"
        + (" (arms are interleaved in one process)." if together else ".")
    )


def table(rows: Rows) -> str:
    """Return the measurements as a Markdown table, one line for each arm and batch size."""
    lines = [
        "| model | data | device | precision | batch | arm | median examples/s | mean | p90 "
        f"| × {REFERENCE_ARM} [95 % interval] | windows |",
        "|---|---|---|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for panel in summarize_rows(rows):
        device = panel.device + (f" ({OWN})" if panel.origin == OWN else "")
        data = style.dataset_label(panel.dataset)
        prefix = f"| {panel.model_label} | {data} | {device} | {panel.precision} "
        for point in panel.points:
            lines.append(f"{prefix}| {point.batch_size} | {point.arm} | {_cells(point)} |")
    return "\n".join(lines)


def _cells(point: Point) -> str:
    if point.summary is None:
        return "out of memory | – | – | – | 0"
    s, r = point.summary, point.ratio
    interval = "–" if r is None else f"{r.estimate:.3f} [{r.low:.3f}, {r.high:.3f}]"
    return f"{s.median:,.0f} | {s.mean:,.0f} | {s.p90:,.0f} | {interval} | {s.samples}"
