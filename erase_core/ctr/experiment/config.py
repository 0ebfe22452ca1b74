"""Parameters of the normalized-entropy experiment, and the data that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from erase_core import LADDER
from erase_core.bench.parameters import (
    ParameterError,
    conform_fields,
    from_parameters,
    require,
)
from erase_core.bench.throughput import resolve_device
from erase_core.ctr.models import model_options
from erase_core.ctr.prepared import ClickData, load
from erase_core.ctr.synthetic import SyntheticClicks, SyntheticDataset
from erase_core.ctr.training import Decay, Prediction

SYNTHETIC = ("synthetic-criteo", "synthetic-avazu")
"""Data sets that are generated where they are needed instead of being read."""

CRITEO_SAMPLE: Mapping[str, object] = {
    "model": "dcnv2-parallel",
    "model_options": {"blocks": 3, "width": 128, "embedding_dim": 8, "dropout": 0.2},
    "epochs": 3,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "table_learning_rate": 0.1,
    "table_eps": 2e-3,
    "weight_decay": 0.01,
    "table_weight_decay": 1e-5,
    "averaging": 0.999,
    "evaluations": 6,
}
"""Parameters for a uniform sample of about 100,000 training rows of Criteo.

For data prepared with `python -m data_prep criteo --min-count 2 --test-fraction 0.2
--valid-fraction 0.1`. Found by random search for the `baseline` arm on the validation split alone.
So few rows are overfitted within two epochs; what helps is averaging, and an epsilon that holds
back the embedding rows of rare values.
"""


@dataclass(frozen=True)
class NormalizedEntropyConfig:
    """What to train and how; every field is JSON-typed.

    Attributes:
        dataset: directory of a prepared data set, or "synthetic-criteo" or "synthetic-avazu".
        model: a key of `erase_core.ctr.MODELS`.
        model_options: options of the model, such as {"blocks": 8, "width": 256}.
        arm: a key of `erase_core.LADDER`.
        prediction: "output", the output block's head, or "mean", the mean of all heads' logits.
        seed: of initial parameters, order of rows and dropout; the same for every arm, so that
            arms can be compared in pairs.
        epochs: passes over the training split.
        batch_size: rows of a step.
        learning_rate: of Adam, which trains everything but the embedding table.
        table_learning_rate: of row-wise Adagrad, which trains the embedding table.
        weight_decay: decoupled, of matrices.
        table_weight_decay: added to the gradient of the embedding rows of a batch.
        table_eps: of row-wise Adagrad. At the size of one row's gradient (about 1 / batch size) it
            holds back the steps of rarely seen rows, which overfit first.
        averaging: decay of an exponential moving average of all parameters, with which the
            evaluations predict; 0 predicts with the parameters as they are.
        decay: "linear" takes both learning rates to zero over the run, "none" keeps them.
        evaluations: how often to evaluate on the validation and test splits, evenly spread; the
            last time is at the end.
        precision: "bfloat16" runs forwards under autocast; parameters stay float32.
        device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:1".
        synthetic_rows: training rows of a synthetic set; its other splits have a quarter each.
        synthetic_seed: of a synthetic set's rows.
        synthetic_table_rows: bound on the embedding rows of a synthetic set.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    dataset: str = "synthetic-criteo"
    model: str = "proxy"
    model_options: Mapping[str, object] = field(default_factory=dict)
    arm: str = "detached"
    prediction: Prediction = "output"
    seed: int = 0
    epochs: int = 1
    batch_size: int = 512
    learning_rate: float = 1e-3
    table_learning_rate: float = 1e-2
    weight_decay: float = 0.0
    table_weight_decay: float = 0.0
    table_eps: float = 1e-8
    averaging: float = 0.0
    decay: Decay = "none"
    evaluations: int = 5
    precision: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    synthetic_rows: int = 200_000
    synthetic_seed: int = 0
    synthetic_table_rows: int = 1 << 20

    def __post_init__(self) -> None:
        """Check types, names and ranges before anything is read or built."""
        conform_fields(self)
        require(
            self.dataset in SYNTHETIC or Path(self.dataset).is_dir(),
            "dataset",
            self.dataset,
            f"must be one of {', '.join(SYNTHETIC)}, or a directory written by "
            "`python -m data_prep`.",
        )
        try:
            model_options(self.model, **self.model_options)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"`model` (={self.model!r}) or its options: {error}") from error
        require(self.arm in LADDER, "arm", self.arm, f"must be one of: {', '.join(LADDER)}.")
        for name, least in (
            ("seed", 0),
            ("epochs", 1),
            ("batch_size", 1),
            ("evaluations", 1),
            ("synthetic_rows", 100),
            ("synthetic_seed", 0),
            ("synthetic_table_rows", 200),
        ):
            value = getattr(self, name)
            require(value >= least, name, value, f"must be at least {least}.")
        for name in ("learning_rate", "table_learning_rate", "table_eps"):
            value = getattr(self, name)
            require(value > 0, name, value, "must be positive.")
        for name in ("weight_decay", "table_weight_decay"):
            value = getattr(self, name)
            require(value >= 0, name, value, "must not be negative; 0 turns it off.")
        require(
            0 <= self.averaging < 1,
            "averaging",
            self.averaging,
            "must be at least 0 and less than 1; 0 turns it off.",
        )
        resolve_device(self.device)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> NormalizedEntropyConfig:
        """Return a configuration from JSON-typed values; see `erase_core.bench.from_parameters`."""
        return from_parameters(cls, parameters)


def open_data(config: NormalizedEntropyConfig) -> ClickData:
    """Return the data of a configuration; nothing is put on a device yet.

    Raises:
        PreparedDatasetError: if the directory is not a complete prepared data set.
    """
    if config.dataset not in SYNTHETIC:
        return load(config.dataset)
    clicks = SyntheticClicks(
        config.dataset.removeprefix("synthetic-"),
        config.synthetic_seed,
        max_rows=config.synthetic_table_rows,
    )
    held_out = config.synthetic_rows // 4
    return SyntheticDataset(clicks, (config.synthetic_rows, held_out, held_out))
