"""Throughput against batch size: examples per second, and the ratio to ordinary training."""

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

from figures import style
from figures.rows import REFERENCE_ARM, SOURCE, Rows, explain_origins, measured_on
from figures.speeds import CELL, Panel, Point, summarize_rows


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
    runs = measured.groupby([*CELL, "arm"], dropna=False)[SOURCE].nunique().max()
    return f" Windows of up to {runs} runs of the same cell are pooled." if runs > 1 else ""


def _pairing(frame: pd.DataFrame) -> str:
    """Return a sentence on the ratios; their arms were interleaved if all windows say so.

    Rows stand in the order of measurement. Arms that were measured one after the other begin again
    with window 0; arms that took turns never go back.
    """
    runs = frame[frame["window"].notna()].groupby([*CELL, SOURCE], dropna=False)
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
        device = measured_on(panel.device, panel.origin)
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
