"""The residual MLP on which the engine is measured: blocks of one shape in a chain."""

from __future__ import annotations

from dataclasses import dataclass

from erase_core import BlockGraph
from erase_core.ctr.models.assemble import Node, assemble
from erase_core.ctr.models.layers import Features, Pipeline, input_fields, residual_stack
from erase_core.ctr.models.options import ModelOptions
from erase_core.ctr.schema import CtrSchema


@dataclass(frozen=True, kw_only=True)
class ProxyOptions(ModelOptions):
    """Options of `proxy`; `blocks` counts the chain, the embedding's block included."""

    blocks: int = 8


def proxy(schema: CtrSchema, options: ProxyOptions) -> BlockGraph:
    """Chain `block0`, `block1`, ...: two layers of `width`, a residual and LayerNorm each.

    `block0` carries the embedding as well, so its inputs are wider (padded to a multiple of 8)
    and it has no residual. Default cuts: after every block.
    """
    features = Features(schema, options.embedding_dim)
    first, *rest = residual_stack(features.width, options.width, options.blocks, options.dropout)
    nodes = {"block0": Node(Pipeline(features, first), input_fields(schema), options.width)}
    for i, body in enumerate(rest, start=1):
        nodes[f"block{i}"] = Node(body, (f"block{i - 1}",), options.width)
    return assemble(nodes, options)
