"""What a schedule makes of a graph: the order of blocks, their lanes, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from .errors import ScheduleError
from .graph import BlockGraph, Segment
from .schedules import Schedule


@dataclass(frozen=True)
class Source:
    """One input of a block: a batch field, an activation, or the stop-gradient of one."""

    name: str
    field: bool
    cut: bool


@dataclass(frozen=True)
class BlockPlan:
    """One block's forward.

    Attributes:
        name: the block.
        lane: 0 for the caller's lane, i ≥ 1 for the i-th lane beside it.
        sources: the body's inputs, in order.
        guarded: sources that others read too, whose value the body must not change in place.
        scored: whether the block's objective is evaluated.
        waits: blocks on other lanes whose forward this one must follow.
        roots: whether it must also follow the start of the step, no block's forward implying that.
        completes: the segment whose early backward is launched right after this forward, if any.
        releases: activations that nothing reads after this forward.
    """

    name: str
    lane: int
    sources: tuple[Source, ...]
    guarded: frozenset[str]
    scored: bool
    waits: tuple[str, ...]
    roots: bool
    completes: Segment | None
    releases: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """One step: forwards in order; then the backward of `last`, in one call.

    Attributes:
        blocks: forwards in the order in which they are launched.
        segments: every segment → its lane.
        last: the segments whose backward ends the step: the remainder, or all of them.
        lanes: number of lanes beside the caller's.
    """

    blocks: tuple[BlockPlan, ...]
    segments: dict[Segment, int]
    last: tuple[Segment, ...]
    lanes: int


def make_plan(graph: BlockGraph, schedule: Schedule) -> Plan:
    """Lay `graph` out under `schedule`.

    Raises:
        ScheduleError: if segments share parameters or buffers, so that a local schedule would train
            them by more than their own block's gradient.
    """
    local = schedule.gradients == "local"
    segments = graph.segments() if local else (graph.whole(),)
    if local:
        _refuse_sharing(graph, segments)
    early = schedule.backward == "early"
    lane_of = _lanes(segments, schedule)
    segment_of = {name: segment for segment in segments for name in segment.blocks}
    guarded = _guarded(graph) if local else frozenset()
    blocks = []
    for position, name in enumerate(graph.names):
        segment = segment_of[name]
        lane = lane_of[segment]
        reads = [source for source in graph.reads[name] if source in segment_of]
        later = {s for after in graph.names[position + 1 :] for s in graph.reads[after]}
        gone = [source for source in dict.fromkeys((*reads, name)) if source not in later]
        blocks.append(
            BlockPlan(
                name=name,
                lane=lane,
                sources=tuple(
                    Source(s, s not in segment_of, local and s in graph.cuts)
                    for s in graph.reads[name]
                ),
                guarded=guarded & {*graph.reads[name], graph.target},
                scored=graph.block(name).objective is not None
                and (schedule.auxiliary or name == graph.output),
                waits=tuple(s for s in dict.fromkeys(reads) if lane_of[segment_of[s]] != lane),
                roots=lane != 0 and not reads,
                completes=segment
                if early and not segment.remainder and segment.blocks[-1] == name
                else None,
                releases=tuple(gone),
            )
        )
    return Plan(
        blocks=tuple(blocks),
        segments=lane_of,
        last=tuple(s for s in segments if s.remainder) if early else segments,
        lanes=max(lane_of.values()),
    )


def _guarded(graph: BlockGraph) -> frozenset[str]:
    """Cut activations, and the batch fields that more than one block is called with."""
    calls = [
        {*graph.reads[name], *([graph.target] if graph.block(name).objective is not None else [])}
        for name in graph.names
    ]
    fields = {*graph.fields, graph.target}
    return graph.cuts | {field for field in fields if sum(field in call for call in calls) > 1}


def _lanes(segments: tuple[Segment, ...], schedule: Schedule) -> dict[Segment, int]:
    """The caller's lane for the remainder; lanes 1, 2, … for the others while they last."""
    limit = (
        schedule.streams
        if isinstance(schedule.streams, int)
        else (len(segments) if schedule.multi_lane else 0)
    )
    lane_of, used = {}, 0
    for segment in segments:
        if segment.remainder or used >= limit:
            lane_of[segment] = 0
        else:
            used += 1
            lane_of[segment] = used
    return lane_of


def _refuse_sharing(graph: BlockGraph, segments: tuple[Segment, ...]) -> None:
    owner: dict[object, tuple[Segment, str]] = {}
    for segment in segments:
        for block in segment.blocks:
            module: nn.Module = graph.block(block)
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                path = f"{block}.{name}"
                other, other_path = owner.setdefault(_memory(tensor), (segment, path))
                if other is not segment:
                    raise ScheduleError(
                        f"{path!r} and {other_path!r} are one tensor, shared across a cut: a local "
                        "schedule would train it by two segments. Give each its own copy, remove "
                        'the cut, or use an exact schedule ("baseline")'
                    )


def _memory(tensor: Tensor) -> object:
    """What two tensors that begin at one address have in common, objects of their own or not."""
    address = 0 if nn.parameter.is_lazy(tensor) else tensor.data_ptr()
    return (tensor.device, address) if address else id(tensor)
