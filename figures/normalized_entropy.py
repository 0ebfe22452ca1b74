"""Normalized entropy against examples seen, with the spread over seeds."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from figures import style
from figures.errors import DuplicateRowsError, EmptyRowsError, UnitsError
from figures.rows import ORIGIN, OWN, SOURCE, Experiment, Rows, explain_origins

REFERENCE_ARM = "baseline"
REFERENCE_MODELS = {"bayes": "Bayes optimum", "logistic-regression": "logistic regression"}
"""Models that are drawn as a level, not as a curve: rows of theirs hold one evaluation."""

_PANEL = (ORIGIN, "device", "dataset", "model", "blocks")
_KEY = (*_PANEL, "split", "arm", "seed", "examples_seen")
_SPLITS = ("test", "valid", "train")
_MARKERS = 6
"""About how many markers tell a curve's arm; the line itself passes through every evaluation."""
_LN2 = float(np.log(2))


def check(frame: pd.DataFrame) -> None:
    """Refuse rows in other units than nats, or that were recorded twice.

    log_loss / normalized_entropy is the entropy of the split's click rate: at most ln 2 nats, and
    the same in all rows of a split.

    Raises:
        UnitsError: it is not.
        DuplicateRowsError: two rows have the same arm, seed and examples_seen.
    """
    known = frame[frame["normalized_entropy"].notna() & frame["log_loss"].notna()]
    entropy = known["log_loss"] / known["normalized_entropy"]
    wrong = known[~entropy.between(0, _LN2 * 1.001, inclusive="right")]
    if not wrong.empty:
        row = wrong.iloc[0]
        raise UnitsError(
            f"{row[SOURCE]}: log_loss (={row['log_loss']:g}) / normalized_entropy "
            f"(={row['normalized_entropy']:g}) is no entropy of a click rate, which lies between 0 "
            "and ln 2 nats: log_loss must be in nats, normalized_entropy a ratio"
        )
    spread = entropy.groupby([known[SOURCE], known["dataset"], known["split"]]).agg(["min", "max"])
    mixed = spread[spread["max"] > spread["min"] * 1.01]
    if not mixed.empty:
        source, dataset, split = mixed.index[0]
        low, high = mixed.iloc[0]
        raise UnitsError(
            f"{source}: rows of {dataset}, {split}, imply entropies from {low:.4f} to {high:.4f} "
            "nats: they normalise by different click rates or use different units"
        )
    trained = frame[~frame["model"].isin(list(REFERENCE_MODELS))]
    twice = trained[trained.duplicated(list(_KEY))]
    if not twice.empty:
        row = twice.iloc[0]
        raise DuplicateRowsError(
            f"{row[SOURCE]} repeats {row['model']}, {row['arm']}, seed {row['seed']:g} at "
            f"{row['examples_seen']:g} examples ({row['split']}): draw one of the runs"
        )


EXPERIMENT = Experiment(
    name="normalized_entropy",
    text=("device", "torch", "commit", "dataset", "model", "arm", "gradients", "split"),
    numbers=(
        "blocks",
        "seed",
        "examples_seen",
        "normalized_entropy",
        "log_loss",
        "auc",
        "calibration",
    ),
    check=check,
)


@dataclass(frozen=True)
class Panel:
    """Curves of one model on one split of one data set.

    Attributes:
        curves: arm to a frame [examples_seen × seed] of normalized entropies; NaN where there is
            no finite value.
        last: arm to the rows of its last evaluation, one a seed.
        levels: name of a reference predictor to its normalized entropy.
    """

    origin: str
    device: str
    dataset: str
    model: str
    blocks: int
    split: str
    curves: dict[str, pd.DataFrame]
    last: dict[str, pd.DataFrame]
    levels: dict[str, float]

    @property
    def model_label(self) -> str:
        """The model with its number of blocks."""
        return f"{self.model}, {self.blocks} blocks"

    @property
    def heading(self) -> str:
        """What keeps this panel's curves apart from all others."""
        lines = [self.model_label, style.dataset_label(self.dataset) + f", {self.split}"]
        lines.append(style.device_label(self.device) + (f", {OWN}" if self.origin == OWN else ""))
        return "\n".join(lines)

    def relative(self, arm: str) -> pd.DataFrame | None:
        """Return 100 · (NE / NE of the reference − 1), paired by seed; None if nothing pairs."""
        if arm not in self.curves or REFERENCE_ARM not in self.curves:
            return None
        change = 100 * (self.curves[arm] / self.curves[REFERENCE_ARM] - 1)
        change = change.dropna(axis="columns", how="all").dropna(axis="index", how="all")
        return None if change.empty else change

    @property
    def compared(self) -> bool:
        """Whether some arm pairs with the reference arm."""
        return any(self.relative(arm) is not None for arm in self.curves if arm != REFERENCE_ARM)

    @property
    def coincident(self) -> list[tuple[str, ...]]:
        """Groups of arms with exactly the same curves, of which only the last can be seen."""
        groups: list[list[str]] = []
        for arm, curve in self.curves.items():
            same = next((group for group in groups if curve.equals(self.curves[group[0]])), None)
            if same is None:
                groups.append([arm])
            else:
                same.append(arm)
        return [tuple(group) for group in groups if len(group) > 1]


def summarize_rows(rows: Rows) -> list[Panel]:
    """Arrange rows in panels, reference measurements first.

    A panel shows the split with most evaluations; of equals, test before valid before train.
    """
    frame = rows.frame.assign(_own=rows.frame[ORIGIN] == OWN)
    frame = frame.sort_values(["_own", *_PANEL], kind="stable")
    trained = frame[~frame["model"].isin(list(REFERENCE_MODELS))]
    if trained.empty:
        raise EmptyRowsError("the rows hold reference predictors only: there is no curve to draw")
    return [
        _panel(part, frame) for _, part in trained.groupby(list(_PANEL), sort=False, dropna=False)
    ]


def _panel(part: pd.DataFrame, frame: pd.DataFrame) -> Panel:
    first = part.iloc[0]
    split = _split(part)
    part = part[part["split"] == split]
    arms = list(style.looks(part["arm"]))
    of_arm = {arm: part[part["arm"] == arm] for arm in arms}
    levels = frame[
        frame["model"].isin(list(REFERENCE_MODELS))
        & (frame["dataset"] == first["dataset"])
        & (frame[ORIGIN] == first[ORIGIN])
        & (frame["split"] == split)
    ]
    return Panel(
        origin=first[ORIGIN],
        device=first["device"],
        dataset=first["dataset"],
        model=first["model"],
        blocks=int(first["blocks"]),
        split=split,
        curves={
            arm: rows.pivot(index="examples_seen", columns="seed", values="normalized_entropy")
            for arm, rows in of_arm.items()
        },
        last={
            arm: rows[rows["examples_seen"] == rows["examples_seen"].max()]
            for arm, rows in of_arm.items()
        },
        levels={
            label: float(level.mean())
            for model, label in REFERENCE_MODELS.items()
            if not (level := levels[levels["model"] == model]["normalized_entropy"]).empty
        },
    )


def _split(part: pd.DataFrame) -> str:
    points = part.groupby("split")["examples_seen"].nunique()
    order = {split: index for index, split in enumerate(_SPLITS)}
    return min(
        points.index, key=lambda split: (-points[split], order.get(split, len(order)), split)
    )


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
        device = panel.device + (f" ({OWN})" if panel.origin == OWN else "")
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
