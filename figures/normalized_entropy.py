"""Normalized entropy against examples seen, with the spread over seeds."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from figures import style
from figures.curves import REFERENCE_MODELS, Panel, summarize_rows
from figures.rows import REFERENCE_ARM, Rows, explain_origins, measured_on

_MARKERS = 6
"""About how many markers tell a curve's arm; the line itself passes through every evaluation."""


def draw(rows: Rows) -> Figure:
    """Draw one column of two panels for each model, data set and device."""
    columns = summarize_rows(rows)
    arms = style.looks(arm for panel in columns for arm in panel.curves)
    figure, entropies, changes = style.panels(len(columns))
    for upper, lower, panel in zip(entropies, changes, columns, strict=True):
        for arm, curve in panel.curves.items():
            _band(upper, curve, arms[arm])
            change = panel.relative(arm)
            if change is not None and arm != REFERENCE_ARM:
                _band(lower, change, arms[arm])
        _finish(upper, lower, panel)
    entropies[0].set_ylabel("normalized entropy")
    changes[0].set_ylabel(f"NE relative to {REFERENCE_ARM} (%)")
    figure.align_ylabels([entropies[0], changes[0]])
    known = dict.fromkeys(level for panel in columns for level in panel.levels)
    style.legend(figure, arms, [_level_line(level) for level in known])
    return figure


def _band(axes: Axes, curve: pd.DataFrame, look: style.Look) -> None:
    """Draw the mean over seeds and the range between them; a seed without value breaks both."""
    mean = curve.mean(axis="columns", skipna=False)
    low, high = curve.min(axis="columns", skipna=False), curve.max(axis="columns", skipna=False)
    axes.plot(mean.index, mean, markevery=max(1, len(mean) // _MARKERS), **look.line)
    axes.fill_between(mean.index, low, high, color=look.color, alpha=0.2)


def _level_line(level: str) -> Line2D:
    dotted = level == REFERENCE_MODELS["bayes"]
    return Line2D(
        [], [], color="#009E73", linewidth=0.8, linestyle=":" if dotted else "-.", label=level
    )


def _finish(entropy: Axes, change: Axes, panel: Panel) -> None:
    entropy.set_title(panel.heading)
    for level, value in panel.levels.items():
        line = _level_line(level)
        entropy.axhline(
            value, color=line.get_color(), linewidth=0.8, linestyle=line.get_linestyle()
        )
    low, high = _limits(panel)
    entropy.set_ylim(low, high)
    if panel.compared:
        change.axhline(0, color="black", linewidth=0.6)
    else:
        style.no_comparison(change, panel.curves, REFERENCE_ARM)
    change.set_xlabel("examples seen")
    change.xaxis.set_major_formatter(EngFormatter(sep=""))
    change.xaxis.set_major_locator(MaxNLocator(4))


def _limits(panel: Panel) -> tuple[float, float]:
    """Return limits that hold every level and every curve after its first tenth."""
    last = max(curve.index.max() for curve in panel.curves.values())
    late = [curve[curve.index >= last / 10].to_numpy().ravel() for curve in panel.curves.values()]
    values = np.concatenate([*late, list(panel.levels.values())])
    values = values[np.isfinite(values)]
    if values.size == 0:  # every arm diverged: there is nothing to show but the frame
        return 0.0, 1.0
    pad = max(0.06 * (values.max() - values.min()), 1e-4)
    return values.min() - pad, values.max() + pad


def caption(rows: Rows) -> str:
    """Return the figure's caption, with what is measured and the kind of the data."""
    panels = summarize_rows(rows)
    data = ", ".join(dict.fromkeys(style.dataset_label(panel.dataset) for panel in panels))
    seeds = {curve.shape[1] for panel in panels for curve in panel.curves.values()}
    bands = "; bands: range between seeds" if max(seeds) > 1 else ""
    bottom = f" Bottom: change relative to {REFERENCE_ARM}, paired by seed."
    return (
        f"Normalized entropy (log loss over the entropy of the evaluated split's click rate; lower "
        f"is better) against training examples seen; data: {data}. Lines: mean over "
        f"{style.counted(seeds, 'seed')}{bands}."
        + (bottom if any(panel.compared for panel in panels) else "")
        + _coincidences(panels)
        + " The vertical scale is chosen after the first tenth of training; higher values before "
        "it leave the panel." + explain_origins(rows)
    )


def _coincidences(panels: list[Panel]) -> str:
    """Return a sentence for each group of arms whose curves hide one another."""
    where: dict[tuple[str, ...], list[int]] = {}
    for number, panel in enumerate(panels, start=1):
        for group in panel.coincident:
            where.setdefault(group, []).append(number)
    text = ""
    for group, numbers in where.items():
        hidden = ", ".join(group[:-2]) + (" and " if group[:-2] else "") + group[-2]
        text += f" {group[-1]} coincides with {hidden}"
        if len(numbers) < sum(set(group) <= set(panel.curves) for panel in panels):
            places = ", ".join(map(str, numbers))
            text += f" in panel{'s' if len(numbers) > 1 else ''} {places} from the left"
        text += "."
    return text


def table(rows: Rows) -> str:
    """Return the last evaluations as a Markdown table: mean [lowest, highest] over seeds."""
    lines = [
        "| model | data | split | device | arm | examples seen | seeds | NE | "
        f"relative to {REFERENCE_ARM} (%) | AUC | log loss (nats) | calibration |",
        "|---|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for panel in summarize_rows(rows):
        device = measured_on(panel.device, panel.origin)
        data = style.dataset_label(panel.dataset)
        for level, value in panel.levels.items():
            cells = f"| {level} | {data} | {panel.split} | – | – | – | – | {value:.5f} "
            lines.append(f"{cells}| – | – | – | – |")
        for arm, last in panel.last.items():
            change = panel.relative(arm)
            seen = last["examples_seen"].iloc[0]
            paired = change.loc[seen] if change is not None and seen in change.index else None
            lines.append(
                f"| {panel.model_label} | {data} | {panel.split} | {device} | {arm} | {seen:,.0f} "
                f"| {len(last)} | {_spread(last['normalized_entropy'], 5)} "
                f"| {'–' if paired is None or arm == REFERENCE_ARM else _spread(paired, 3)} "
                f"| {_spread(last['auc'], 4)} | {_spread(last['log_loss'], 5)} "
                f"| {_spread(last['calibration'], 4)} |"
            )
    return "\n".join(lines)


def _spread(values: pd.Series, digits: int) -> str:
    values = values.astype(float)
    if values.isna().any():
        return f"diverged in {int(values.isna().sum())} of {len(values)}"
    mean = f"{values.mean():.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} [{values.min():.{digits}f}, {values.max():.{digits}f}]"
