"""How spans of streams become Spark partitions. Pure functions, all of it.

The plan depends on nothing but its arguments: no clock, no topology, no number of cores. A query that is planned again
after a failure gets the same partitions with the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .naming import StreamKey
    from .offsets import Span
    from .read_options import ReadOptions

MAX_PARTITIONS: Final = 256
MAX_RECORDS: Final = 1_000_000
MIN_RECORDS: Final = 100_000
_PREFERRED_PARTITIONS: Final = 16


class TimeWindow(NamedTuple):
    """The times of the records that are wanted, in ms: from `start` up to but without `end`; None is no bound."""

    start: int | None
    end: int | None


class SbpInputPartition(InputPartition):
    """What one task reads: spans in the order of (stream id, offset).

    Of a stream that has a window, only records of its times become rows.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(tuple(spans))
        self.windows: dict[StreamKey, TimeWindow] = {}

    def within(self, windows: Mapping[StreamKey, TimeWindow]) -> SbpInputPartition:
        """This partition, of records in these windows, by stream id."""
        self.windows = {span[0]: windows[span[0]] for span in self.spans if span[0] in windows}
        return self

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans, each (the stream's key, first offset, first offset not wanted)."""
        spans: tuple[Span, ...] = self.value
        return spans

    @property
    def records(self) -> int:
        """How many records the task must read."""
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
    #: Whether a span stays whole, in a task of its own as far as there are not too many.
    whole: bool = False

    @classmethod
    def of(cls, options: ReadOptions) -> PlanBounds:
        """What the options ask."""
        return cls(
            options.min_partitions, options.max_records_per_partition, options.max_partitions, not options.cuts_spans
        )

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
    if bounds is not None and bounds.whole:
        return _whole(wanted, bounds.max_partitions or MAX_PARTITIONS)
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


def _whole(spans: Sequence[Span], most: int) -> list[SbpInputPartition]:
    """A partition for each span; neighbours share one where there are more than `most`."""
    size = max(_divide_up(len(spans), most), 1)
    starts = range(0, max(len(spans), 1), size)
    return [SbpInputPartition(spans[start : start + size]) for start in starts]


def _divide_up(number: int, by: int) -> int:
    return -(-number // by)
