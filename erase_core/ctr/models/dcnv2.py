"""DCNv2, stacked and parallel (Wang et al. 2021): cross layers and a deep net."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from erase_core import BlockGraph
from erase_core.ctr.models.assemble import Node, assemble
from erase_core.ctr.models.layers import (
    Concatenate,
    CrossLayer,
    Features,
    Pipeline,
    input_fields,
    residual_stack,
)
from erase_core.ctr.models.options import ModelOptions, check_count
from erase_core.ctr.schema import CtrSchema


@dataclass(frozen=True, kw_only=True)
class Dcnv2Options(ModelOptions):
    """Options of both forms of DCNv2.

    `blocks` counts cross layers, each of which raises the order of interaction by one, and
    `deep_blocks` the blocks of the deep net; the stacked form may have none.
    """

    blocks: int = 3
    deep_blocks: int = 2

    def __post_init__(self) -> None:
        """Check the depth of the deep net too."""
        super().__post_init__()
        check_count("deep_blocks", self.deep_blocks, 0)


class FirstCross(nn.Module):
    """The first cross layer: features `x0` to `(x0, x1)`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cross = CrossLayer(width)

    def forward(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer to `[B, width]`."""
        return x0, self.cross(x0, x0)


class LaterCross(nn.Module):
    """A cross layer that hands `x0` on: `(x0, x)` to `(x0, x')`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cross = CrossLayer(width)

    def forward(self, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Apply the layer to the last of the two tensors `[B, width]`."""
        x0, x = state
        return x0, self.cross(x0, x)


class Pick(nn.Module):
    """Apply a module to one tensor of a tuple."""

    def __init__(self, index: int, module: nn.Module) -> None:
        super().__init__()
        self.index = index
        self.module = module

    def forward(self, state: tuple[Tensor, ...]) -> Tensor:
        """Return `module(state[index])`."""
        result: Tensor = self.module(state[self.index])
        return result


class JoinTowers(nn.Module):
    """Concatenate the cross tower's last tensor and the deep tower's output."""

    def __init__(self, cross: int, deep: int) -> None:
        super().__init__()
        self.join = Concatenate(cross, deep)
        self.width = self.join.width

    def forward(self, state: tuple[Tensor, Tensor], deep: Tensor) -> Tensor:
        """Return `[B, width]`."""
        joined: Tensor = self.join(state[-1], deep)
        return joined


def _later_crosses(width: int, options: Dcnv2Options) -> dict[str, Node]:
    return {
        f"cross{i}": Node(LaterCross(width), (f"cross{i - 1}",), width, hands_on=True)
        for i in range(1, options.blocks)
    }


def _deep(bodies: list[nn.Module], reads: str, width: int) -> dict[str, Node]:
    return {
        f"deep{i}": Node(body, (f"deep{i - 1}" if i else reads,), width)
        for i, body in enumerate(bodies)
    }


def dcnv2_stacked(schema: CtrSchema, options: Dcnv2Options) -> BlockGraph:
    """Cross layers `cross0`, `cross1`, ..., then a deep net `deep0`, `deep1`, ...

    `cross0` carries the embedding; every cross layer hands `x0` on beside its output, so the
    blocks form a chain. The table is in `cross0` because a head on its output sees second-order
    terms; one on `x0` would train the vectors for first-order effects alone. Default cuts: after
    every block.
    """
    features = Features(schema, options.embedding_dim)
    width, last = features.width, f"cross{options.blocks - 1}"
    first = Pipeline(features, FirstCross(width))
    nodes = {"cross0": Node(first, input_fields(schema), width, hands_on=True)}
    nodes |= _later_crosses(width, options)
    deep = residual_stack(width, options.width, options.deep_blocks, options.dropout)
    if deep:
        deep[0] = Pick(-1, deep[0])
    return assemble(nodes | _deep(deep, last, options.width), options)


def dcnv2_parallel(schema: CtrSchema, options: Dcnv2Options) -> BlockGraph:
    """Two towers over one embedding: `cross0`... and `deep0`..., joined in `join`.

    `embedding` makes `x0`, which `cross0` and `deep0` read. Default cuts: after every
    block but `embedding`, so that the heads of both towers' first blocks train the table; a cut
    there leaves it to a head on `x0`, which sees first-order effects alone if linear.
    """
    if options.deep_blocks < 1:
        raise ValueError(
            f"`deep_blocks` (={options.deep_blocks}) must be at least 1 for two towers; "
            "'dcnv2-stacked' can do without a deep net"
        )
    features = Features(schema, options.embedding_dim)
    width = features.width
    nodes = {
        "embedding": Node(features, input_fields(schema), width),
        "cross0": Node(FirstCross(width), ("embedding",), width, hands_on=True),
    }
    nodes |= _later_crosses(width, options)
    deep = residual_stack(width, options.width, options.deep_blocks, options.dropout)
    nodes |= _deep(deep, "embedding", options.width)
    join = JoinTowers(width, options.width)
    towers = (f"cross{options.blocks - 1}", f"deep{options.deep_blocks - 1}")
    nodes["join"] = Node(join, towers, join.width)
    return assemble(nodes, options, uncut=("embedding",))
