"""Prepared data sets against a slow reference, and against the layout that readers rely on."""

import gzip
import json
import lzma
import os
from pathlib import Path

import data_prep_reference as reference
import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import zstandard

import data_prep
from erase_core.ctr.schema import CtrSchema

FRACTIONS = {"test_fraction": 0.2, "valid_fraction": 0.1}


@pytest.fixture(scope="module")
def criteo(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "train.txt"
    path.write_text(reference.criteo_text(600))
    return path


@pytest.fixture(scope="module")
def avazu(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "train.csv"
    path.write_text(reference.avazu_text(500))
    return path


def columns(out: Path, split: str) -> dict[str, np.ndarray]:
    return datasets.load_from_disk(str(out))[split].with_format("numpy")[:]


def test_log_bins_equal_the_slow_reference(criteo, tmp_path):
    out = tmp_path / "out"
    manifest = data_prep.prepare("criteo", criteo, out, min_count=3, **FRACTIONS)
    labels, _, keys = reference.criteo_keys(criteo.read_text(), log_bins=True)
    splits = reference.time_split(list(range(600)), 0.2, 0.1)
    vocabulary = reference.vocabularies(keys, splits["train"], 3)
    assert manifest["cardinalities"] == [len(field) + 2 for field in vocabulary]
    for name, rows in splits.items():
        got = columns(out, name)
        assert got["label"].tolist() == [labels[row] for row in rows]
        assert got["ids"].tolist() == reference.encoded(keys, vocabulary, rows)
        assert "dense" not in got


def test_standardize_equals_the_slow_reference(criteo, tmp_path):
    out = tmp_path / "out"
    manifest = data_prep.prepare(
        "criteo", criteo, out, recipe="standardize", min_count=2, **FRACTIONS
    )
    _, numbers, keys = reference.criteo_keys(criteo.read_text(), log_bins=False)
    splits = reference.time_split(list(range(600)), 0.2, 0.1)
    vocabulary = reference.vocabularies(keys, splits["train"], 2)
    for name, rows in splits.items():
        got = columns(out, name)
        dense, scales = reference.standardized(numbers, splits["train"], rows)
        np.testing.assert_allclose(got["dense"], dense, rtol=1e-5, atol=1e-6)
        assert got["ids"].tolist() == reference.encoded(keys, vocabulary, rows)
    fitted = [(s["mean"], s["deviation"]) for s in manifest["scaling"].values()]
    np.testing.assert_allclose(fitted, scales)
    assert list(manifest["scaling"]) == manifest["dense"] == [f"I{i}" for i in range(1, 14)]


def test_avazu_equals_the_slow_reference_in_order_of_time(avazu, tmp_path):
    out = tmp_path / "out"
    manifest = data_prep.prepare("avazu", avazu, out, **FRACTIONS)
    labels, hours, keys = reference.avazu_keys(avazu.read_text())
    order = sorted(range(500), key=lambda row: hours[row])
    assert order != list(range(500))
    splits = reference.time_split(order, 0.2, 0.1)
    vocabulary = reference.vocabularies(keys, splits["train"], 2)
    assert manifest["cardinalities"] == [len(field) + 2 for field in vocabulary]
    assert manifest["categorical"][:4] == ["hour", "weekday", "weekend", "C1"]
    assert "id" not in manifest["categorical"]
    for name, rows in splits.items():
        got = columns(out, name)
        assert got["label"].tolist() == [labels[row] for row in rows]
        assert got["ids"].tolist() == reference.encoded(keys, vocabulary, rows)


def test_random_split_has_every_row_once_and_follows_the_seed(criteo, tmp_path):
    # A category of its own for each row, so that a row can be told from its vocabulary entry.
    lines = [line.split("\t") for line in criteo.read_text().splitlines()]
    for number, fields in enumerate(lines):
        fields[0], fields[1] = str(number % 2), str(number)
    source = tmp_path / "numbered.txt"
    source.write_text("\n".join("\t".join(fields) for fields in lines))

    def numbers(out: Path) -> dict[str, list[int]]:
        manifest = json.loads((out / "manifest.json").read_text())
        scale = manifest["scaling"]["I1"]
        return {
            name: np.expm1(columns(out, name)["dense"][:, 0] * scale["deviation"] + scale["mean"])
            .round()
            .astype(int)
            .tolist()
            for name in manifest["splits"]
        }

    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        data_prep.prepare(
            "criteo",
            source,
            tmp_path / name,
            recipe="standardize",
            split="random",
            seed=seed,
            **FRACTIONS,
        )
        found.append(numbers(tmp_path / name))
    assert found[0] == found[1] != found[2]
    assert {name: len(rows) for name, rows in found[0].items()} == {
        "train": 420,
        "valid": 60,
        "test": 120,
    }
    assert sorted(sum(found[0].values(), [])) == list(range(600))
    assert all(rows == sorted(rows) for rows in found[0].values())
    assert found[0]["test"] != list(range(480, 600))


def test_nothing_of_validation_and_test_rows_reaches_vocabularies_or_scales(criteo, tmp_path):
    lines = criteo.read_text().splitlines()
    # Train rows are the first 420. Replace every later value by one that training rows lack.
    alien = ["\t".join([line[0], *["777777777"] * 13, *["deadbeef"] * 26]) for line in lines[420:]]
    source = tmp_path / "alien.txt"
    source.write_text("\n".join(lines[:420] + alien) + "\n")
    for recipe in ("log-bins", "standardize"):
        options = {"recipe": recipe, "min_count": 1, **FRACTIONS}
        plain = data_prep.prepare("criteo", criteo, tmp_path / f"{recipe}-plain", **options)
        other = data_prep.prepare("criteo", source, tmp_path / f"{recipe}-alien", **options)
        assert other["cardinalities"] == plain["cardinalities"]
        assert other["scaling"] == plain["scaling"]
        assert other["splits"]["train"]["sha256"] == plain["splits"]["train"]["sha256"]
        for name in plain["categorical"]:
            tables = [
                pl.read_parquet(tmp_path / f"{recipe}-{kind}" / "vocabularies" / f"{name}.parquet")
                for kind in ("plain", "alien")
            ]
            assert tables[0].equals(tables[1])
            assert "deadbeef" not in tables[1]["value"]
        for split in ("valid", "test"):
            assert (columns(tmp_path / f"{recipe}-alien", split)["ids"] == 1).all()


def test_layout_is_memory_mapped_and_typed_as_promised(criteo, tmp_path):
    out = tmp_path / "out"
    manifest = data_prep.prepare("criteo", criteo, out, recipe="standardize", **FRACTIONS)
    loaded = datasets.load_from_disk(str(out), keep_in_memory=False)
    assert list(loaded) == ["train", "valid", "test"]
    for name, split in loaded.items():
        assert len(split) == manifest["splits"][name]["rows"]
        assert [Path(file["filename"]).parent.name for file in split.cache_files] == [name]
        assert split.data.schema.types == [
            pa.uint8(),
            pa.list_(pa.float32(), 13),
            pa.list_(pa.int32(), 26),
        ]
    assert sorted(path.name for path in out.iterdir()) == [
        "dataset_dict.json",
        "manifest.json",
        "test",
        "train",
        "valid",
        "vocabularies",
    ]
    assert json.loads((out / "manifest.json").read_text()) == manifest
    schema = CtrSchema.from_manifest(manifest)
    assert (schema.dataset, schema.fields, len(schema.dense)) == ("criteo-sample", 26, 13)
    assert os.listdir(tmp_path) == ["out"]


def test_manifest_counts_rows_clicks_and_source(criteo, tmp_path):
    manifest = data_prep.prepare("criteo", criteo, tmp_path / "out", **FRACTIONS)
    labels = [int(line[0]) for line in criteo.read_text().splitlines()]
    assert (manifest["rows"], manifest["clicks"]) == (600, sum(labels))
    assert manifest["splits"]["test"]["clicks"] == sum(labels[480:])
    assert manifest["splits"]["test"]["click_rate"] == sum(labels[480:]) / 120
    assert manifest["source"]["name"] == "train.txt"
    assert manifest["source"]["bytes"] == criteo.stat().st_size
    assert manifest["synthetic"] is False and manifest["bad_rows"] == {}


def test_vocabulary_files_tell_the_value_behind_each_id(tmp_path):
    row = ["1", *["7"] * 13, *["0a"] * 26]
    lines = [row, row, row, [*row[:-1], "a"], [*row[:-1], "A"], [*row[:-1], "FFFFFFFF"], row, row]
    source = tmp_path / "train.txt"
    source.write_text("\n".join(map("\t".join, lines)))
    data_prep.prepare("criteo", source, tmp_path / "out", min_count=1)
    table = pl.read_parquet(tmp_path / "out" / "vocabularies" / "C26.parquet")
    # Leading zeros tell categories apart, upper and lower case do not.
    assert table.rows() == [(2, "0a", 3), (3, "a", 2), (4, "ffffffff", 1)]
    integers = pl.read_parquet(tmp_path / "out" / "vocabularies" / "I1.parquet")
    assert integers.rows() == [(2, "3", 6)]


COMPRESSORS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
    # Two members, as pigz, pxz and `cat` make them, and the name of a plain file.
    ".txt": lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:]) + b"\0\0\0",
}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_source_gives_the_same_content(criteo, tmp_path, suffix):
    packed = tmp_path / f"packed{suffix}"
    packed.write_bytes(COMPRESSORS[suffix](criteo.read_bytes()))
    plain = data_prep.prepare("criteo", criteo, tmp_path / "plain")
    other = data_prep.prepare("criteo", packed, tmp_path / "packed")
    assert other["splits"] == plain["splits"]
    assert other["source"]["compression"] != plain["source"]["compression"] == "none"


def test_forms_with_commas_header_index_and_crlf_give_the_same_content(criteo, tmp_path):
    text = criteo.read_text()
    names = [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]
    commas = text.replace("\t", ",")
    indexed = "".join(f"{10**7 + i},{line}\n" for i, line in enumerate(commas.splitlines()))
    forms = {
        "commas": commas,
        "header": ",".join(["label", *names]) + "\n" + commas,
        "capital": ",".join(["Label", *names]) + "\n" + commas,
        "indexed": ",".join(["Id", "Label", *names]) + "\n" + indexed,
        "crlf": text.replace("\n", "\r\n"),
        "unended": text.removesuffix("\n"),
        "pandas": text.replace("\t7\t", "\t7.0\t"),
    }
    expected = data_prep.prepare("criteo", criteo, tmp_path / "plain")["splits"]
    for name, form in forms.items():
        source = tmp_path / f"{name}.txt"
        source.write_bytes(form.encode())
        assert data_prep.prepare("criteo", source, tmp_path / name)["splits"] == expected, name


def test_decimal_numbers_are_for_files_with_header_and_standardize(tmp_path):
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    rows = [[str(i % 2), *[f"0.{i}"] * 13, *["12"] * 26] for i in range(10)]
    source = tmp_path / "train.csv"
    source.write_text("\n".join(map(",".join, [names, *rows])))
    out = tmp_path / "out"
    data_prep.prepare("criteo", source, out, recipe="standardize")
    raw = np.log1p([i / 10 for i in range(8)])
    expected = (raw - raw.mean()) / raw.std()
    np.testing.assert_allclose(columns(out, "train")["dense"][:, 0], expected, rtol=1e-5)
    with pytest.raises(data_prep.NumberError, match="train.csv:3: I1 = '0.1' is not an integer"):
        data_prep.prepare("criteo", source, tmp_path / "bins", recipe="log-bins")
    source.write_text("\n".join(map("\t".join, rows)))
    with pytest.raises(data_prep.NumberError):
        data_prep.prepare("criteo", source, tmp_path / "raw", recipe="standardize")


@pytest.mark.parametrize("value", [7, 123456789])
def test_a_constant_input_becomes_zero_and_does_not_blow_up_other_values(tmp_path, value):
    # Rounding gives 80 equal logarithms a standard deviation that is tiny, not zero.
    rows = [["0", *[str(value)] * 13, *["12"] * 26] for _ in range(1000)]
    rows[-1][1] = "8"
    source = tmp_path / "train.txt"
    source.write_text("\n".join(map("\t".join, rows)))
    manifest = data_prep.prepare("criteo", source, tmp_path / "out", recipe="standardize")
    assert manifest["scaling"]["I1"] == {"mean": pytest.approx(np.log1p(value)), "deviation": 1.0}
    assert not columns(tmp_path / "out", "train")["dense"].any()
    dense = columns(tmp_path / "out", "test")["dense"]
    assert dense[-1, 0] == pytest.approx(np.log1p(8) - np.log1p(value), rel=1e-5)


@pytest.mark.parametrize("name", ["[x]", "{a,b}", "a*b?", "with space", "ünï→", "%20#"])
def test_any_name_of_a_directory_will_do(criteo, tmp_path, name):
    manifest = data_prep.prepare("criteo", criteo, tmp_path / name / name)
    assert (
        len(columns(tmp_path / name / name, "train")["label"])
        == manifest["splits"]["train"]["rows"]
    )


def test_fingerprint_follows_recipe_split_and_content_and_nothing_else(criteo, tmp_path):
    copy = tmp_path / "renamed.tsv"
    copy.write_bytes(criteo.read_bytes())
    edited = tmp_path / "edited.txt"
    edited.write_text(reference.criteo_text(600, seed=1))
    variants = {
        "plain": (criteo, {}),
        "again": (copy, {"seed": 5}),  # a time split has no seed
        "count": (criteo, {"min_count": 2}),
        "recipe": (criteo, {"recipe": "standardize"}),
        "random": (criteo, {"split": "random"}),
        "seeded": (criteo, {"split": "random", "seed": 5}),
        "fraction": (criteo, {"test_fraction": 0.2}),
        "edited": (edited, {}),
    }
    prints = {
        name: data_prep.prepare("criteo", source, tmp_path / name, **options)["fingerprint"]
        for name, (source, options) in variants.items()
    }
    assert prints.pop("again") == prints["plain"]
    assert len(set(prints.values())) == len(prints)
    files = [path for path in (tmp_path / "plain").rglob("*") if path.is_file()]
    for path in files:
        if path.name != "manifest.json":
            again = tmp_path / "again" / path.relative_to(tmp_path / "plain")
            assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "movielens"}, "unknown data set 'movielens'"),
        ({"recipe": "hour-features"}, "criteo has no recipe 'hour-features'"),
        ({"min_count": 0}, "`min_count` .=0. must be at least 1"),
        ({"split": "fold"}, "`split` .='fold'."),
        ({"test_fraction": 1.0}, "`test_fraction`"),
        ({"test_fraction": 0.5, "valid_fraction": 0.5}, "leave no training rows"),
        ({"seed": -1}, "`seed`"),
        ({"on_bad_row": "ignore"}, "`on_bad_row` .='ignore'."),
    ],
)
def test_impossible_options_are_refused_before_the_source_is_touched(tmp_path, options, message):
    arguments = {"dataset": "criteo", "source": tmp_path / "none", "out": tmp_path / "out"}
    with pytest.raises(data_prep.OptionError, match=message):
        data_prep.prepare(**(arguments | options))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rows": 0}, data_prep.OptionError, "`rows` .=0. must be at least 1"),
        ({"rows": 10**20}, data_prep.OptionError, r"at least 1 and less than 2\*\*31"),
        ({"rows": 3}, data_prep.TooFewRowsError, "/out: 3 rows give 3, 0, 0 rows"),
        ({"seed": 1 << 62}, data_prep.OptionError, "`seed` .=4611686018427387904."),
    ],
)
def test_impossible_synthetic_rows_are_refused(tmp_path, options, error, message):
    arguments = {"name": "criteo", "rows": 100, "out": tmp_path / "out"}
    with pytest.raises(error, match=message):
        data_prep.prepare_synthetic(**(arguments | options))
    assert os.listdir(tmp_path) == []


def test_synthetic_rows_say_so_and_know_their_bayes_entropy(tmp_path):
    for name, rate in (("criteo", 0.256), ("avazu", 0.170)):
        out = tmp_path / name
        manifest = data_prep.prepare_synthetic(name, 4000, out, seed=3)
        again = data_prep.prepare_synthetic(name, 4000, tmp_path / f"{name}2", seed=3)
        assert manifest == again
        assert manifest["synthetic"] is True and manifest["dataset"] == f"synthetic-{name}"
        assert manifest["source"]["generator"] == {"name": name, "rows": 4000, "seed": 3}
        assert manifest["rows"] == 4000
        assert manifest["click_rate"] == pytest.approx(rate, abs=0.03)
        for split in manifest["splits"].values():
            assert 0.5 < split["bayes_normalized_entropy"] < 0.95
        assert len(columns(out, "test")["label"]) == 400


@pytest.mark.parametrize(("rows", "name"), [(599, "criteo-sample"), (600, "criteo-full")])
def test_only_all_rows_are_called_full(tmp_path, monkeypatch, rows, name):
    """Kaggle's files are too long for a test, so what counts as all rows is made short."""
    monkeypatch.setitem(data_prep.manifest.FULL_ROWS, "criteo", 600)
    (tmp_path / "train.txt").write_text(reference.criteo_text(rows))
    manifest = data_prep.prepare("criteo", tmp_path / "train.txt", tmp_path / "out")
    assert manifest["dataset"] == name
