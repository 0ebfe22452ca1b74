"""From bodies to a block graph: heads, weights and cuts, the same way for every model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from erase_core import Block, BlockGraph, LocalHead
from erase_core.ctr.models.options import ModelOptions
from erase_core.ctr.schema import LABEL


@dataclass(frozen=True)
class Node:
    """A body, what it reads, and the width of the activation that its head would read.

    `hands_on` says that the body returns a tuple, of which a head reads the last tensor.
    """

    body: nn.Module
    reads: tuple[str, ...]
    features: int
    hands_on: bool = False


class LastOf(nn.Module):
    """An objective on the last tensor of a tuple: for blocks that hand their input on as well."""

    def __init__(self, head: LocalHead) -> None:
        super().__init__()
        self.head = head

    def predict(self, activation: tuple[Tensor, ...]) -> Tensor:
        """Return the head's logits."""
        return self.head.predict(activation[-1])

    def forward(self, activation: tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Return the head's loss."""
        loss: Tensor = self.head(activation[-1], target)
        return loss


def assemble(
    nodes: Mapping[str, Node], options: ModelOptions, *, uncut: tuple[str, ...] = ()
) -> BlockGraph:
    """Give every cut block a local head and the last node the main loss, and wire the graph.

    Heads are drawn after all bodies and the main head first: a seed gives the same bodies and
    main head whatever the cuts and local objectives, so that arms can be compared in pairs.

    Args:
        nodes: name to node in order of evaluation; the last one is the output.
        options: see `ModelOptions`.
        uncut: blocks that `cuts="default"` leaves uncut.

    Raises:
        ValueError: where a cut names no block, or the last one, which nothing reads.
    """
    names = list(nodes)
    cuts = _resolve(options, names, uncut)
    output = names[-1]
    hidden = (options.width,) if options.head == "mlp" else ()
    heads: dict[str, nn.Module] = {}
    for name in (output, *cuts):
        head = LocalHead(
            nodes[name].features,
            F.binary_cross_entropy_with_logits,
            hidden=() if name == output else hidden,
        )
        heads[name] = LastOf(head) if nodes[name].hands_on else head
    blocks: dict[str, Any] = {
        name: Block(
            node.body,
            objective=heads.get(name),
            weight=options.local_weight if name in cuts else 1.0,
        )
        for name, node in nodes.items()
    }
    reads = {name: node.reads for name, node in nodes.items()}
    return BlockGraph(blocks, reads, output=output, target=LABEL, cuts=cuts)


def _resolve(options: ModelOptions, names: list[str], uncut: tuple[str, ...]) -> list[str]:
    *inner, output = names
    match options.cuts:
        case "default":
            return [name for name in inner if name not in uncut]
        case "every":
            return inner
        case "none":
            return []
    chosen = set()
    for cut in options.cuts:
        if isinstance(cut, int) and not isinstance(cut, bool) and 0 <= cut < len(names):
            cut = names[cut]
        if cut == output:
            raise ValueError(
                f"`cuts` names {output!r}, the output block, which nothing reads; leave it out"
            )
        if cut not in inner:
            raise ValueError(
                f"`cuts` names {cut!r}; this model can be cut after {', '.join(inner) or 'nothing'}"
                f" (or positions 0 to {len(inner) - 1})"
            )
        chosen.add(cut)
    return [name for name in inner if name in chosen]
