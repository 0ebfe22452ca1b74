import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from erase_core import LADDER, Engine
from erase_core.ctr import (
    MODELS,
    CtrSchema,
    NormalizedEntropy,
    build_model,
    model_options,
    optimizers,
)
from erase_core.ctr.models.layers import Concatenate, CrossLayer, DotInteraction
from erase_core.ctr.models.ranking import split_fields
from erase_core.tree import stop_gradient

SCHEMAS = {
    "dense": CtrSchema("synthetic-test", ("i1", "i2", "i3"), tuple("abcde"), (3, 40, 7, 2, 11)),
    "no-dense": CtrSchema("synthetic-test", (), tuple("abcd"), (3, 40, 7, 2)),
}
CRITEO = CtrSchema(
    "synthetic-criteo",
    tuple(f"I{i}" for i in range(1, 14)),
    tuple(f"C{i}" for i in range(1, 27)),
    (10,) * 26,
)
SMALL = {"width": 16, "embedding_dim": 4}
LOCAL_ARMS = [name for name, arm in LADDER.items() if arm.gradients == "local"]

each_model = pytest.mark.parametrize("name", MODELS)
each_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)


def build(name, schema, **options):
    return build_model(name, schema, **({"seed": 0} | SMALL | options))


def make_batch(schema, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(c, (rows,), generator=generator) for c in schema.cardinalities]
    batch = {
        "ids": torch.stack(ids, dim=1).int(),
        "label": torch.randint(2, (rows,), generator=generator).float(),
    }
    if schema.dense:
        batch["dense"] = torch.randn(rows, len(schema.dense), generator=generator)
    return batch


class Recorder(torch.optim.SGD):
    """Keeps the gradients of the last step and updates nothing."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.seen = {}

    def step(self, closure=None):
        self.seen = {p: p.grad for group in self.param_groups for p in group["params"]}


def dense(gradient):
    return gradient.to_dense() if gradient.is_sparse else gradient


def recorded_gradients(graph, batch, arm):
    with Engine(graph, Recorder, arm) as engine:
        engine.step(batch)
        return engine.optimizers[0].seen


@each_model
@each_schema
@pytest.mark.parametrize("cuts", ["default", "every"])
def test_each_segment_is_trained_by_its_own_losses_alone(name, schema, cuts):
    graph = build(name, schema, cuts=cuts, local_weight=0.5)
    batch = make_batch(schema, 32)
    seen = recorded_gradients(graph, batch, "detached")

    # The same by hand: run the blocks, cut, and differentiate one segment's losses at a time.
    activations, losses = {}, {}
    for block_name in graph.names:
        block = graph.block(block_name)
        inputs = [
            batch[source]
            if source not in activations
            else stop_gradient(activations[source])
            if source in graph.cuts
            else activations[source]
            for source in graph.reads[block_name]
        ]
        activations[block_name] = block.body(*inputs)
        if block.objective is not None:
            loss = block.objective(activations[block_name], batch["label"])
            losses[block_name] = loss * (1.0 if block_name == graph.output else 0.5)
    parameters = dict(graph.named_parameters())
    for segment in graph.segments():
        total = sum(losses[b] for b in segment.blocks if b in losses)
        gradients = torch.autograd.grad(total, parameters.values(), allow_unused=True)
        for (path, parameter), expected in zip(parameters.items(), gradients, strict=True):
            if path.split(".")[1] not in segment.blocks:
                assert expected is None, f"{segment.name} reaches {path} across a cut"
                continue
            assert expected is not None, path
            assert dense(expected).any(), path
            torch.testing.assert_close(dense(seen[parameter]), dense(expected))


def trained(name, schema, arm, **options):
    torch.manual_seed(1)  # for dropout
    graph = build(name, schema, dropout=0.1, **options)
    with Engine(graph, optimizers(1e-2, 1e-1), arm) as engine:
        for step, rows in enumerate((16, 16, 16, 5)):  # the last batch is short
            engine.step(make_batch(schema, rows, seed=step))
    return {path: p.detach() for path, p in graph.named_parameters()}


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for path, value in left.items():
        assert torch.equal(value, right[path]), path


@each_model
@each_schema
def test_local_arms_give_the_parameters_of_detached(one_thread, name, schema):
    oracle = trained(name, schema, "detached")
    for arm in LOCAL_ARMS:
        assert_equal(trained(name, schema, arm), oracle)


@each_model
def test_without_cuts_local_and_exact_arms_are_one(one_thread, name):
    schema = SCHEMAS["dense"]
    oracle = trained(name, schema, "baseline", cuts="none")
    for arm in LADDER:
        assert_equal(trained(name, schema, arm, cuts="none"), oracle)


@each_model
@each_schema
@pytest.mark.parametrize("arm", ["baseline", "auxiliary", "detached"])
def test_fits_a_few_rows(name, schema, arm):
    graph = build(name, schema, width=32, head="mlp")
    batch = make_batch(schema, 48)
    metric = NormalizedEntropy()
    with Engine(graph, optimizers(1e-2, 1e-1), arm) as engine:
        for _ in range(60):
            engine.step(batch)
        logits = engine.predict(batch)
    assert logits.shape == (48,)
    metric.update(logits, batch["label"])
    assert metric.compute().normalized_entropy < 0.8


@each_model
@each_schema
def test_runs_in_bfloat16_and_on_a_single_row(name, schema):
    graph = build(name, schema)
    with Engine(graph, optimizers(), "detached", autocast=torch.bfloat16) as engine:
        losses = engine.step(make_batch(schema, 1))
        predictions = engine.predict_each(make_batch(schema, 3))
    assert set(losses) == set(predictions) == {*graph.cuts, graph.output}
    assert all(p.shape == (3,) and p.isfinite().all() for p in predictions.values())
    assert all(p.dtype == torch.float32 for p in graph.parameters())


@each_model
def test_parameters_depend_on_the_seed_alone(name):
    schema = SCHEMAS["dense"]
    before = torch.get_rng_state()
    first = dict(build(name, schema, cuts="every").named_parameters())
    assert torch.equal(torch.get_rng_state(), before)
    for options in ({"cuts": "none"}, {"head": "mlp"}, {"local_weight": 0.1}):
        other = dict(build(name, schema, **options).named_parameters())
        shared = [path for path in other if ".body." in path] + [
            path for path in other if path.startswith(f"blocks.{build(name, schema).output}.")
        ]
        for path in shared:
            assert torch.equal(other[path], first[path]), (options, path)
    torch.manual_seed(0)
    assert_equal(dict(build(name, schema, cuts="every", seed=None).named_parameters()), first)
    other = dict(build(name, schema, cuts="every", seed=1).named_parameters())
    assert any(not torch.equal(other[path], first[path]) for path in first)


def test_blocks_and_default_cuts():
    def shape(name, schema="dense", **options):
        graph = build(name, SCHEMAS[schema], **options)
        assert graph.names[-1] == graph.output
        return [n if n in graph.cuts else f"{n}-" for n in graph.names]

    assert shape("proxy", blocks=3) == ["block0", "block1", "block2-"]
    assert shape("proxy", blocks=1) == ["block0-"]
    assert shape("dlrm", blocks=2) == ["bottom", "interaction", "top0", "top1-"]
    assert shape("dlrm", "no-dense", blocks=1) == ["interaction", "top0-"]
    assert shape("dcnv2-stacked", blocks=2) == ["cross0", "cross1", "deep0", "deep1-"]
    assert shape("dcnv2-stacked", blocks=2, deep_blocks=0) == ["cross0", "cross1-"]
    assert shape("dcnv2-parallel", blocks=2, deep_blocks=1) == [
        *("embedding-", "cross0", "cross1", "deep0", "join-"),
    ]
    assert shape("ranking") == [
        *("dense_tower", "sparse_tower0", "sparse_tower1", "sparse_tower2"),
        *("cross_arch", "deep_arch", "over_arch-"),
    ]
    assert shape("ranking", "no-dense")[:4] == [f"sparse_tower{i}" for i in range(4)]


def test_ranking_is_six_detached_segments_and_a_remainder_that_reads_them():
    graph = build("ranking", SCHEMAS["dense"])
    segments = graph.segments()
    assert [segment.remainder for segment in segments] == [False] * 6 + [True]
    assert graph.reads["over_arch"] == graph.names[:6]
    assert graph.reads["deep_arch"] == graph.reads["cross_arch"] == graph.names[:4]


def test_ranking_holds_each_field_in_one_table():
    graph = build("ranking", SCHEMAS["dense"])
    tables = [p for p in graph.parameters() if getattr(p, "row_wise", False)]
    assert len(tables) == 3
    assert sum(len(table) for table in tables) == SCHEMAS["dense"].rows


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ("none", set()),
        ("every", {"block0", "block1", "block2"}),
        ([1], {"block1"}),
        (["block2", 0], {"block0", "block2"}),
        ((), set()),
    ],
)
def test_cuts_and_heads_follow_the_option(cuts, expected):
    graph = build("proxy", SCHEMAS["dense"], blocks=4, cuts=cuts, local_weight=0.25)
    assert graph.cuts == expected
    scored = {n: graph.block(n).weight for n in graph.names if graph.block(n).objective}
    assert scored == dict.fromkeys(expected, 0.25) | {"block3": 1.0}


def test_mlp_heads_are_local_only():
    graph = build("proxy", SCHEMAS["dense"], blocks=2, head="mlp")
    local, main = (graph.block(name).objective for name in graph.names)
    assert [tuple(p.shape) for p in local.parameters()] == [(16, 16), (16,), (1, 16), (1,)]
    assert [tuple(p.shape) for p in main.parameters()] == [(1, 16), (1,)]


def test_proxy_has_the_stated_size():
    graph = build_model("proxy", CRITEO, blocks=3, width=256)
    table, first, later = 260 * 16, 432 * 256 + 256, 256 * 256 + 256
    block, head = 2 * later + 2 * 256, 257
    expected = table + (first + later + 2 * 256) + 2 * block + 3 * head
    assert sum(p.numel() for p in graph.parameters()) == expected


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4), rows=st.integers(1, 4))
def test_concatenate_pads_with_zeros(sizes, rows):
    join = Concatenate(*sizes)
    output = join(*(torch.ones(rows, size) for size in sizes))
    assert output.shape == (rows, join.width)
    assert join.width == math.ceil(sum(sizes) / 8) * 8
    assert output[:, : sum(sizes)].eq(1).all()
    assert not output[:, sum(sizes) :].any()


def test_cross_layer_is_the_published_formula():
    torch.manual_seed(0)
    layer = CrossLayer(5)
    x0, x = torch.randn(3, 5), torch.randn(3, 5)
    weight, bias = layer.linear.weight, layer.linear.bias
    expected = torch.stack([a * (weight @ b + bias) + b for a, b in zip(x0, x, strict=True)])
    torch.testing.assert_close(layer(x0, x), expected)


def test_dot_interaction_takes_each_pair_once():
    torch.manual_seed(0)
    vectors = torch.randn(2, 4, 3)
    expected = [
        [float(row[i] @ row[j]) for i in range(4) for j in range(i + 1, 4)] for row in vectors
    ]
    torch.testing.assert_close(DotInteraction(4)(vectors), torch.tensor(expected))


@given(
    cardinalities=st.lists(st.integers(2, 10**6), min_size=4, max_size=40),
    groups=st.integers(1, 4),
)
def test_fields_are_split_evenly(cardinalities, groups):
    split = split_fields(cardinalities, groups)
    assert sorted(field for group in split for field in group) == list(range(len(cardinalities)))
    sizes = [len(group) for group in split]
    assert max(sizes) - min(sizes) <= 1
    rows = [sum(cardinalities[field] for field in group) for group in split]
    assert max(rows) - min(rows) <= max(cardinalities)


def test_model_options_fill_in_the_defaults():
    options = model_options("dlrm", width=64)
    assert (options.blocks, options.width, options.embedding_dim) == (3, 64, 16)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("resnet", {}, ValueError, "no model 'resnet'; choose one of proxy, dlrm"),
        ("proxy", {"depth": 3}, ValueError, "no option 'depth'; its options are blocks, width"),
        ("dlrm", {"deep_blocks": 3}, ValueError, "no option 'deep_blocks'"),
        ("proxy", {"blocks": 0}, ValueError, r"`blocks` \(=0\) must be at least 1"),
        ("proxy", {"blocks": 2.0}, TypeError, r"`blocks` \(=2.0\) must be an integer"),
        ("proxy", {"width": True}, TypeError, r"`width` \(=True\)"),
        ("proxy", {"embedding_dim": 1}, ValueError, r"`embedding_dim` \(=1\)"),
        ("proxy", {"dropout": 1.0}, ValueError, r"`dropout` \(=1.0\)"),
        ("proxy", {"dropout": "0"}, TypeError, r"`dropout` \(='0'\)"),
        ("proxy", {"head": "conv"}, ValueError, r"`head` \(='conv'\) must be one of"),
        ("proxy", {"local_weight": 0}, ValueError, r"`local_weight` \(=0\)"),
        ("proxy", {"local_weight": math.nan}, ValueError, r"`local_weight` \(=nan\)"),
        ("proxy", {"cuts": "all"}, ValueError, r"`cuts` \(='all'\)"),
        ("proxy", {"cuts": 3}, TypeError, r"`cuts` \(=3\)"),
        ("proxy", {"cuts": [8]}, ValueError, "names 8; this model can be cut after block0"),
        ("proxy", {"cuts": [7]}, ValueError, "names 'block7', the output block"),
        ("proxy", {"cuts": [True]}, ValueError, "names True"),
        ("proxy", {"cuts": ["top0"]}, ValueError, "names 'top0'; this model can be cut"),
        ("dcnv2-stacked", {"deep_blocks": -1}, ValueError, r"`deep_blocks` \(=-1\)"),
        ("dcnv2-parallel", {"deep_blocks": 0}, ValueError, "at least 1 for two towers"),
    ],
)
def test_bad_options(name, options, error, message):
    with pytest.raises(error, match=message):
        build_model(name, SCHEMAS["dense"], **options)


def test_bad_schemas():
    with pytest.raises(TypeError, match="`schema` is a dict"):
        build_model("proxy", SCHEMAS["dense"].to_dict())
    two_fields = CtrSchema("synthetic-test", (), ("a", "b"), (3, 4))
    with pytest.raises(ValueError, match="2 categorical fields cannot be split into 4 groups"):
        build_model("ranking", two_fields)
    assert build_model("dlrm", two_fields).output == "top2"
