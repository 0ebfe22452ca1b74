"""Synthetic Criteo- and Avazu-like clicks from a planted teacher with a known optimum."""

from erase_core.ctr.synthetic.clicks import (
    SyntheticClicks,
    SyntheticRows,
    bayes_normalized_entropy,
)
from erase_core.ctr.synthetic.dataset import SyntheticDataset
from erase_core.ctr.synthetic.fields import Field

__all__ = [
    "Field",
    "SyntheticClicks",
    "SyntheticDataset",
    "SyntheticRows",
    "bayes_normalized_entropy",
]
