"""The batch read: a fixed set of spans, the same rows however often it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sbp_native._native import SpanReader

from . import runtime
from .errors import INCOMPLETE, INVALID_VALUE, SbpOptionError, SbpSparkError, explained
from .options import EARLIEST, LATEST, Columns, Places, SbpOptions, Use
from .planning import SbpInputPartition, plan
from .schema import Conform, arrow_schema, column_set
from .streams import bounds, find, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .offsets import Span


class SpanSource:
    """How a task reads spans: shared by the batch and the streaming reader, and all that is pickled into the task."""

    def __init__(self, options: SbpOptions, kind: Columns, schema: StructType) -> None:
        # The names are for the plan; a task has its spans, and there may be thousands.
        self._options = replace(options, streams=(), starting=None, ending=None)
        self._kind: Columns = kind
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in the order of (stream id, offset).

        Raises `SbpSparkError` unless every record planned was delivered.
        """
        if not isinstance(partition, SbpInputPartition) or not partition.spans:
            return
        runtime.prepare_worker()
        delivered = 0
        with explained(f"reading {_named(partition.spans)}", self._options.servers):
            conform = Conform(arrow_schema(self._schema))
            for batch in self._batches(partition.spans):
                delivered += batch.num_rows
                if batch.num_rows:
                    yield conform(batch)
        if delivered != partition.records:
            raise SbpSparkError(
                INCOMPLETE,
                f"{delivered} of {partition.records} records were delivered from {_named(partition.spans)}, "
                f"servers {self._options.servers}: not retriable, check the server's log",
            )

    def _batches(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = self._schema.fieldNames()
        reader = SpanReader(
            self._options.servers,
            spans,
            self._kind,
            names,
            include_headers="headers" in names,
            include_metadata=self._kind == "arrow",
            timeout=self._options.timeout,
        )
        try:
            yield from pa.RecordBatchReader.from_stream(reader)
        except (pa.ArrowException, OSError):
            # Arrow's interface hands on a text alone; the reader keeps the error that it was.
            if reader.error is not None:
                raise reader.error from None
            raise


class SbpBatchReader(DataSourceReader):
    """Plans a batch query. Offsets are settled here, once: the plan and every retry read the same records."""

    def __init__(self, options: SbpOptions, schema: StructType) -> None:
        self._options = options.for_read(Use.BATCH_READ)
        self._heads = find(options)
        columns = column_set(self._heads, options)
        columns.check(schema)
        self._source = SpanSource(options, columns.kind, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The plan; see `plan` for its rules."""
        held = bounds(self._options, self._heads)
        starts = settle(self._options, self._options.starting or Places(EARLIEST), self._heads, held)
        ends = settle(self._options, self._options.ending or Places(LATEST), self._heads, held)
        for head in self._heads:
            if ends[head.id] < starts[head.id]:
                raise SbpOptionError(
                    INVALID_VALUE,
                    f"{head} would be read from {starts[head.id]} back to {ends[head.id]}: swap the options",
                )
        return plan([(head.id, starts[head.id], ends[head.id]) for head in self._heads])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as Arrow batches."""
        return self._source.read(partition)

    def __getstate__(self) -> dict[str, Any]:
        # What travels into every task: how to read, not the streams of the plan.
        return {"_source": self._source}


def _named(spans: Sequence[Span]) -> str:
    shown = ", ".join(f"stream {stream} [{start}, {end})" for stream, start, end in spans[:3])
    return shown if len(spans) <= 3 else f"{shown} and {len(spans) - 3} more spans"
