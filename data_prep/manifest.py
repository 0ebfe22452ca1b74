"""The manifest of a prepared data set: what it holds, how it was made, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from erase_core.ctr.schema import MISSING_ID, OUT_OF_VOCABULARY_ID

from .recipes import Recipe
from .splits import SplitPolicy
from .spool import BadRows, SourceRecord

FORMAT = 1
"""Version of the layout on disk."""

FULL_ROWS = {"criteo": 45_840_617, "avazu": 40_428_967}
"""Rows of Kaggle's training files: a data set of fewer is called a sample, lest it pass for all."""


def describe_split(label: np.ndarray) -> dict[str, Any]:
    """Rows, clicks and click rate of a split's labels."""
    rows, clicks = int(label.size), int(label.sum(dtype=np.int64))
    return {"rows": rows, "clicks": clicks, "click_rate": clicks / rows}


def build(
    *,
    recipe: Recipe,
    min_count: int,
    policy: SplitPolicy,
    source: SourceRecord,
    bad: BadRows,
    cardinalities: list[int],
    scaling: Mapping[str, tuple[float, float]],
    splits: Mapping[str, dict[str, Any]],
    content: Mapping[str, str],
    generator: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Assemble the manifest.

    `scaling` holds mean and deviation of each dense input after the signed logarithm, `content`
    the content hash of each split, `generator` what made the rows where they are synthetic. The
    data set's name ends in "-full" or "-sample" by its number of rows, or begins with "synthetic-".

    The fingerprint is a hash over the recipe, the bytes of the source (not its name), the split
    and the prepared content: equal fingerprints mean equal data made in the same way.
    """
    dataset = recipe.layout.dataset
    how = {
        "name": recipe.name,
        "min_count": min_count,
        "missing_id": MISSING_ID,
        "out_of_vocabulary_id": OUT_OF_VOCABULARY_ID,
    }
    split = asdict(policy)
    if policy.name != "random":
        split["seed"] = None
    total = {name: sum(part[name] for part in splits.values()) for name in ("rows", "clicks")}
    whole = total["rows"] + sum(bad.counts.values()) == FULL_ROWS[dataset]
    extent = "full" if whole else "sample"
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "dataset": f"synthetic-{dataset}" if generator is not None else f"{dataset}-{extent}",
        "synthetic": generator is not None,
        "recipe": how,
        "source": asdict(source),
        "split": split,
        "dense": [dense.name for dense in recipe.dense],
        "categorical": [field.name for field in recipe.fields],
        "cardinalities": cardinalities,
        "scaling": {
            name: {"mean": mean, "deviation": deviation}
            for name, (mean, deviation) in scaling.items()
        },
        **total,
        "click_rate": total["clicks"] / total["rows"],
        "splits": {name: {**part, "sha256": content[name]} for name, part in splits.items()},
        "bad_rows": bad.counts,
        "bad_rows_first_line": bad.first_line,
    }
    if generator is not None:
        manifest["source"]["generator"] = dict(generator)
    manifest["fingerprint"] = fingerprint(manifest)
    return manifest


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Hash of what identifies prepared data: recipe, source, split and content."""
    identity = {key: manifest[key] for key in ("format", "dataset", "recipe", "split")}
    identity["source"] = manifest["source"]["sha256"]
    identity["content"] = {name: part["sha256"] for name, part in manifest["splits"].items()}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
