"""Small graphs, batches and a plain PyTorch loop, for the tests of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erase_core import Block, BlockGraph, LocalHead

WIDTH = 6


class Mix(nn.Module):
    """A body that reads any number of inputs: concatenates them, then Linear and extras."""

    def __init__(
        self, fan_in: int, dropout: float = 0.0, norm: bool = False, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(fan_in, width)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.norm(self.linear(torch.cat(inputs, 1)))))


def head(width: int = WIDTH, hidden: Sequence[int] = ()) -> LocalHead:
    return LocalHead(width, F.binary_cross_entropy_with_logits, hidden=hidden)


def chain(
    depth: int = 3, cuts="every", seed: int = 0, dropout: float = 0.0, norm: bool = False
) -> BlockGraph:
    torch.manual_seed(seed)
    blocks = [Block(Mix(WIDTH, dropout, norm), head()) for _ in range(depth)]
    return BlockGraph.chain(blocks, cuts, inputs=("x",), target="y")


def towers(cuts: Iterable[str] = ("stem", "left", "right"), seed: int = 0) -> BlockGraph:
    """A stem, two parallel towers, and a top that reads both and a batch field."""
    torch.manual_seed(seed)
    blocks = {
        "stem": Block(Mix(2 * WIDTH), head(), weight=0.5),
        "left": Block(Mix(WIDTH, dropout=0.2), head(hidden=[4])),
        "right": Block(Mix(WIDTH, norm=True), head(), weight=2.0),
        "top": Block(Mix(3 * WIDTH), head()),
    }
    reads = {
        "stem": ("x", "w"),
        "left": ("stem",),
        "right": ("stem",),
        "top": ("left", "right", "w"),
    }
    return BlockGraph(blocks, reads, output="top", target="y", cuts=cuts)


def batches(count: int = 4, rows: int = 8, seed: int = 1, device="cpu") -> list[dict[str, Tensor]]:
    """Return batches with fields x, w and target y; the last one is short."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [rows] * (count - 1) + [max(2, rows // 2)]
    made = []
    for size in sizes:
        x = torch.randn(size, WIDTH, generator=generator)
        w = torch.randn(size, WIDTH, generator=generator)
        y = (x[:, 0] * w[:, 0] > 0).float()
        made.append({name: t.to(device) for name, t in {"x": x, "w": w, "y": y}.items()})
    return made


def plain_loop(
    graph: BlockGraph,
    make_optimizer: Callable,
    data: Iterable[Mapping[str, Tensor]],
    *,
    local: bool,
    auxiliary: bool = True,
    clip_norm: float | None = None,
) -> None:
    """Train by an ordinary loop that knows nothing of lanes: the oracle of the engine."""
    optimizer = make_optimizer([p for p in graph.parameters() if p.requires_grad])
    for batch in data:
        optimizer.zero_grad()
        activations: dict[str, Tensor] = {}
        total = torch.zeros((), device=batch["y"].device)
        for name in graph.names:
            block = graph.block(name)
            inputs = []
            for source in graph.reads[name]:
                value = activations[source] if source in activations else batch[source]
                inputs.append(value.detach() if local and source in graph.cuts else value)
            activations[name] = block.body(*inputs)
            if block.objective is not None and (auxiliary or name == graph.output):
                total = total + block.weight * block.objective(activations[name], batch["y"])
        total.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(list(graph.parameters()), clip_norm)
        optimizer.step()


def same_state(left: BlockGraph, right: BlockGraph) -> bool:
    """Whether all parameters and buffers are equal bit for bit."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
