"""A graph of blocks, the cuts between them, and the segments that the cuts leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from .blocks import Block
from .errors import GraphError

Batch = Mapping[str, Tensor] | Sequence[Tensor]


@dataclass(frozen=True)
class Segment:
    """Blocks joined by uncut edges: the unit of one backward.

    Attributes:
        blocks: names in order of evaluation.
        remainder: whether it holds the main loss; its backward ends the step.
    """

    blocks: tuple[str, ...]
    remainder: bool

    @property
    def name(self) -> str:
        """The block's name, or "first..last" for several blocks."""
        first, last = self.blocks[0], self.blocks[-1]
        return first if first == last else f"{first}..{last}"


class BlockGraph(nn.Module):
    """Blocks, what each of them reads, and where gradients are cut.

    Args:
        blocks: name → block, listed in order of evaluation.
        reads: block name → what its body is called with, in this order: names of earlier blocks
            (their activations) or of batch fields. A name that is no block is a batch field.
        output: the block whose objective is the main loss.
        target: the batch field that every objective is called with.
        cuts: blocks whose readers see the stop-gradient sg[activation].

    Raises:
        GraphError: if names, reads, cuts or objectives do not fit together.
    """

    def __init__(
        self,
        blocks: Mapping[str, Block],
        reads: Mapping[str, Sequence[str]],
        output: str,
        target: str = "target",
        cuts: Iterable[str] = (),
    ) -> None:
        super().__init__()
        _check_blocks(blocks)
        self.names = tuple(blocks)
        self.reads = _checked_reads(self.names, reads)
        self.output = output
        self.target = target
        if output not in blocks:
            raise GraphError(f"`output` (={output!r}) must name one of {', '.join(self.names)}")
        if blocks[output].objective is None:
            raise GraphError(
                f"block {output!r} is the output, so it needs an objective: the main loss"
            )
        read = {source for sources in self.reads.values() for source in sources}
        self.cuts = frozenset([cuts] if isinstance(cuts, str) else cuts)
        for cut in sorted(self.cuts):
            if cut not in blocks:
                raise GraphError(f"cut {cut!r} must name one of {', '.join(self.names)}")
            if cut not in read:
                raise GraphError(f"cut {cut!r} cuts nothing: no block reads it; leave it out")
        if target in blocks:
            raise GraphError(f"`target` (={target!r}) is the name of a block; rename one of them")
        self.fields = tuple(
            dict.fromkeys(s for ss in self.reads.values() for s in ss if s not in blocks)
        )
        self.blocks = nn.ModuleDict(blocks)
        self._check_trained()

    @classmethod
    def chain(
        cls,
        blocks: Sequence[Block],
        cuts: Literal["every", "none"] | Sequence[int] = "every",
        inputs: Sequence[str] = ("input",),
        target: str = "target",
        names: Sequence[str] | None = None,
    ) -> BlockGraph:
        """Build a chain: block 0 reads the batch fields `inputs`, block b reads block b−1.

        Args:
            blocks: at least one; the last one's objective is the main loss.
            cuts: "every", "none", or the indices i of the blocks to cut after (0 ≤ i < len − 1).
            inputs: batch fields that the first body is called with.
            target: batch field that objectives are called with.
            names: block names; "block0", "block1", … by default.
        """
        if not blocks:
            raise GraphError("`blocks` is empty: a chain needs at least one block")
        names = (
            tuple(names) if names is not None else tuple(f"block{i}" for i in range(len(blocks)))
        )
        if len(names) != len(blocks) or len(set(names)) != len(names):
            raise GraphError(f"`names` (={names!r}) must be {len(blocks)} distinct names")
        last = len(blocks) - 1
        if isinstance(cuts, str):
            if cuts not in ("every", "none"):
                raise GraphError(f'`cuts` (={cuts!r}) must be "every", "none" or block indices')
            cuts = range(last) if cuts == "every" else ()
        for cut in cuts:
            if isinstance(cut, bool) or not isinstance(cut, int) or not 0 <= cut < last:
                raise GraphError(
                    f"cut {cut!r} must be the index of a block that another follows: "
                    + (f"0 to {last - 1}" if last else "a chain of one block has none")
                )
        reads = {names[0]: tuple(inputs)} | {
            name: (before,) for before, name in zip(names[:-1], names[1:], strict=True)
        }
        return cls(
            dict(zip(names, blocks, strict=True)),
            reads,
            output=names[-1],
            target=target,
            cuts=[names[i] for i in cuts],
        )

    def block(self, name: str) -> Block:
        """Return the block called `name`."""
        block = self.blocks[name]
        assert isinstance(block, Block)  # for the type checker: `blocks` was checked
        return block

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the blocks that read block `name`'s activation."""
        return tuple(reader for reader in self.names if name in self.reads[reader])

    def segments(self) -> tuple[Segment, ...]:
        """Return the components joined by uncut edges, in the order in which they complete."""
        root = {name: name for name in self.names}

        def find(name: str) -> str:
            while root[name] != name:
                name = root[name]
            return name

        for name in self.names:
            for source in self.reads[name]:
                if source in root and source not in self.cuts:
                    root[find(name)] = find(source)
        members: dict[str, list[str]] = {}
        for name in self.names:
            members.setdefault(find(name), []).append(name)
        ordered = sorted(members.values(), key=lambda blocks: self.names.index(blocks[-1]))
        return tuple(Segment(tuple(blocks), self.output in blocks) for blocks in ordered)

    def whole(self) -> Segment:
        """Return all blocks as one segment: how an exact schedule sees the graph."""
        return Segment(self.names, True)

    def ancestors(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Return `wanted` and every block whose activation they need, in order of evaluation.

        Raises:
            GraphError: if a wanted name is no block.
        """
        needed = set(wanted)
        for name in sorted(needed - set(self.names)):
            raise GraphError(f"there is no block {name!r}: choose from {', '.join(self.names)}")
        for name in reversed(self.names):
            if name in needed:
                needed.update(source for source in self.reads[name] if source in self.blocks)
        return tuple(name for name in self.names if name in needed)

    def fields_of(self, batch: Batch, blocks: Iterable[str] | None = None) -> Mapping[str, Tensor]:
        """Return the batch as a mapping, checked to hold what `blocks` read.

        A sequence is taken in the order of `fields`, then the target. By default all blocks, and
        the target, are needed; with `blocks` given the target may be missing.

        Raises:
            GraphError: if a field or the target is missing, or a sequence has the wrong length.
        """
        if not isinstance(batch, Mapping):
            names = (*self.fields, self.target)
            allowed = (len(names),) if blocks is None else (len(names) - 1, len(names))
            if not isinstance(batch, Sequence) or len(batch) not in allowed:
                found = type(batch).__name__
                found += f" of {len(batch)}" if isinstance(batch, Sequence) else ""
                raise GraphError(
                    f"a batch must be a mapping, or a sequence of ({', '.join(names)}), not a "
                    f"{found}"
                )
            batch = dict(zip(names, batch, strict=False))
        for name in self.names if blocks is None else blocks:
            for source in self.reads[name]:
                if source not in batch and source not in self.blocks:
                    raise GraphError(
                        f"block {name!r} reads {source!r}, which is neither a block nor a field of "
                        f"this batch ({', '.join(map(str, batch))})"
                    )
        if blocks is None and self.target not in batch:
            raise GraphError(
                f"this batch ({', '.join(map(str, batch))}) lacks the target {self.target!r}"
            )
        return batch

    def _check_trained(self) -> None:
        """Every block with parameters must reach an objective without crossing a cut."""
        reaches = set()
        for name in reversed(self.names):
            uncut = () if name in self.cuts else self.readers(name)
            if self.block(name).objective is not None or any(r in reaches for r in uncut):
                reaches.add(name)
            elif any(p.requires_grad for p in self.block(name).parameters()):
                where = "its output is cut" if name in self.cuts else "no block with one reads it"
                raise GraphError(
                    f"block {name!r} would never be trained: it has no objective and {where}; give "
                    "it an objective, remove the cut, or freeze its parameters"
                )


def _check_blocks(blocks: Mapping[str, Block]) -> None:
    if not isinstance(blocks, Mapping) or not blocks:
        raise GraphError("`blocks` must map at least one name to a Block")
    for name, block in blocks.items():
        if not isinstance(name, str) or not name.isidentifier() or hasattr(nn.ModuleDict(), name):
            raise GraphError(
                f"block name {name!r} must be an identifier that nn.ModuleDict does not use itself"
            )
        if not isinstance(block, Block):
            raise GraphError(f"block {name!r} is a {type(block).__name__}: wrap it in Block(...)")
    seen: dict[int, str] = {}
    for name, block in blocks.items():
        if id(block) in seen:
            raise GraphError(f"blocks {seen[id(block)]!r} and {name!r} are one object")
        seen[id(block)] = name


def _checked_reads(
    names: tuple[str, ...], reads: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    if set(reads) != set(names):
        odd = sorted(set(reads) ^ set(names))
        raise GraphError(f"`reads` and `blocks` must have the same names; they differ in {odd}")
    checked = {}
    for position, name in enumerate(names):
        sources = reads[name]
        sources = (sources,) if isinstance(sources, str) else tuple(sources)
        if not sources:
            raise GraphError(f"block {name!r} reads nothing: name a batch field or a block")
        for source in sources:
            if source in names[position:]:
                raise GraphError(
                    f"block {name!r} reads {source!r}, which is not evaluated before it: list "
                    "blocks in order of evaluation (cycles have none)"
                )
        checked[name] = sources
    return checked
