"""Layers that the CTR models are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from erase_core.ctr.embedding import FusedEmbedding
from erase_core.ctr.schema import CtrSchema

ALIGNMENT = 8
"""Matrix widths that are a multiple of this take the fast bf16 kernels (429 columns do not)."""


def input_fields(schema: CtrSchema) -> tuple[str, ...]:
    """Return the batch fields that hold a row's features: "ids" and, where any, "dense"."""
    return ("ids", "dense") if schema.dense else ("ids",)


class Concatenate(nn.Module):
    """Flatten inputs `[B, ...]`, join them, and pad with zeros to an aligned `width`.

    `sizes` are the elements a row of each input.
    """

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.padding = -sum(sizes) % ALIGNMENT
        self.width = sum(sizes) + self.padding

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return `[B, width]`."""
        parts = [value.flatten(1) for value in inputs]
        if self.padding:
            parts.append(parts[0].new_zeros(len(parts[0]), self.padding))
        return torch.cat(parts, dim=1)


class Features(nn.Module):
    """Embed the ids and append the dense inputs: `[B, width]`, 432 wide for 26 x 16 + 13."""

    def __init__(self, schema: CtrSchema, embedding_dim: int) -> None:
        super().__init__()
        self.embedding = FusedEmbedding(schema.cardinalities, embedding_dim)
        self.join = Concatenate(schema.fields * embedding_dim, len(schema.dense))
        self.width = self.join.width

    def forward(self, ids: Tensor, *dense: Tensor) -> Tensor:
        """Map ids `[B, fields]` and, where the schema has any, dense `[B, n]`."""
        joined: Tensor = self.join(self.embedding(ids), *dense)
        return joined


class ResidualMLP(nn.Module):
    """Two layers and LayerNorm: `norm(x + W2 relu(W1 x))`, without `x` where widths differ."""

    def __init__(
        self, inputs: int, outputs: int, hidden: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        hidden = hidden or outputs
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, outputs),
        )
        self.norm = nn.LayerNorm(outputs)
        self.residual = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, inputs]` to `[B, outputs]`."""
        y = self.layers(x)
        normalised: Tensor = self.norm(x + y if self.residual else y)
        return normalised


class Pipeline(nn.Sequential):
    """A sequence whose first module takes every input."""

    def forward(self, *inputs: Tensor) -> Any:
        """Return what the last module makes of it."""
        first, *rest = self
        value = first(*inputs)
        for module in rest:
            value = module(value)
        return value


def residual_stack(inputs: int, width: int, depth: int, dropout: float) -> list[nn.Module]:
    """Make `depth` residual blocks, of which the first goes from `inputs` to `width`."""
    return [ResidualMLP(width if i else inputs, width, dropout=dropout) for i in range(depth)]


class CrossLayer(nn.Module):
    """DCNv2's cross layer with a full matrix: `x0 * (W x + b) + x` (Wang et al. 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        """Raise the order of the interactions in `x` by one; all tensors `[B, width]`."""
        raised: Tensor = x0 * self.linear(x) + x
        return raised


class DotInteraction(nn.Module):
    """Dot products of all pairs of `count` vectors: `[B, count, D]` to `[B, pairs]`."""

    pairs: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        rows, columns = torch.triu_indices(count, count, offset=1)
        self.register_buffer("pairs", rows * count + columns, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the products of each pair once, a vector with itself left out."""
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return products.flatten(1).index_select(1, self.pairs)
