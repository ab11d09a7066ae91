"""How spans of streams become Spark partitions, and how far a limited batch goes. Pure functions, all of it.

The plan depends on nothing but its arguments: no clock, no topology, no number of cores. A query that is planned again
after a failure gets the same partitions with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from .offsets import Span
    from .options import SbpOptions

MAX_PARTITIONS: Final = 256
MAX_RECORDS: Final = 1_000_000
MIN_RECORDS: Final = 100_000
_PREFERRED_PARTITIONS: Final = 16

#: The first offset, per stream, of what is not older than a time in ms.
Locate = Callable[[int], Mapping[int, int]]

# Above every time that a record can have, and a time in the 26th century: the search begins there, to save questions.
_END_OF_TIME: Final = 2**63 - 1
_FAR_AHEAD: Final = 2**44
# A cut that uses this share of the limit is good enough: each further step of the search asks the server again.
_GOOD_ENOUGH: Final = 0.9


class SbpInputPartition(InputPartition):
    """What one task reads: spans in the order of (stream id, offset)."""

    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(tuple(spans))

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans, each (stream id, first offset, first offset not wanted)."""
        spans: tuple[Span, ...] = self.value
        return spans

    @property
    def records(self) -> int:
        """How many records the task must deliver."""
        return sum(end - start for _, start, end in self.spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SbpInputPartition) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(self.spans)


@dataclass(frozen=True)
class PlanBounds:
    """What the user asked of a plan; None where nothing was asked."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_partitions: int | None = None

    @classmethod
    def of(cls, options: SbpOptions) -> PlanBounds:
        """What the options ask."""
        return cls(options.min_partitions, options.max_records_per_partition, options.max_partitions)

    def target(self, total: int) -> int:
        """How many records a partition gets.

        A sixteenth of all, held between 100,000 and 1,000,000; enough to stay below the bound on partitions; and less
        than that only where the user asked for more partitions, or for smaller ones.
        """
        target = min(max(_divide_up(total, _PREFERRED_PARTITIONS), MIN_RECORDS), MAX_RECORDS)
        target = max(target, _divide_up(total, self.max_partitions or MAX_PARTITIONS))
        if self.min_partitions is not None:
            target = min(target, total // self.min_partitions)
        if self.max_records is not None:
            target = min(target, self.max_records)
        return max(target, 1)


def plan(spans: Sequence[Span], bounds: PlanBounds | None = None) -> list[SbpInputPartition]:
    """Packs spans into partitions of 100,000 to 1,000,000 records, or as `bounds` say.

    A task costs about as much as reading 100,000 records, so thousands of small streams share a few tasks; one large
    stream is split at an offset. Returns one empty partition if there is nothing to read, since Spark wants a task.
    """
    wanted = sorted(span for span in spans if span[2] > span[1])
    target = (bounds or PlanBounds()).target(sum(end - start for _, start, end in wanted))

    partitions: list[SbpInputPartition] = []
    current: list[Span] = []
    room = target
    for span in wanted:
        stream, start, end = span
        if end - start < room:
            current.append(span)
            room -= end - start
            continue
        while start < end:
            taken = min(end - start, room)
            current.append((stream, start, start + taken))
            start += taken
            room -= taken
            if room == 0:
                partitions.append(SbpInputPartition(current))
                current, room = [], target
    if current or not partitions:
        partitions.append(SbpInputPartition(current))
    return partitions


def advance(
    start: Mapping[int, int], available: Mapping[int, int], limit: int, locate: Locate | None = None
) -> dict[int, int]:
    """Where a batch of at most `limit` records ends, per stream.

    With `locate` all streams stop at one common record time, so that none runs ahead of another and a watermark drops
    nothing it need not. The cut is exact up to one stored batch, which has no time inside. Where a single moment holds
    more than the limit, and without `locate`, the streams advance in proportion to what each has waiting.
    """
    waiting = {stream: end for stream, end in available.items() if end > start[stream]}
    total = sum(end - start[stream] for stream, end in waiting.items())
    if total <= limit:
        return waiting
    low = {stream: start[stream] for stream in waiting}
    if locate is None:
        return _moved(start, _proportional(low, waiting, limit))

    def cut(time: int) -> dict[int, int]:
        found = locate(time)
        return {stream: min(max(found.get(stream, end), start[stream]), end) for stream, end in waiting.items()}

    def count(ends: Mapping[int, int]) -> int:
        return sum(end - start[stream] for stream, end in ends.items())

    # Invariant: what is before `earlier` fits, what is before `later` does not.
    earlier, later = 0, _END_OF_TIME
    high = waiting
    middle = _FAR_AHEAD
    while later - earlier > 1:
        ends = cut(middle)
        if count(ends) > limit:
            later, high = middle, ends
        else:
            earlier, low = middle, ends
            if count(low) >= limit * _GOOD_ENOUGH:
                return _moved(start, low)
        middle = (earlier + later) // 2
    # All between `low` and `high` has one and the same time: here no share is fairer than another.
    return _moved(start, _proportional(low, high, limit - count(low)))


def _proportional(low: Mapping[int, int], high: Mapping[int, int], limit: int) -> dict[int, int]:
    """`low` moved towards `high` by `limit` records in all: one for each stream that has any, the rest by share."""
    waiting = {stream: high[stream] - low[stream] for stream in low if high[stream] > low[stream]}
    if sum(waiting.values()) <= limit:
        return dict(high)
    if limit < len(waiting):
        fullest = sorted(waiting, key=lambda stream: (-waiting[stream], stream))[:limit]
        return {stream: low[stream] + (stream in fullest) for stream in low}
    spare = limit - len(waiting)
    others = sum(waiting.values()) - len(waiting)
    shares = {stream: 1 + (count - 1) * spare // others for stream, count in waiting.items()}
    # What rounding left over goes, one each, to the streams that lost most by it.
    lost = sorted(waiting, key=lambda stream: (-((waiting[stream] - 1) * spare % others), stream))
    for stream in lost[: limit - sum(shares.values())]:
        shares[stream] += 1
    return {stream: low[stream] + shares.get(stream, 0) for stream in low}


def _moved(start: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    return {stream: end for stream, end in ends.items() if end > start[stream]}


def _divide_up(number: int, by: int) -> int:
    return -(-number // by)
