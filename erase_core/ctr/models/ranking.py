"""A ranking model of six detached subarchitectures and an undetached remainder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from erase_core import BlockGraph
from erase_core.ctr.embedding import FusedEmbedding
from erase_core.ctr.models.assemble import Node, assemble
from erase_core.ctr.models.layers import Concatenate, CrossLayer, Pipeline, residual_stack
from erase_core.ctr.models.options import ModelOptions
from erase_core.ctr.schema import CtrSchema

TOWERS = 4
"""Subarchitectures that read the batch; two more read these."""


@dataclass(frozen=True, kw_only=True)
class RankingOptions(ModelOptions):
    """Options of `ranking`; `blocks` is the depth of each subarchitecture."""

    blocks: int = 2


class CrossStack(nn.Module):
    """Project to `width`, apply `depth` cross layers, normalise."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(CrossLayer(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map `[B, inputs]` to `[B, width]`."""
        x = x0 = self.project(inputs)
        for layer in self.layers:
            x = layer(x0, x)
        normalised: Tensor = self.norm(x)
        return normalised


def split_fields(cardinalities: Sequence[int], groups: int) -> list[tuple[int, ...]]:
    """Deal fields out so that groups have equally many fields (±1) and about equal tables.

    Fields are dealt from the largest down, back and forth; each group lists its own in order.

    Raises `ValueError` if there are fewer fields than groups.
    """
    if len(cardinalities) < groups:
        raise ValueError(
            f"{len(cardinalities)} categorical fields cannot be split into {groups} groups; use a "
            "model with one table, such as 'dlrm'"
        )
    largest_first = sorted(range(len(cardinalities)), key=lambda f: (-cardinalities[f], f))
    dealt: list[list[int]] = [[] for _ in range(groups)]
    for turn, field in enumerate(largest_first):
        lap, seat = divmod(turn, groups)
        dealt[seat if lap % 2 == 0 else groups - 1 - seat].append(field)
    return [tuple(sorted(group)) for group in dealt]


def ranking(schema: CtrSchema, options: RankingOptions) -> BlockGraph:
    """Four towers over the batch, two subarchitectures over the towers, and an over-arch.

    - `dense_tower` and `sparse_tower0` to `2`, each of the latter with a table for its share
      of the fields; `sparse_tower0` to `3` where the schema has no dense fields;
    - `cross_arch` (cross layers) and `deep_arch`, which read the four;
    - `over_arch`, which reads all six and has the main loss.

    Default cuts: after each of the six. What such a model looks like inside is not published;
    this is one of the shape that is.
    """
    width, depth, dim = options.width, options.blocks, options.embedding_dim

    def tower(*parts: nn.Module, inputs: int) -> Pipeline:
        return Pipeline(*parts, *residual_stack(inputs, width, depth, options.dropout))

    nodes: dict[str, Node] = {}
    if schema.dense:
        pad = Concatenate(len(schema.dense))
        nodes["dense_tower"] = Node(tower(pad, inputs=pad.width), ("dense",), width)
    for i, group in enumerate(split_fields(schema.cardinalities, TOWERS - len(nodes))):
        table = FusedEmbedding(schema.cardinalities, dim, fields=group)
        pad = Concatenate(len(group) * dim)
        body = tower(table, pad, inputs=pad.width)
        nodes[f"sparse_tower{i}"] = Node(body, ("ids",), width)
    towers = tuple(nodes)
    join = Concatenate(*[width] * len(towers))
    nodes["cross_arch"] = Node(Pipeline(join, CrossStack(join.width, width, depth)), towers, width)
    join = Concatenate(*[width] * len(towers))
    nodes["deep_arch"] = Node(tower(join, inputs=join.width), towers, width)
    six = tuple(nodes)
    join = Concatenate(*[width] * len(six))
    nodes["over_arch"] = Node(tower(join, inputs=join.width), six, width)
    return assemble(nodes, options)
