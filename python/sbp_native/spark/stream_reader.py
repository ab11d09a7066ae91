"""The streaming read: where a query begins, how far a micro-batch goes, what it reads."""

# The method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from . import runtime
from .batch_reader import SpanSource
from .errors import UNSUPPORTED, SbpSparkError, explained
from .offsets import OffsetMap, spans_between
from .options import LATEST, Places, SbpOptions, Use
from .planning import Locate, advance, plan
from .schema import column_set
from .streams import Bounds, bounds, check_kept, find, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class SbpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in one process on the driver for the whole life of a query; only `read` runs in the tasks.

    The streams are looked up once, when the query starts. A stream that is not yet in the checkpoint (it was added to
    the option before a restart) is read from its first record.
    """

    def __init__(self, options: SbpOptions, schema: StructType) -> None:
        self._options = options.for_read(Use.STREAM_READ)
        self._heads = find(options)
        columns = column_set(self._heads, options)
        columns.check(schema)
        self._source = SpanSource(options, columns.kind, schema)
        self._began: OffsetMap | None = None
        self._target: Mapping[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Asked twice in one run, it answers the same."""
        if self._began is None:
            places = self._options.starting or Places(LATEST)
            held = bounds(self._options, self._heads)
            self._began = OffsetMap(settle(self._options, places, self._heads, held), initial=True)
        return self._began.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxOffsetsPerTrigger` says, else everything there is."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of the query: what is appended from here on is not read."""
        self._target = {stream: held.latest for stream, held in bounds(self._options, self._heads).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself if there is nothing to read.

        Raises `SbpSparkError` if records between `start` and the stream's present bounds are gone.
        """
        begin = OffsetMap.from_json(start)
        held = bounds(self._options, self._heads)
        discovered = {stream: bound.earliest for stream, bound in held.items() if begin.start_of(stream) is None}
        starts = {stream: begin.next.get(stream, bound.earliest) for stream, bound in held.items()}
        # The next record must be one that is kept, or the end: else what lies between is gone.
        kept = {stream: min(max(first, held[stream].earliest), held[stream].latest) for stream, first in starts.items()}
        gaps = [
            (stream, min(first, kept[stream]), max(first, kept[stream]))
            for stream, first in starts.items()
            if first != kept[stream]
        ]
        check_kept(gaps, self._heads, held)

        ends = {stream: bound.latest for stream, bound in held.items()}
        if self._target is not None:
            ends = {stream: max(self._target.get(stream, starts[stream]), starts[stream]) for stream in ends}
        moved = advance(starts, ends, self._rows(limit, starts, ends), self._locate())
        return begin.advanced(moved, discovered).to_json() if moved else start

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of every stream, for the lag in Spark's progress report."""
        return OffsetMap({stream: held.latest for stream, held in bounds(self._options, self._heads).items()}).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The plan of one micro-batch: the same for the same two offsets, after a restart too."""
        spans = spans_between(OffsetMap.from_json(start), OffsetMap.from_json(end))
        if spans:
            check_kept(spans, self._heads, self._held_now())
        return plan(spans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as Arrow batches."""
        return self._source.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint is Spark's, and the server keeps no place for readers."""

    def stop(self) -> None:
        """Nothing to do; Spark does not call it on a normal stop, so nothing may depend on it."""

    def __getstate__(self) -> dict[str, Any]:
        # What travels into every task: how to read, not the streams of the plan or where the query stands.
        return {"_source": self._source}

    def _held_now(self) -> dict[int, Bounds]:
        return bounds(self._options, self._heads)

    def _rows(self, limit: ReadLimit, starts: Mapping[int, int], ends: Mapping[int, int]) -> int:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows
        if isinstance(limit, ReadAllAvailable):
            return sum(ends[stream] - starts[stream] for stream in ends)
        raise SbpSparkError(
            UNSUPPORTED, f"a limit by {type(limit).__name__} is not supported: use maxOffsetsPerTrigger"
        )

    def _locate(self) -> Locate:
        """The lookup by record time that keeps the streams together."""
        names = {head.id: head.name for head in self._heads}

        def locate(time_ms: int) -> Mapping[int, int]:
            with explained(f"looking for the records of time {time_ms}", self._options.servers):
                found = runtime.client(self._options).offsets_for_time(list(names.values()), time_ms)
            return {stream: found[name] for stream, name in names.items()}

        return locate
