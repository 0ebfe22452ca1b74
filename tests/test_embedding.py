import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from erase_core.ctr import FusedEmbedding

CARDINALITIES = (5, 2, 9)


def random_ids(cardinalities, batch, dtype=torch.int32):
    return torch.stack([torch.randint(c, (batch,), dtype=dtype) for c in cardinalities], dim=1)


@given(
    cardinalities=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    dim=st.integers(1, 5),
    batch=st.integers(0, 7),
    data=st.data(),
)
def test_equals_one_table_a_field(cardinalities, dim, batch, data):
    fields = data.draw(st.permutations(range(len(cardinalities))))
    fields = fields[: data.draw(st.integers(1, len(fields)))]
    fused = FusedEmbedding(cardinalities, dim, fields=fields)
    tables = fused.weight.detach().split([cardinalities[f] for f in fields])
    ids = random_ids(cardinalities, batch)

    output = fused(ids)

    assert output.shape == (batch, len(fields), dim)
    for position, field in enumerate(fields):
        assert torch.equal(output[:, position], tables[position][ids[:, field].long()])
    fused.check(ids)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_gradient_is_sparse_one_entry_a_lookup_and_right(dtype):
    torch.manual_seed(0)
    fused = FusedEmbedding(CARDINALITIES, 4)
    ids = random_ids(CARDINALITIES, 6, dtype)
    weights = torch.randn(6, 3, 4)

    (fused(ids) * weights).sum().backward()

    gradient = fused.weight.grad
    assert gradient.is_sparse
    assert gradient._nnz() == 6 * 3
    expected = torch.zeros(sum(CARDINALITIES), 4)
    expected.index_add_(0, (ids + fused.offsets).flatten().long(), weights.flatten(0, 1))
    torch.testing.assert_close(gradient.to_dense(), expected)


def test_dense_gradient_on_request():
    fused = FusedEmbedding(CARDINALITIES, 4, sparse=False)
    fused(random_ids(CARDINALITIES, 6)).sum().backward()
    assert not fused.weight.grad.is_sparse


def test_default_draw_is_uniform_by_field():
    torch.manual_seed(0)
    fused = FusedEmbedding((4, 10_000), 8)
    small, large = fused.weight.detach().split((4, 10_000))
    assert small.abs().max() <= 1 / 2 < 1.2 * small.abs().max()
    assert large.abs().max() <= 1 / 100 < 1.01 * large.abs().max()


def test_normal_draw_has_the_given_deviation():
    torch.manual_seed(0)
    fused = FusedEmbedding((4, 10_000), 8, std=0.3)
    assert fused.weight.std().item() == pytest.approx(0.3, rel=0.02)


def test_a_seed_fixes_the_table():
    torch.manual_seed(3)
    first = FusedEmbedding(CARDINALITIES, 4)
    torch.manual_seed(3)
    assert torch.equal(first.weight, FusedEmbedding(CARDINALITIES, 4).weight)


def test_copies_keep_the_row_wise_tag():
    fused = FusedEmbedding(CARDINALITIES, 4)
    for copied in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert copied.weight.row_wise is True
        assert torch.equal(copied.weight, fused.weight)


def test_state_is_the_table_alone():
    fused = FusedEmbedding(CARDINALITIES, 4, fields=(2, 0))
    assert list(fused.state_dict()) == ["weight"]


def test_check_names_the_first_id_outside_its_field():
    fused = FusedEmbedding(CARDINALITIES, 4, fields=(1, 2))
    ids = torch.zeros(3, 3, dtype=torch.int32)
    ids[2, 1] = 2  # inside the table, beyond the field: forward would read another field
    fused(ids)
    with pytest.raises(ValueError, match=r"`ids\[2, 1\]` \(=2\) .* has 2 ids \(1 such"):
        fused.check(ids)
    ids[1, 2] = -1
    with pytest.raises(ValueError, match=r"`ids\[1, 2\]` \(=-1\)"):
        fused.check(ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cardinalities": (), "dim": 4}, "cardinalities"),
        ({"cardinalities": (3, 0), "dim": 4}, "cardinalities"),
        ({"cardinalities": (3,), "dim": 0}, "`dim` .=0."),
        ({"cardinalities": (3,), "dim": 2, "std": 0.0}, "`std` .=0.0."),
        ({"cardinalities": (3,), "dim": 2, "fields": ()}, "`fields` is empty"),
        ({"cardinalities": (3,), "dim": 2, "fields": (1,)}, r"columns \[1\]"),
        ({"cardinalities": (3, 3), "dim": 2, "fields": (1, 1)}, "more than once"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        FusedEmbedding(**arguments)


def test_bad_ids():
    fused = FusedEmbedding(CARDINALITIES, 4)
    with pytest.raises(ValueError, match=r"\(6, 2\); expected \[batch, 3\]"):
        fused(torch.zeros(6, 2, dtype=torch.int32))
    with pytest.raises(TypeError, match="float32"):
        fused(torch.zeros(6, 3))
