import copy

import pytest
import torch
from torch import nn

from erase_core.ctr import FusedEmbedding, RowWiseAdagrad, optimizers


def model():
    return nn.ModuleDict({"table": FusedEmbedding((3, 4), 2), "top": nn.Linear(4, 1)})


def groups_of(made):
    return {group["name"]: group for optimizer in made for group in optimizer.param_groups}


def test_tables_and_the_rest_get_their_own_optimizer_and_learning_rate():
    net = model()
    dense, tables = optimizers(0.1, 0.2, weight_decay=0.3, table_weight_decay=0.4)(net.parameters())
    assert isinstance(dense, torch.optim.Adam)
    assert isinstance(tables, RowWiseAdagrad)
    groups = groups_of([dense, tables])
    assert {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()} == {
        "matrices": (0.1, 0.3),
        "vectors": (0.1, 0.0),
        "tables": (0.2, 0.4),
    }
    assert groups["matrices"]["params"] == [net["top"].weight]
    assert groups["vectors"]["params"] == [net["top"].bias]
    assert groups["tables"]["params"] == [net["table"].weight]


def test_trains_both_kinds():
    torch.manual_seed(0)
    net = model()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    made = optimizers()(net.parameters())
    ids = torch.tensor([[0, 1], [2, 3]])
    net["top"](net["table"](ids).flatten(1)).sum().backward()
    for optimizer in made:
        optimizer.step()
    for name, parameter in net.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def test_without_decay_the_dense_part_is_adam():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    made = optimizers(0.05, betas=(0.8, 0.9), eps=1e-6)(ours.parameters())
    made.append(torch.optim.Adam(theirs.parameters(), lr=0.05, betas=(0.8, 0.9), eps=1e-6))
    for _ in range(3):
        x = torch.randn(4, 3)
        for net in (ours, theirs):
            net.zero_grad()
            net(x).square().sum().backward()
        for optimizer in made:
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("asked", "fused"), [(None, False), (False, False), (True, True)])
def test_fused_reaches_every_group_of_adam(asked, fused):
    dense, _ = optimizers(fused=asked)(model().parameters())
    assert [bool(group["fused"]) for group in dense.param_groups] == [fused, fused]
    # `fused=False` would also switch off torch's `foreach` kernels.
    assert all(group["fused"] is not False for group in dense.param_groups)


class OnCuda(nn.Parameter):
    """Says that it is a CUDA tensor, for hosts without CUDA."""

    is_cuda = True


def test_adam_is_fused_where_all_its_parameters_are_on_cuda():
    there, here = OnCuda(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    for parameters, fused in (([there], True), ([there, here], False)):
        (adam,) = optimizers()(parameters)
        assert [bool(group["fused"]) for group in adam.param_groups] == [fused]
    (adam,) = optimizers(fused=False)([there])
    assert not adam.param_groups[0]["fused"]


def test_fused_adam_updates_like_the_other():
    torch.manual_seed(0)
    start = nn.Linear(3, 2)
    after = []
    for fused in (False, True):
        net = copy.deepcopy(start)
        (adam,) = optimizers(0.05, weight_decay=0.1, fused=fused)(net.parameters())
        for step in range(3):
            for parameter in net.parameters():
                parameter.grad = torch.full_like(parameter, step - 0.5)
            adam.step()
        after.append(list(net.parameters()))
    torch.testing.assert_close(after[0], after[1])
    assert not torch.equal(after[1][0], start.weight)


def test_only_what_is_there_is_made():
    net = model()
    (dense,) = optimizers()(net["top"].parameters())
    assert isinstance(dense, torch.optim.Adam)
    (tables,) = optimizers()(net["table"].parameters())
    assert isinstance(tables, RowWiseAdagrad)
    (vectors,) = optimizers()([net["top"].bias])
    assert list(groups_of([vectors])) == ["vectors"]


def test_errors():
    with pytest.raises(ValueError, match=r"`table_learning_rate` \(=-1\)"):
        optimizers(1e-3, -1)
    with pytest.raises(ValueError, match="no parameters"):
        optimizers()([])
    bias = nn.Linear(1, 1).bias
    with pytest.raises(ValueError, match="given twice"):
        optimizers()([bias, bias])
    with pytest.raises(TypeError, match="got Tensor"):
        optimizers()([torch.ones(2)])
