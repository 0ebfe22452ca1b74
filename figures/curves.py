"""What rows of normalized entropy say: curves over seeds, levels, and what contradicts itself."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from figures import style
from figures.errors import DuplicateRowsError, EmptyRowsError, UnitsError
from figures.rows import ORIGIN, OWN, REFERENCE_ARM, SOURCE, Experiment, Rows

REFERENCE_MODELS = {"bayes": "Bayes optimum", "logistic-regression": "logistic regression"}
"""Models that are drawn as a level, not as a curve: rows of theirs hold one evaluation."""

_PANEL = (ORIGIN, "device", "dataset", "model", "blocks")
_KEY = (*_PANEL, "split", "arm", "seed", "examples_seen")
_SPLITS = ("test", "valid", "train")
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
