"""From a raw file to a prepared data set: read, split, fit, encode, write, describe."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from . import manifest as manifests
from . import vocabulary as vocabularies
from .errors import OptionError
from .layouts import Kind
from .plan import Plan
from .spool import Spool, read_source
from .staging import staged
from .writer import Table, write_dataset


def prepare(
    dataset: str,
    source: str | Path,
    out: str | Path,
    *,
    recipe: str | None = None,
    min_count: int | None = None,
    split: str = "time",
    test_fraction: float = 0.1,
    valid_fraction: float = 0.1,
    seed: int = 0,
    on_bad_row: str = "error",
    progress: bool = False,
) -> dict[str, Any]:
    """Prepare a raw Criteo or Avazu file as a memory-mapped data set.

    `out` becomes a directory that `datasets.load_from_disk` opens (splits `train`, `valid`,
    `test`; columns `label` uint8, `dense` float32 [inputs] where there are dense inputs,
    `ids` int32 [fields]) with `manifest.json` and the vocabularies (`vocabularies/FIELD.parquet`:
    id, value, count). Vocabularies and scalings are fitted on the training split alone. In every
    field id 0 is a missing value and 1 a value outside the vocabulary.

    Args:
        dataset: "criteo" or "avazu".
        source: the raw file, plain or compressed (gzip, xz, zstd, bzip2).
        out: must not exist yet; it appears complete or not at all.
        recipe: "log-bins" (default) or "standardize" for Criteo, "hour-features" for
            Avazu; see `data_prep.RECIPES`.
        min_count: training rows that a value needs for an id of its own; default 10 for Criteo
            and 2 for Avazu.
        split: "time" or "random".
        test_fraction, valid_fraction: parts of all rows.
        seed: of the random split.
        on_bad_row: "error" stops at the first row that cannot be used; "skip" leaves such
            rows out and counts them by reason in the manifest.
        progress: show progress bars on stderr.

    Returns:
        The manifest, as written to `out/manifest.json`.

    Raises:
        DataPrepError: about the source, a row or the output; names file, line and remedy.
        OptionError (a ValueError): an option that cannot be.
    """
    plan = Plan.of(
        dataset,
        recipe=recipe,
        min_count=min_count,
        split=split,
        test_fraction=test_fraction,
        valid_fraction=valid_fraction,
        seed=seed,
        on_bad_row=on_bad_row,
        progress=progress,
    )
    with staged(Path(out)) as (filled, scratch):
        return build(plan, Path(source), filled, scratch)


def prepare_synthetic(
    name: str,
    rows: int,
    out: str | Path,
    *,
    recipe: str | None = None,
    min_count: int | None = None,
    split: str = "time",
    test_fraction: float = 0.1,
    valid_fraction: float = 0.1,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, Any]:
    """Generate synthetic rows in a data set's raw form and prepare them like real ones.

    `name` is "criteo" or "avazu"; `seed` is that of the generator and of a random split.
    The manifest says `"synthetic": true`, its data set is "synthetic-criteo" or
    "synthetic-avazu", and each split has `bayes_normalized_entropy`, the normalized entropy
    of the probabilities behind the labels, below which no model can be expected to go. Other
    parameters, result and errors as in `prepare`.
    """
    plan = Plan.of(
        name,
        recipe=recipe,
        min_count=min_count,
        split=split,
        test_fraction=test_fraction,
        valid_fraction=valid_fraction,
        seed=seed,
        on_bad_row="error",
        progress=progress,
    )
    if not 1 <= rows < 1 << 31:
        raise OptionError(f"`rows` (={rows}) must be at least 1 and less than 2**31")
    plan.policy.sizes(rows, Path(out))
    # Here, because it needs torch, which preparing real rows does not.
    from .synthetic import write_raw

    with staged(Path(out)) as (filled, scratch):
        raw = scratch / f"synthetic-{name}.txt"
        try:
            info = write_raw(name, rows, seed, raw, progress=progress)
        except ValueError as error:
            raise OptionError(str(error)) from error
        generator = {"name": name, "rows": rows, "seed": seed}
        return build(plan, raw, filled, scratch, generator, info.bayes_normalized_entropy)


def build(
    plan: Plan,
    source: Path,
    filled: Path,
    scratch: Path,
    generator: dict[str, Any] | None = None,
    bayes: Callable[[np.ndarray], float] | None = None,
) -> dict[str, Any]:
    """Fill a directory with the prepared data set; return its manifest.

    For synthetic rows, `generator` says what made them and `bayes` gives the Bayes-optimal
    normalized entropy of rows of the source.
    """
    recipe = plan.recipe
    spool = Spool(scratch)
    # Not `Path`'s methods: they raise, here where an error is taken for one of the output.
    size = os.path.getsize(source) if os.path.isfile(source) else 0
    with plan.bar("read", size, "B") as bar:
        record, bad = read_source(
            source,
            recipe.layout,
            spool,
            decimals=recipe.decimals,
            skip=plan.skip,
            progress=bar.update,
        )
    label = spool.column(pl.col(recipe.layout.named(Kind.LABEL)[0])).to_numpy()
    hours = [spool.column(pl.col(name)).to_numpy() for name in recipe.layout.named(Kind.HOUR)]
    splits = plan.policy.rows(spool.rows, hours[0] if hours else None, source)
    training = np.zeros(spool.rows, bool)
    training[splits["train"]] = True
    with plan.bar("fit and encode", len(recipe.dense) + len(recipe.fields), "field") as bar:
        table, cardinalities, scaling = _columns(
            plan, spool, label, pl.Series(training), filled, scratch, bar.update
        )
    spool.remove()
    with plan.bar("write", spool.rows, "row") as bar:
        content = write_dataset(filled, table, splits, bar.update)
    described = {name: manifests.describe_split(label[rows]) for name, rows in splits.items()}
    if bayes is not None:
        for name, rows in splits.items():
            described[name]["bayes_normalized_entropy"] = bayes(rows)
    manifest = manifests.build(
        recipe=recipe,
        min_count=plan.min_count,
        policy=plan.policy,
        source=record,
        bad=bad,
        cardinalities=cardinalities,
        scaling=scaling,
        splits=described,
        content=content,
        generator=generator,
    )
    text = json.dumps(manifest, indent=2, allow_nan=False) + "\n"
    (filled / "manifest.json").write_text(text, encoding="utf-8")
    return manifest


def _columns(
    plan: Plan,
    spool: Spool,
    label: np.ndarray,
    training: pl.Series,
    filled: Path,
    scratch: Path,
    progress: Callable[[int], object],
) -> tuple[Table, list[int], dict[str, tuple[float, float]]]:
    # One column at a time, each encoded into a file that is mapped, not held, from then on.
    dense, ids = [], []
    cardinalities: list[int] = []
    scaling: dict[str, tuple[float, float]] = {}
    for numeric in plan.recipe.dense:
        values = spool.column(numeric.value)
        mean, deviation = vocabularies.fit_scale(values, training)
        scaling[numeric.name] = (mean, deviation)
        dense.append(
            _mapped(scratch / f"dense-{numeric.name}", vocabularies.scale(values, mean, deviation))
        )
        progress(1)
    directory = filled / "vocabularies"
    directory.mkdir()
    for field in plan.recipe.fields:
        keys = spool.column(field.key)
        vocabulary = vocabularies.fit(keys, training, plan.min_count)
        cardinalities.append(vocabulary.height + vocabularies.FIRST_ID)
        ids.append(_mapped(scratch / f"ids-{field.name}", vocabularies.encode(keys, vocabulary)))
        spelled = vocabularies.shown(vocabulary["value"], hexadecimal=field.hexadecimal)
        buffer = io.BytesIO()
        vocabulary.with_columns(value=spelled).write_parquet(buffer)
        (directory / f"{field.name}.parquet").write_bytes(buffer.getbuffer())
        progress(1)
    return Table(label, dense, ids), cardinalities, scaling


def _mapped(path: Path, column: np.ndarray) -> np.ndarray:
    path.write_bytes(np.ascontiguousarray(column).data)
    return np.memmap(path, column.dtype, "r")
