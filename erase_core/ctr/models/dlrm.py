"""DLRM: bottom MLP, dot interaction, top MLP (Naumov et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from erase_core import BlockGraph
from erase_core.ctr.embedding import FusedEmbedding
from erase_core.ctr.models.assemble import Node, assemble
from erase_core.ctr.models.layers import (
    Concatenate,
    DotInteraction,
    Pipeline,
    ResidualMLP,
    residual_stack,
)
from erase_core.ctr.models.options import ModelOptions
from erase_core.ctr.schema import CtrSchema


@dataclass(frozen=True, kw_only=True)
class DlrmOptions(ModelOptions):
    """Options of `dlrm`; `blocks` counts the blocks of the top MLP."""

    blocks: int = 3


class Interaction(nn.Module):
    """Embed the ids, and take the dot products of all pairs of fields and the bottom vector.

    Returns `[B, width]`: the bottom vector beside the products. Where the schema has no dense
    fields and so no bottom MLP, the mean of the fields' vectors stands in for it, which keeps
    first-order effects in the output.
    """

    def __init__(self, schema: CtrSchema, dim: int) -> None:
        super().__init__()
        self.embedding = FusedEmbedding(schema.cardinalities, dim)
        vectors = schema.fields + 1
        self.dot = DotInteraction(vectors)
        self.join = Concatenate(dim, vectors * (vectors - 1) // 2)
        self.width = self.join.width

    def forward(self, ids: Tensor, bottom: Tensor | None = None) -> Tensor:
        """Map ids `[B, fields]` and the bottom vector `[B, dim]`, if any."""
        embedded = self.embedding(ids)
        vector = embedded.mean(dim=1) if bottom is None else bottom.to(embedded.dtype)
        products = self.dot(torch.cat([vector.unsqueeze(1), embedded], dim=1))
        joined: Tensor = self.join(vector, products)
        return joined


def dlrm(schema: CtrSchema, options: DlrmOptions) -> BlockGraph:
    """Blocks `bottom` (where there are dense fields), `interaction`, `top0`, `top1`, ...

    The table belongs to `interaction`: its local head sees the dot products and so trains the
    vectors as the whole model would. The top blocks are residual. Default cuts: after every block.
    """
    dim = options.embedding_dim
    nodes: dict[str, Node] = {}
    reads: tuple[str, ...] = ("ids",)
    if schema.dense:
        pad = Concatenate(len(schema.dense))
        mlp = ResidualMLP(pad.width, dim, options.width, dropout=options.dropout)
        nodes["bottom"] = Node(Pipeline(pad, mlp), ("dense",), dim)
        reads = ("ids", "bottom")
    interaction = Interaction(schema, dim)
    nodes["interaction"] = Node(interaction, reads, interaction.width)
    before = "interaction"
    top = residual_stack(interaction.width, options.width, options.blocks, options.dropout)
    for i, body in enumerate(top):
        nodes[f"top{i}"] = Node(body, (before,), options.width)
        before = f"top{i}"
    return assemble(nodes, options)
