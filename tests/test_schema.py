import pytest

from erase_core.ctr import CtrSchema


def make(**changes):
    fields = {
        "dataset": "criteo",
        "dense": ("I1", "I2"),
        "categorical": ("C1", "C2"),
        "cardinalities": (5, 2),
    }
    return CtrSchema(**(fields | changes))


def test_counts():
    schema = make()
    assert (schema.fields, schema.rows, schema.synthetic) == (2, 7, False)
    assert make(dataset="synthetic-criteo").synthetic


def test_survives_json_and_ignores_the_manifests_other_keys():
    schema = make()
    stored = schema.to_dict()
    assert stored["cardinalities"] == [5, 2]
    assert CtrSchema.from_manifest(stored | {"format": 1}) == schema


def test_lists_become_tuples_so_that_a_schema_is_hashable():
    assert hash(make(dense=["I1", "I2"], cardinalities=[5, 2])) == hash(make())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": ""}, "`dataset` is empty"),
        ({"categorical": (), "cardinalities": ()}, "needs a categorical field"),
        ({"cardinalities": (5,)}, "has 1 entries for 2"),
        ({"dense": ("C1",)}, r"\['C1'\] occur more than once"),
        ({"cardinalities": (5, 1)}, r"'C2' \(=1\) must be between 2"),
        ({"cardinalities": (5, 2**31)}, "int32"),
    ],
)
def test_refuses_what_no_batch_can_follow(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_names_the_keys_that_a_manifest_lacks():
    with pytest.raises(ValueError, match=r"no \['cardinalities'\].*data_prep"):
        CtrSchema.from_manifest({"dataset": "x", "dense": [], "categorical": ["C1"]})
