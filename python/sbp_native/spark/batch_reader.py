"""The batch read: a fixed set of spans, the same rows however often it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .errors import INVALID_VALUE, SbpOptionError, explained
from .filters import PUSHED_FILTERS_STAY, FilterPush, Narrowed
from .places import EARLIEST, LATEST, Places
from .planning import PlanBounds, plan
from .read_options import ReadOptions, Use
from .schema import column_set
from .span_source import SpanSource
from .streams import StreamHead, bounds, find, settle, windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .naming import StreamKey
    from .offsets import Span

#: Spark keeps the plan of a DataFrame, and its own ways to refresh do not reach a Python source.
_PLANNED: Final = "a DataFrame or view was planned when it was first used: load it again if that was before, or "

__all__ = ["SbpBatchReader", "SpanSource"]


class SbpBatchReader(DataSourceReader):
    """Plans a batch query. Offsets are settled here, once: the plan and every retry read the same records.

    Spark asks for the plan at the first action on a DataFrame, and keeps it for all that is made of it.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options.for_read(Use.BATCH_READ)
        self._heads = find(options)
        columns = column_set(self._heads, options, growing=True)
        columns.check(schema)
        names = {head.id: head.name for head in self._heads}
        self._source = SpanSource(options, columns.kind, schema, names, _PLANNED)
        self._narrowed = Narrowed()
        if PUSHED_FILTERS_STAY if options.push_filters is None else options.push_filters:
            # An attribute, because a method of the class would fail every query while Spark's setting is off.
            self.pushFilters = FilterPush(columns.kind, self._narrowed, options.gaps_as_rows)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        """The plan; see `plan` for its rules."""
        options, now_ms = self._options, int(time.time() * 1000)
        found = windows(options.starting, options.ending, self._heads, now_ms)
        held = bounds(options, self._heads)
        starts = settle(options, options.starting or Places(EARLIEST), self._heads, held, now_ms=now_ms)
        ends = settle(options, options.ending or Places(LATEST), self._heads, held, now_ms=now_ms, ends=True)
        swapped = next((head for head in self._heads if ends[head.id] < starts[head.id]), None)
        if swapped is not None:
            raise SbpOptionError(
                INVALID_VALUE,
                f"{swapped} would be read from {starts[swapped.id]} back to {ends[swapped.id]}: swap the options",
            )
        spans = [(head.id, starts[head.id], ends[head.id]) for head in self._heads]
        if self._narrowed != Narrowed():
            spans = self._wanted(spans)
        return [partition.within(found) for partition in plan(spans, PlanBounds.of(options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as Arrow batches."""
        return self._source.read(partition)

    def _wanted(self, spans: Sequence[Span]) -> list[Span]:
        """What the filters leave of the spans."""
        wanted = [head for head in self._heads if self._narrowed.keeps_stream(head)]
        kept, since = {head.id for head in wanted}, self._since(wanted)
        left = []
        for stream, whole_start, whole_end in spans:
            if stream in kept:
                start, end = self._narrowed.clip(whole_start, whole_end)
                left.append((stream, min(max(start, since.get(stream, start)), end), end))
        return left

    def _since(self, heads: Sequence[StreamHead]) -> Mapping[StreamKey, int]:
        """Before which offset nothing is as new as a filter wants."""
        time_ms, service = self._narrowed.since_ms, self._options.service()
        if time_ms is None or not heads or not service.has_times:
            return {}
        with explained(f"looking for the records of time {time_ms}", self._options.servers):
            return service.records_at(heads, time_ms)

    def __getstate__(self) -> dict[str, Any]:
        # What travels into every task: how to read, not the streams of the plan.
        return {"_source": self._source}
