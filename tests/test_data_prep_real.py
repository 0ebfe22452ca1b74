"""Real Criteo and Avazu rows: every row accounted for, ids equal to the slow reference."""

import lzma

import data_prep_reference as reference
import datasets
import pytest

import data_prep


def test_every_criteo_row_and_click_is_there(real_data, tmp_path):
    source = real_data / "criteo" / "w261_train_137139.tsv.xz"
    for recipe in ("log-bins", "standardize"):
        manifest = data_prep.prepare(
            "criteo", source, tmp_path / recipe, recipe=recipe, test_fraction=0.2
        )
        assert (manifest["rows"], manifest["clicks"]) == (137_139, 35_213)
        assert manifest["splits"]["test"]["rows"] == round(137_139 * 0.2)
        assert manifest["click_rate"] == pytest.approx(0.2568, abs=5e-5)


def test_every_avazu_row_and_click_is_there(real_data, tmp_path):
    source = real_data / "avazu" / "random_20000.csv"
    for split in ("time", "random"):
        manifest = data_prep.prepare("avazu", source, tmp_path / split, split=split)
        assert (manifest["rows"], manifest["clicks"]) == (20_000, 3_354)


def test_real_ids_equal_the_reference(real_data, tmp_path):
    with lzma.open(real_data / "criteo" / "w261_train_137139.tsv.xz", "rt") as file:
        text = "".join(next(file) for _ in range(4000))
    source = tmp_path / "train.txt"
    source.write_text(text)
    data_prep.prepare("criteo", source, tmp_path / "out", min_count=3)
    _, _, keys = reference.criteo_keys(text, log_bins=True)
    splits = reference.time_split(list(range(4000)), 0.1, 0.1)
    vocabulary = reference.vocabularies(keys, splits["train"], 3)
    loaded = datasets.load_from_disk(str(tmp_path / "out"))
    for name, rows in splits.items():
        assert loaded[name]["ids"][:] == reference.encoded(keys, vocabulary, rows)


def test_other_real_files_pass_or_are_refused_by_name(real_data, tmp_path):
    counts = {
        "criteo/head_10001.tsv": (10_001, 2_182),
        "criteo/paddlerec_a_100.tsv": (100, 29),
        "criteo/paddlerec_b_100.tsv": (100, 29),
        "avazu/head_9999.csv": (9_999, 1_706),
        "avazu/first100k_split_24999.csv": (24_999, 4_366),
    }
    refused = {
        "criteo/w261_test_unlabelled_18181.tsv.xz": data_prep.ColumnCountError,
        "criteo/test_head_10000_unlabelled.tsv.xz": data_prep.ColumnCountError,
        "criteo/cafpereira_weka_train_45840_20cols.arff.xz": data_prep.ColumnCountError,
        "criteo/fibinet_100000_encoded.tsv.xz": data_prep.NumberError,
        "avazu/test_head_9999_unlabelled.csv.xz": data_prep.HeaderError,
    }
    missing = [name for name in (*counts, *refused) if not (real_data / name).is_file()]
    if missing:
        pytest.skip(f"{real_data} lacks {' and '.join(missing)}")
    for name, expected in counts.items():
        dataset = name.partition("/")[0]
        manifest = data_prep.prepare(dataset, real_data / name, tmp_path / name)
        assert (manifest["rows"], manifest["clicks"]) == expected
    for name, error in refused.items():
        with pytest.raises(error) as caught:
            data_prep.prepare(name.partition("/")[0], real_data / name, tmp_path / name)
        assert caught.value.line == 1
