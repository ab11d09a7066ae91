"""How a task reads its spans, for the batch and the streaming reader alike."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from sbp_native.errors import SbpError

from . import gaps, runtime
from .errors import DATA_LOSS, INCOMPLETE, INVALID_VALUE, SbpSparkError, explained
from .naming import StreamKey, called
from .planning import SbpInputPartition, TimeWindow
from .schema import GAP_COLUMN, Conform, arrow_schema, gap_row

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from .gaps import Piece
    from .offsets import Span
    from .options import Columns
    from .read_options import ReadOptions

_log = logging.getLogger(__name__)

#: The first and the last microsecond of the years 1 to 9999.
_FIRST_TIME: Final = -62_135_596_800_000_000
_LAST_TIME: Final = 253_402_300_799_999_999


class SpanSource:
    """All that is pickled into a task, beside its partition: options, columns, and names for the rows of gaps."""

    def __init__(
        self,
        options: ReadOptions,
        kind: Columns,
        schema: StructType,
        names: Mapping[StreamKey, str] | None = None,
        lost: str = "",
    ) -> None:
        """`lost` is what may help when records of the plan are gone, beside going on without them."""
        # The names are for the plan; a task has its spans, and there may be thousands.
        self._options = replace(options, streams=(), starting=None, ending=None)
        self._kind: Columns = kind
        self._schema = schema
        self._names = dict(names or {}) if options.gaps_as_rows else {}
        self._lost = lost

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in the order of (stream id, offset), and of what is gone what the options ask.

        Raises `SbpSparkError` unless records delivered and records reported as gone make up all that were planned.
        """
        if not isinstance(partition, SbpInputPartition) or not partition.spans:
            return
        runtime.prepare_worker(self._options.worker_gc_freeze)
        task = _Task(self._options, self._kind, self._schema, self._names, self._lost, partition.windows)
        with explained(f"reading {_named(partition.spans)}", self._options.servers):
            yield from task.read(partition.spans)
        if task.delivered + task.gone != partition.records:
            gone = f" and {task.gone} were reported as gone" if task.gone else ""
            raise SbpSparkError(
                INCOMPLETE,
                f"{task.delivered} of {partition.records} records were delivered{gone} from {_named(partition.spans)}, "
                f"{self._options.where}: not retriable, check the server's log",
            )


class _Task:
    """One run over the spans of a partition."""

    def __init__(
        self,
        options: ReadOptions,
        kind: Columns,
        schema: StructType,
        names: Mapping[StreamKey, str],
        lost: str,
        windows: Mapping[StreamKey, TimeWindow],
    ) -> None:
        self._options = options
        self._service = options.service()
        self._lost = lost
        self._windows = windows
        self._kind: Columns = kind
        self._names = names
        self._arrow = arrow_schema(schema)
        absent = GAP_COLUMN[kind]
        self._conform = Conform(self._arrow, absent)
        own = [name for name in schema.fieldNames() if name != absent]
        # Columns carry the number of rows, so there must be one.
        self._projection = own or ["_offset" if kind == "arrow" else "offset"]
        self._time = "_timestamp" if kind == "arrow" else "timestamp"
        if windows and self._time not in self._projection:
            self._projection = [*self._projection, self._time]
        if not self._service.is_dense and "offset" not in self._projection:
            # Else nobody could say where a row stands.
            self._projection = [*self._projection, "offset"]
        #: How many of the numbers that were planned are done with: each is a record, or none where there are gaps.
        self.delivered = 0
        self._begun = 0
        self.gone = 0

    def read(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        if self._options.fail_on_data_loss:
            yield from self._insist(spans)
            return
        left = list(spans)
        while left:
            cut = self._look(left)
            left = yield from self._go_on(cut)

    def _insist(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        before = self.delivered
        try:
            yield from self._deliver(spans)
        except Exception as error:
            missing = self._missing(gaps.behind(spans, self.delivered - before))
            if not missing:
                raise
            raise SbpSparkError(
                DATA_LOSS,
                f"records of this query are not there any more: {gaps.told(missing, self._names)}, "
                f"{self._options.where}: not retriable, {self._lost}set failOnDataLoss=false to go on without them",
            ) from error

    def _go_on(self, cut: Sequence[Piece]) -> Generator[pa.RecordBatch, None, list[Span]]:
        """Delivers what is there and reports what is gone; returns what is left after a loss that came in between."""
        runs = gaps.runs(cut)
        if not self._options.gaps_as_rows:
            self._warn([piece for piece in cut if piece.gone])
            runs = [kept] if (kept := [piece for piece in cut if not piece.gone]) else []
        for place, run in enumerate(runs):
            if run[0].gone:
                self._warn(run)
                yield self._row(run[0])
                continue
            spans = [piece.span for piece in run]
            before = self.delivered
            try:
                yield from self._deliver(spans)
            except Exception:
                left = gaps.behind(spans, self.delivered - before)
                if not self._missing(left):
                    raise
                later = [piece.span for other in runs[place + 1 :] for piece in other]
                return left + later
        return []

    def _deliver(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        """The rows of spans; `delivered` counts the records that were read, those of other times too."""
        self._begun = self.delivered
        for window, run in groupby(spans, key=lambda span: self._windows.get(span[0])):
            for batch, covered in self._service.read(list(run), self._kind, self._projection):
                if batch is None:
                    self.delivered += covered
                    continue
                rows = self._within(batch, window) if window is not None else batch
                self._check_times(spans, batch, covered)
                self.delivered += covered
                if rows.num_rows:
                    yield self._conform(rows)

    def _check_times(self, spans: Sequence[Span], batch: pa.RecordBatch, covered: int) -> None:
        """Raises `SbpSparkError` for a time that Spark cannot show, which says neither where it is nor what."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._time not in batch.schema.names:
            return
        times = batch.column(self._time).cast(pa.int64())
        found = pc.min_max(times)
        if not batch.num_rows or (found["min"].as_py() >= _FIRST_TIME and found["max"].as_py() <= _LAST_TIME):
            return
        place, time = next((row, at) for row, at in enumerate(times.to_pylist()) if not _FIRST_TIME <= at <= _LAST_TIME)
        before = self.delivered - self._begun
        stream, offset, _ = gaps.behind(spans, before + place)[0]
        if not self._service.is_dense:
            # The rows of a batch are of one span then.
            stream = gaps.behind(spans, before + covered - 1)[0][0]
            offset = batch.column("offset")[place].as_py()
        raise SbpSparkError(
            INVALID_VALUE,
            f"the record at offset {offset} of {self._about(stream)} has the time {time} "
            "microseconds, which is not in the years 1 to 9999: not retriable, leave out the column "
            f"{self._time!r} with .schema(...), or read the spans before and behind it",
        )

    def _about(self, stream: StreamKey) -> str:
        """A stream for an error. A task is not told the names of its streams, which may be thousands: it asks."""
        name = self._names.get(stream)
        if name is None:
            with contextlib.suppress(SbpError):
                head = self._service.described(stream)
                name = None if head is None else head.name
        return called(stream, name)

    def _within(self, batch: pa.RecordBatch, window: TimeWindow) -> pa.RecordBatch:
        """The records of a batch whose own times lie in the window, wherever they stand."""
        import pyarrow as pa
        import pyarrow.compute as pc

        times = batch.column(self._time).cast(pa.int64())
        if window.start is not None:
            batch = batch.filter(pc.greater_equal(times, _micros(window.start)))
            times = batch.column(self._time).cast(pa.int64())
        return batch if window.end is None else batch.filter(pc.less(times, _micros(window.end)))

    def _look(self, spans: Sequence[Span]) -> list[Piece]:
        earliest, latest = self._service.bounds(sorted({span[0] for span in spans}))
        return gaps.pieces(spans, earliest, latest)

    def _missing(self, spans: Sequence[Span]) -> list[Piece]:
        return [piece for piece in self._look(spans) if piece.gone]

    def _warn(self, gone: Iterable[Piece]) -> None:
        gone = list(gone)
        if gone:
            self.gone += sum(piece.records for piece in gone)
            _log.warning(
                "[SBP-%d] records of this query are not there any more, and it goes on without them: %s, %s",
                DATA_LOSS,
                gaps.told(gone, self._names),
                self._options.where,
            )

    def _row(self, piece: Piece) -> pa.RecordBatch:
        name = self._names.get(piece.span[0], str(piece.span[0]))
        return gap_row(self._kind, self._arrow, name, piece.span)


def _micros(time_ms: int) -> int:
    return min(time_ms * 1_000, 2**63 - 1)


def _named(spans: Sequence[Span]) -> str:
    shown = ", ".join(f"{called(stream)} [{start}, {end})" for stream, start, end in spans[:3])
    return shown if len(spans) <= 3 else f"{shown} and {len(spans) - 3} more spans"
