import json
import shutil

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets.table import InMemoryTable

from erase_core.ctr import PreparedDatasetError, ResidentFeed, load

ROWS = 103


@pytest.fixture
def tensors():
    return {
        "ids": torch.arange(2 * ROWS, dtype=torch.int32).view(ROWS, 2),
        "label": torch.arange(ROWS).float(),
    }


def seen(batches):
    return torch.cat([batch["label"] for batch in batches]).tolist()


def test_an_epoch_is_every_row_once_with_a_short_last_batch(tensors):
    feed = ResidentFeed(tensors, 10, seed=1)
    batches = list(feed)
    assert [len(batch["label"]) for batch in batches] == [10] * 10 + [3]
    assert len(feed) == 11
    assert sorted(seen(batches)) == list(range(ROWS))
    for batch in batches:
        assert torch.equal(batch["ids"][:, 0], 2 * batch["label"].int())


def test_order_is_seeded_and_new_every_epoch(tensors):
    first, second = (ResidentFeed(tensors, 10, seed=1) for _ in range(2))
    epochs = [seen(first), seen(first)]
    assert [seen(second), seen(second)] == epochs
    assert epochs[0] != epochs[1] != sorted(epochs[1])
    assert seen(ResidentFeed(tensors, 10, seed=2)) != epochs[0]
    # Another batch size cuts the same order differently.
    assert seen(ResidentFeed(tensors, 7, seed=1)) == epochs[0]


def test_without_shuffling_rows_come_as_they_lie_and_batches_own_their_memory(tensors):
    feed = ResidentFeed(tensors, 50, shuffle=False)
    batches = list(feed)
    assert seen(batches) == list(range(ROWS))
    batches[0]["ids"].zero_()
    assert tensors["ids"][1, 0] == 2


@pytest.mark.parametrize("stop", [1, 5, 11, 14])
def test_resumes_exactly(tensors, stop):
    feed = ResidentFeed(tensors, 10, seed=3)
    stream = (batch for _ in range(3) for batch in feed)
    for _ in range(stop):
        next(stream)
    state = json.loads(json.dumps(feed.state_dict()))
    rest = seen(stream)
    resumed = ResidentFeed(tensors, 10, seed=3)
    resumed.load_state_dict(state)
    left = 3 - resumed.epoch
    assert seen(batch for _ in range(left) for batch in resumed) == rest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "`seed` is 3 here but 4 in the state"),
        ({"batch_size": 20}, "`batch_size` is 10 here but 20"),
        ({"position": ROWS}, "lie outside 103 rows"),
        ({"more": 1}, "the state has"),
    ],
)
def test_refuses_a_foreign_state_and_stays_as_it_was(tensors, change, message):
    feed = ResidentFeed(tensors, 10, seed=3)
    before = feed.state_dict()
    with pytest.raises(ValueError, match=message):
        feed.load_state_dict(before | change)
    assert feed.state_dict() == before


def test_refuses_what_cannot_be_fed(tensors):
    with pytest.raises(ValueError, match=r"`batch_size` \(=0\)"):
        ResidentFeed(tensors, 0)
    with pytest.raises(ValueError, match="same number of rows"):
        ResidentFeed(tensors | {"label": torch.zeros(3)}, 10)
    with pytest.raises(ValueError, match="no rows"):
        ResidentFeed({name: tensor[:0] for name, tensor in tensors.items()}, 10)
    with pytest.raises(ValueError, match="one device"):
        ResidentFeed(tensors | {"label": torch.zeros(ROWS, device="meta")}, 10)


@pytest.mark.gpu
def test_order_does_not_depend_on_the_device(tensors):
    on_device = {name: tensor.cuda() for name, tensor in tensors.items()}
    assert seen(ResidentFeed(on_device, 10, seed=1)) == seen(ResidentFeed(tensors, 10, seed=1))


def column(values, kind):
    width = values.shape[1]
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), kind), width)


def write(path, *, rows=40, dense=True, manifest=None):
    """Write a small prepared data set; returns the arrays of its training split."""
    generator = np.random.default_rng(0)
    arrays, splits, facts = {}, {}, {}
    for split in ("train", "valid", "test"):
        ids = generator.integers(0, [3, 5], size=(rows, 2)).astype(np.int32)
        label = (np.arange(rows) % 4 == 0).astype(np.uint8)
        numbers = generator.normal(size=(rows, 3)).astype(np.float32)
        columns = {"label": pa.array(label), "ids": column(ids, pa.int32())}
        if dense:
            columns["dense"] = column(numbers, pa.float32())
        arrays[split] = {"ids": ids, "label": label, "dense": numbers}
        splits[split] = datasets.Dataset(pa.table(columns))
        facts[split] = {"rows": rows, "clicks": int(label.sum()), "click_rate": 0.25}
    datasets.DatasetDict(splits).save_to_disk(str(path))
    content = {
        "format": 1,
        "dataset": "criteo",
        "fingerprint": "abc",
        "dense": ["I1", "I2", "I3"] if dense else [],
        "categorical": ["C1", "C2"],
        "cardinalities": [3, 5],
        "splits": facts,
    } | (manifest or {})
    (path / "manifest.json").write_text(json.dumps(content))
    return arrays


@pytest.mark.parametrize("dense", [True, False])
def test_loads_what_was_written(tmp_path, dense):
    arrays = write(tmp_path / "set", dense=dense)
    prepared = load(tmp_path / "set")
    assert prepared.fingerprint == "abc" and prepared.schema.fields == 2
    for name in ("train", "valid", "test"):
        split = prepared.split(name)
        assert (split.rows, split.click_rate, split.bayes_normalized_entropy) == (40, 0.25, None)
        assert split.tensors["ids"].dtype == torch.int32
        assert split.tensors["label"].dtype == torch.float32
        assert ("dense" in split.tensors) == dense
        for key, tensor in split.tensors.items():
            assert np.array_equal(tensor.numpy(), arrays[name][key])
    next(iter(ResidentFeed(prepared.split("train").tensors, 16)))["ids"].zero_()


def test_ids_are_a_view_of_the_memory_map(tmp_path):
    write(tmp_path / "set")
    prepared = load(tmp_path / "set")
    pointers = {prepared.split("train").tensors["ids"].data_ptr() for _ in range(2)}
    assert len(pointers) == 1


def test_several_arrow_chunks_are_joined_in_order(tmp_path):
    arrays = write(tmp_path / "set")
    prepared = load(tmp_path / "set")
    table = prepared.tables["train"]
    pieces = pa.concat_tables([table.table.slice(0, 15), table.table.slice(15)])
    prepared.tables["train"] = pieces
    assert np.array_equal(prepared.split("train").tensors["ids"].numpy(), arrays["train"]["ids"])
    assert np.array_equal(prepared.split("train").tensors["dense"], arrays["train"]["dense"])


def remove(name):
    def damage(path):
        target = path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return damage


def edit(**changes):
    def damage(path):
        file = path / "manifest.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return damage


def garble(path):
    (path / "manifest.json").write_text("{")


def nested(path):
    (path / "manifest.json").write_text("[" * 100_000)


def listed(path):
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()


FACTS = {"rows": 41, "click_rate": 0.25}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("manifest.json"), "no manifest.json.*data_prep"),
        (remove("test"), "cannot be opened"),
        (remove("dataset_dict.json"), "cannot be opened"),
        (garble, "is not JSON"),
        (edit(format=2), "has format 2, this version reads 1"),
        (listed, "manifest.json cannot be read"),
        (nested, "is not JSON"),
        (edit(cardinalities=None), "manifest.json is damaged: cardinalities is 'None'"),
        (edit(cardinalities=[3.5, 5]), "is damaged: cardinalities"),
        (edit(cardinalities=[1, 5]), r"manifest.json: cardinality of 'C1' \(=1\)"),
        (edit(categorical=[]), "manifest.json: `categorical` is empty.*data_prep"),
        (edit(categorical="C1"), "is damaged: categorical is 'C1'"),
        (edit(dense=[None]), "is damaged: dense"),
        (edit(dataset=5), "is damaged: dataset"),
        (edit(fingerprint=None), "is damaged: fingerprint"),
        (edit(splits=[1]), "is damaged: splits"),
        (edit(splits={"train": None}), "is damaged: splits"),
        (edit(splits={"train": {"rows": 40}}), "is damaged: split 'train'"),
        (edit(splits={"train": FACTS | {"rows": "41"}}), "is damaged: split 'train'"),
        (edit(splits={"train": FACTS | {"click_rate": 7.0}}), "is damaged: split 'train'"),
        (edit(splits={"eval": FACTS}), "split 'eval' is missing"),
        (edit(splits={"train": FACTS}), "has 40 rows, its manifest says 41"),
        (edit(dense=[]), r"has columns \['dense', 'ids', 'label'\], expected \['ids', 'label'\]"),
        (edit(dense=["I1"]), "'dense' of split 'train' is .*, expected a fixed-size list of 1"),
    ],
)
def test_says_what_is_wrong_with_a_directory(tmp_path, damage, message):
    write(tmp_path / "set")
    damage(tmp_path / "set")
    with pytest.raises(PreparedDatasetError, match=message):
        load(tmp_path / "set")


def test_says_what_is_wrong_with_a_path(tmp_path):
    with pytest.raises(PreparedDatasetError, match="is not a directory"):
        load(tmp_path / "absent")


def test_an_id_outside_its_field_is_named(tmp_path):
    write(tmp_path / "set", manifest={"cardinalities": [3, 4]})
    with pytest.raises(PreparedDatasetError, match=r"ids 0\.\.4 in field 'C2', whose card.* 4"):
        load(tmp_path / "set").split("train")


def test_labels_that_are_no_clicks_are_counted(tmp_path):
    write(tmp_path / "set")
    prepared = load(tmp_path / "set")
    for label, message in (
        (pa.array([0, 1, 9, 255] * 10, pa.uint8()), "'train' has 20 labels that are neither 0 nor"),
        (pa.array([0, 1, None, 0] * 10, pa.uint8()), "column 'label' of split 'train' has nulls"),
    ):
        table = prepared.tables["train"].table
        place = table.column_names.index("label")
        prepared.tables["train"] = InMemoryTable(table.set_column(place, "label", label))
        with pytest.raises(PreparedDatasetError, match=message):
            prepared.split("train")


def test_an_unknown_split_is_named(tmp_path):
    write(tmp_path / "set")
    with pytest.raises(PreparedDatasetError, match="no split 'eval'; it has train, valid, test"):
        load(tmp_path / "set").split("eval")
