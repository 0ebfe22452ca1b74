import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from erase_core.ctr import RowWiseAdagrad
from erase_core.ctr.rowwise_adagrad import sum_duplicates


def sparse(ids, values, rows):
    size = (rows, *values.shape[1:])
    return torch.sparse_coo_tensor(ids.unsqueeze(0), values, size, check_invariants=True)


def reference(weight, accumulator, gradient, *, lr, eps, weight_decay=0.0):
    """One row at a time, from a dense gradient: the definition, spelled out."""
    weight, accumulator = weight.clone(), accumulator.clone()
    for row in range(len(weight)):
        g = gradient[row]
        if not g.any():
            continue
        g = g + weight_decay * weight[row]
        accumulator[row] += (g * g).sum() / g.numel()
        weight[row] -= lr * g / (accumulator[row].sqrt() + eps)
    return weight, accumulator


@given(
    rows=st.integers(1, 12),
    dim=st.integers(1, 5),
    lookups=st.integers(0, 60),
    steps=st.integers(1, 4),
    weight_decay=st.sampled_from([0.0, 0.3]),
    start=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**20),
)
def test_equals_the_dense_reference_in_float64(
    rows, dim, lookups, steps, weight_decay, start, seed
):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, dim, dtype=torch.float64, generator=generator)
    accumulator = torch.full((rows,), start, dtype=torch.float64)
    parameter, dense = nn.Parameter(weight.clone()), nn.Parameter(weight.clone())
    options = {"lr": 0.1, "eps": 1e-8, "weight_decay": weight_decay}
    optimizer = RowWiseAdagrad([parameter], initial_accumulator=start, **options)
    dense_optimizer = RowWiseAdagrad([dense], initial_accumulator=start, **options)
    for _ in range(steps):
        # Squaring skews the ids, so that some row is looked up many times and some never.
        ids = (torch.rand(lookups, generator=generator).square() * rows).long()
        values = torch.randn(lookups, dim, dtype=torch.float64, generator=generator)
        parameter.grad = sparse(ids, values, rows)
        dense.grad = parameter.grad.to_dense()
        weight, accumulator = reference(weight, accumulator, dense.grad, **options)
        optimizer.step()
        dense_optimizer.step()
        for p, o in ((parameter, optimizer), (dense, dense_optimizer)):
            torch.testing.assert_close(p.detach(), weight, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(
                o.state[p]["accumulator"], accumulator, rtol=1e-12, atol=1e-12
            )


@given(
    ids=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    rows=st.sampled_from([7, 2**31 + 7]),
)
def test_sum_duplicates(ids, rows):
    keys = torch.tensor(ids)
    values = torch.arange(2 * len(ids), dtype=torch.float64).view(-1, 2)
    row, total, valid = sum_duplicates(keys, values, rows)
    distinct = sorted(set(ids))
    assert row[valid].tolist() == distinct
    for position, key in enumerate(distinct):
        assert torch.equal(total[position], values[keys == key].sum(0))
    assert not total[~valid].any()
    assert ((row >= 0) & (row < rows)).all()


def test_one_hot_row_is_updated_once_by_its_sum():
    parameter = nn.Parameter(torch.zeros(3, 2))
    optimizer = RowWiseAdagrad([parameter], lr=1.0, eps=1e-12)
    parameter.grad = sparse(torch.full((1000,), 1), torch.ones(1000, 2), 3)
    optimizer.step()
    # g = 1000 in each column, so the accumulator is 1000**2 and the update exactly 1.
    assert parameter.tolist() == [[0.0, 0.0], [-1.0, -1.0], [0.0, 0.0]]
    assert optimizer.state[parameter]["accumulator"].tolist() == [0.0, 1e6, 0.0]


def test_rows_that_are_not_looked_up_keep_every_bit():
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(50, 4))
    before = parameter.detach().clone()
    optimizer = RowWiseAdagrad([parameter], weight_decay=0.5)
    ids = torch.tensor([3, 3, 3, 17])
    parameter.grad = sparse(ids, torch.randn(4, 4), 50)
    optimizer.step()
    changed = (parameter != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == [3, 17]
    assert optimizer.state[parameter]["accumulator"].nonzero().flatten().tolist() == [3, 17]


def test_a_nan_stays_in_its_row():
    parameter = nn.Parameter(torch.ones(4, 2))
    optimizer = RowWiseAdagrad([parameter])
    values = torch.tensor([[float("nan"), 1.0], [1.0, 1.0], [1.0, 1.0]])
    parameter.grad = sparse(torch.tensor([2, 1, 1]), values, 4)
    optimizer.step()
    assert parameter.isnan().any(dim=1).tolist() == [False, False, True, False]


def test_empty_batch_changes_nothing():
    parameter = nn.Parameter(torch.ones(4, 2))
    optimizer = RowWiseAdagrad([parameter])
    parameter.grad = sparse(torch.zeros(0, dtype=torch.long), torch.zeros(0, 2), 4)
    optimizer.step()
    assert torch.equal(parameter, torch.ones(4, 2))
    assert not optimizer.state[parameter]["accumulator"].any()


def test_bfloat16_gradients_are_summed_in_float32():
    parameter = nn.Parameter(torch.zeros(2, 1, dtype=torch.bfloat16))
    optimizer = RowWiseAdagrad([parameter], lr=1.0, eps=1e-12)
    # In bfloat16, 256 + 1 is 256: a sum in that precision would lose every one.
    values = torch.tensor([[256.0]] + [[1.0]] * 44, dtype=torch.bfloat16)
    parameter.grad = sparse(torch.zeros(45, dtype=torch.long), values, 2)
    optimizer.step()
    accumulator = optimizer.state[parameter]["accumulator"]
    assert accumulator.dtype == torch.float32
    assert accumulator.tolist() == [300.0**2, 0.0]
    assert parameter.tolist() == [[-1.0], [0.0]]


def test_matches_adagrad_where_rows_have_one_column():
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(6, 1, dtype=torch.float64))
    other = nn.Parameter(parameter.detach().clone())
    ours = RowWiseAdagrad([parameter], lr=0.1, eps=1e-10)
    torchs = torch.optim.Adagrad([other], lr=0.1, eps=1e-10)
    for _ in range(5):
        values = torch.randn(20, 1, dtype=torch.float64)
        parameter.grad = sparse(torch.randint(6, (20,)), values, 6)
        other.grad = parameter.grad.to_dense()
        ours.step()
        torchs.step()
    torch.testing.assert_close(parameter, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resumes_exactly(dtype):
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(6, 3).to(dtype))
    optimizer = RowWiseAdagrad([parameter], lr=0.1)

    def train(parameter, optimizer, seed):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(6, (20,), generator=generator)
        parameter.grad = sparse(ids, torch.randn(20, 3, generator=generator).to(dtype), 6)
        optimizer.step()

    train(parameter, optimizer, 1)
    saved = copy.deepcopy(optimizer.state_dict())
    resumed = nn.Parameter(parameter.detach().clone())
    resumed_optimizer = RowWiseAdagrad([resumed], lr=99.0)
    resumed_optimizer.load_state_dict(saved)
    train(parameter, optimizer, 2)
    train(resumed, resumed_optimizer, 2)

    assert torch.equal(parameter, resumed)
    assert torch.equal(
        optimizer.state[parameter]["accumulator"], resumed_optimizer.state[resumed]["accumulator"]
    )
    # The saved state was copied, not shared.
    assert not torch.equal(
        saved["state"][0]["accumulator"], optimizer.state[parameter]["accumulator"]
    )


def test_refuses_another_optimizers_state():
    parameter = nn.Parameter(torch.ones(3, 2))
    adam = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(3, 2)
    adam.step()
    with pytest.raises(ValueError, match="has no accumulator"):
        RowWiseAdagrad([parameter]).load_state_dict(adam.state_dict())


def test_groups_closure_and_tensor_learning_rate():
    fast, slow, idle = (nn.Parameter(torch.ones(2, 2)) for _ in range(3))
    optimizer = RowWiseAdagrad(
        [{"params": [fast], "lr": torch.tensor(0.5)}, {"params": [slow, idle]}], lr=0.25, eps=1e-12
    )

    def closure():
        loss = fast.sum() + slow.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 8.0
    assert fast.tolist() == [[0.5, 0.5]] * 2
    assert slow.tolist() == [[0.75, 0.75]] * 2
    assert idle.tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize(
    "options",
    [{"lr": -1.0}, {"eps": 0.0}, {"weight_decay": -0.1}, {"initial_accumulator": -1.0}],
)
def test_bad_hyperparameters(options):
    (name, value), *_ = options.items()
    with pytest.raises(ValueError, match=rf"`{name}` \(={value}\)"):
        RowWiseAdagrad([nn.Parameter(torch.ones(2, 2))], **options)


def test_bad_parameters_and_gradients():
    with pytest.raises(TypeError, match="complex64"):
        RowWiseAdagrad([nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))])
    with pytest.raises(ValueError, match="no rows"):
        RowWiseAdagrad([nn.Parameter(torch.tensor(1.0))])
    parameter = nn.Parameter(torch.ones(2, 2))
    parameter.grad = torch.ones(2, 2).to_sparse()  # sparse in both dimensions
    with pytest.raises(ValueError, match="not sparse in rows alone"):
        RowWiseAdagrad([parameter]).step()
