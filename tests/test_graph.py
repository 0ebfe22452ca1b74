"""BlockGraph: what it accepts, what it refuses, and how cuts make segments."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import WIDTH, Mix, batches, chain, head, towers

from erase_core import Block, BlockGraph, GraphError, LocalHead


def names(graph):
    return [segment.blocks for segment in graph.segments()]


def test_segments_of_a_chain():
    graph = chain(5, cuts=[1, 3])
    assert names(graph) == [("block0", "block1"), ("block2", "block3"), ("block4",)]
    assert [s.remainder for s in graph.segments()] == [False, False, True]
    assert [s.name for s in graph.segments()] == ["block0..block1", "block2..block3", "block4"]


def test_segments_of_towers():
    assert names(towers()) == [("stem",), ("left",), ("right",), ("top",)]
    assert names(towers(cuts=["stem"])) == [("stem",), ("left", "right", "top")]
    assert names(towers(cuts=[])) == [("stem", "left", "right", "top")]


@given(st.integers(1, 9), st.data())
def test_segments_partition_the_blocks(depth, data):
    cuts = data.draw(st.lists(st.integers(0, depth - 2), unique=True)) if depth > 1 else []
    graph = chain(depth, cuts=cuts)
    found = [block for segment in graph.segments() for block in segment.blocks]
    assert sorted(found) == sorted(graph.names)
    assert len(graph.segments()) == len(cuts) + 1
    assert [s.remainder for s in graph.segments()].count(True) == 1


def test_ancestors_stop_at_what_is_needed():
    assert towers().ancestors(["left"]) == ("stem", "left")
    with pytest.raises(GraphError, match="no block 'lft'"):
        towers().ancestors(["lft"])


def block(objective=True):
    return Block(Mix(WIDTH), head() if objective else None)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BlockGraph({}, {}, "a"), "at least one name"),
        (lambda: BlockGraph({"a.b": block()}, {"a.b": ["x"]}, "a.b"), "'a.b' must be an ident"),
        (lambda: BlockGraph({"keys": block()}, {"keys": ["x"]}, "keys"), "'keys'"),
        (lambda: BlockGraph({"training": block()}, {"training": ["x"]}, "training"), "'training'"),
        (lambda: BlockGraph({"a": Mix(WIDTH)}, {"a": ["x"]}, "a"), "wrap it in Block"),
        (lambda: BlockGraph({"a": block()}, {"a": ["x"]}, "b"), "`output` .='b'. must name"),
        (lambda: BlockGraph({"a": block(False)}, {"a": ["x"]}, "a"), "'a' is the output"),
        (lambda: BlockGraph({"a": block()}, {"a": []}, "a"), "'a' reads nothing"),
        (lambda: BlockGraph({"a": block()}, {"a": ["a"]}, "a"), "'a' reads 'a'"),
        (lambda: BlockGraph({"a": block()}, {}, "a"), "same names"),
        (lambda: BlockGraph({"a": block()}, {"a": ["x"]}, "a", cuts=["z"]), "cut 'z'"),
        (lambda: BlockGraph({"a": block()}, {"a": ["x"]}, "a", cuts=["a"]), "cuts nothing"),
        (lambda: BlockGraph({"a": block()}, {"a": ["x"]}, "a", target="a"), "name of a block"),
        (lambda: BlockGraph.chain([]), "empty"),
        (lambda: BlockGraph.chain([block(), block()], cuts=[1]), "cut 1 must be"),
        (lambda: BlockGraph.chain([block(), block()], cuts=[True]), "cut True must be"),
        (lambda: BlockGraph.chain([block()], cuts=[0]), "a chain of one block has none"),
        (lambda: BlockGraph.chain([block()], cuts="all"), "must be .every., .none."),
        (lambda: BlockGraph.chain([block()], names=["a", "b"]), "1 distinct names"),
        (lambda: BlockGraph.chain([block(False), block()]), "'block0' would never be trained"),
        (lambda: Block(3), "`body` .=3. must be an nn.Module"),
        (lambda: Block(Mix(WIDTH), objective=print), "`objective`"),
        (lambda: Block(Mix(WIDTH), head(), weight=0.0), "`weight` .=0.0. must be positive"),
        (lambda: Block(Mix(WIDTH), head(), weight=float("nan")), "`weight` .=nan."),
        (lambda: Block(Mix(WIDTH), head(), weight=True), "`weight` .=True."),
        (lambda: LocalHead(0, torch.nn.functional.mse_loss), "positive integer"),
    ],
)
def test_bad_input_is_named(build, message):
    with pytest.raises(GraphError, match=message):
        build()


def test_one_module_in_two_blocks_is_refused():
    shared = block()
    with pytest.raises(GraphError, match="'a' and 'b' are one object"):
        BlockGraph({"a": shared, "b": shared}, {"a": ["x"], "b": ["a"]}, "b")


def test_untrained_block_without_reader_is_refused():
    blocks = {"a": block(False), "b": block()}
    with pytest.raises(GraphError, match="'a' would never be trained.*no block with one reads it"):
        BlockGraph(blocks, {"a": ["x"], "b": ["x"]}, "b")


def test_frozen_block_may_go_without_objective():
    frozen = block(False)
    frozen.requires_grad_(False)
    graph = BlockGraph.chain([frozen, block()], inputs=("x",))
    assert graph.cuts == {"block0"}


def test_batches_are_mappings_or_sequences():
    graph = towers()
    batch = batches(1)[0]
    assert graph.fields == ("x", "w")
    assert graph.fields_of([batch["x"], batch["w"], batch["y"]])["y"] is batch["y"]
    with pytest.raises(GraphError, match=r"sequence of \(x, w, y\), not a list of 1"):
        graph.fields_of([batch["x"]])
    with pytest.raises(GraphError, match="block 'stem' reads 'w'"):
        graph.fields_of({"x": batch["x"], "y": batch["y"]})
    with pytest.raises(GraphError, match="lacks the target 'y'"):
        graph.fields_of({"x": batch["x"], "w": batch["w"]})
    with pytest.raises(GraphError, match="not a Tensor"):
        graph.fields_of(batch["x"])
