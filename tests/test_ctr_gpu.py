"""CTR parts on a GPU: nothing waits for the device, and the arms agree.

Imports torch and pytest alone, for hosts that have nothing else.
"""

import math
import os
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from erase_core import LADDER, Engine
from erase_core.ctr.embedding import FusedEmbedding
from erase_core.ctr.metrics import NormalizedEntropy
from erase_core.ctr.models import MODELS, build_model
from erase_core.ctr.optimizers import optimizers
from erase_core.ctr.rowwise_adagrad import RowWiseAdagrad
from erase_core.ctr.schema import CtrSchema

pytestmark = pytest.mark.gpu

SCHEMA = CtrSchema("synthetic-test", ("i1", "i2", "i3"), tuple("abcde"), (3, 4000, 70, 2, 11))
LOCAL_ARMS = [name for name, arm in LADDER.items() if arm.gradients == "local"]


@contextmanager
def no_sync():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextmanager
def deterministic(wanted=True):
    # cuBLAS is deterministic across streams with a workspace of its own for each.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def make_batch(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    skewed = [torch.rand(rows, generator=generator).pow(3) * c for c in SCHEMA.cardinalities]
    return {
        "ids": torch.stack(skewed, dim=1).int().cuda(),
        "dense": torch.randn(rows, len(SCHEMA.dense), generator=generator).cuda(),
        "label": torch.randint(2, (rows,), generator=generator).float().cuda(),
    }


def test_embedding_does_not_wait():
    fused = FusedEmbedding(SCHEMA.cardinalities, 4, fields=(2, 0)).cuda()
    ids = make_batch(64, 0)["ids"]
    fused(ids).sum().backward()  # the first use may initialise libraries
    fused.weight.grad = None
    with no_sync():
        fused(ids).sum().backward()


def test_normalized_entropy_does_not_wait():
    metric = NormalizedEntropy()
    batch = make_batch(64, 0)
    logits = torch.zeros(64, device="cuda")
    metric.update(logits, batch["label"])
    with no_sync():
        metric.update(logits, batch["label"])
    assert metric.compute().log_loss == pytest.approx(math.log(2), rel=1e-14)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("wanted", [False, True], ids=["atomics", "deterministic"])
def test_rowwise_adagrad_does_not_wait_and_agrees_with_the_cpu(wanted):
    torch.manual_seed(0)
    rows, lookups = 5000, 8192
    weight = torch.randn(rows, 16)
    ids = (torch.rand(lookups).pow(4) * rows).long().unsqueeze(0)
    values = torch.randn(lookups, 16)
    gradient = torch.sparse_coo_tensor(ids, values, weight.shape, check_invariants=True)

    def train(device):
        # A copy even where `weight` is already there: every run starts from the same table.
        parameter = nn.Parameter(weight.clone().to(device))
        parameter.grad = gradient.to(device)
        optimizer = RowWiseAdagrad([parameter], weight_decay=0.1)
        optimizer.step()
        with no_sync():
            optimizer.step()
            optimizer.step()
        return parameter.detach().cpu()

    cpu = train("cpu")
    with deterministic(wanted):
        first, second = train("cuda"), train("cuda")
    torch.testing.assert_close(first, cpu, rtol=1e-5, atol=1e-5)
    if wanted:
        assert torch.equal(first, second)


@pytest.mark.parametrize("capturable", [False, True])
def test_adam_is_fused_and_does_not_wait(capturable):
    net = nn.Linear(4, 2).cuda()
    (adam,) = optimizers(capturable=capturable)(net.parameters())
    assert [group["fused"] for group in adam.param_groups] == [True, True]
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    with no_sync():
        adam.step()
    (unfused,) = optimizers(fused=False)(net.parameters())
    assert not any(group["fused"] for group in unfused.param_groups)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_local_arms_do_not_wait_and_give_the_parameters_of_detached(name, precision):
    batches = [make_batch(rows, step) for step, rows in enumerate((256, 256, 256, 100))]

    def train(arm):
        graph = build_model(name, SCHEMA, seed=0, width=64).cuda()
        with Engine(graph, optimizers(1e-2, 1e-1), arm, autocast=precision) as engine:
            engine.step(batches[0])
            with no_sync():
                for batch in batches[1:]:
                    engine.step(batch)
        return {path: p.detach() for path, p in graph.named_parameters()}

    with deterministic():
        oracle = train("detached")
        for arm in LOCAL_ARMS:
            for path, value in train(arm).items():
                assert torch.equal(value, oracle[path]), (arm, path)
