"""The streaming read: where a query begins, how far a micro-batch goes, what it reads."""

# The method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from . import gaps
from .errors import DATA_LOSS, OFFSETS, UNSUPPORTED, SbpSparkError, explained
from .limits import Cut, Patience, advance
from .naming import StreamKey, called
from .offsets import OffsetMap, spans_between
from .places import LATEST, Places
from .planning import PlanBounds, plan
from .read_options import ReadOptions, Use
from .report import Report
from .schema import column_set
from .span_source import SpanSource
from .standing import Standing, stand
from .streams import bounds, find, settle, tags
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .offsets import Span

_log = logging.getLogger(__name__)


class SbpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in one process on the driver for the whole life of a query; only `read` runs in the tasks.

    A stream that is met later, because it was created, or added to the option before a restart, is read from its first
    record. Records that are gone before they were read fail the query, or are told and passed over, as the options say.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options.for_read(Use.STREAM_READ)
        self._heads = find(options)
        columns = column_set(self._heads, options, growing=True)
        columns.check(schema)
        self._watch = Watch(options, self._heads)
        self._source = SpanSource(options, columns.kind, schema, self._watch.names)
        self._report = Report()
        self._patience = Patience(options.min_offsets_per_trigger, options.max_trigger_delay)
        self._began: OffsetMap | None = None
        self._target: Mapping[StreamKey, int] | None = None
        self._cut = Cut({})
        # The last two offsets, as Spark has them and as we do: most questions are about these, and reading ten thousand
        # streams anew takes a while.
        self._known: list[tuple[dict[str, Any], OffsetMap]] = []

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Asked twice in one run, it answers the same."""
        if self._began is None:
            places = self._options.starting or Places(LATEST)
            held = bounds(self._options, self._heads)
            settled = settle(self._options, places, self._heads, held)
            done = self._watch.done_at(settled)
            self._began = OffsetMap(settled, initial=True, gone=done, tags=tags(self._heads), of=self._options.of)
            return self._keep(self._began)
        return self._began.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say, else everything there is. Spark knows no limit of both kinds; `latestOffset` does."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of the query: what is appended from here on is not read."""
        _, latest = self._watch.look()
        self._target = {stream: latest[stream] for stream in self._watch.ids}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself if there is nothing to read.

        Raises `SbpSparkError` if records that the query should have read are gone, unless it may go on without them.
        """
        most = self._most(limit)
        begin = self._offset(start)
        earliest, latest = self._watch.look(begin.next.keys() - begin.gone if begin.gone else begin.next.keys())
        replaced = self._watch.replaced(begin.tags) | self._watch.reborn(begin, latest)
        read = self._watch.due(self._watch.done(begin.next, latest) - replaced)
        found = stand(begin, read, earliest, latest, self._watch.seen, self._target, replaced)
        self._judge(found)
        waiting = found.records
        patient = not isinstance(limit, ReadAllAvailable) and self._target is None and not found.before
        if patient and self._patience.waits(waiting, time.monotonic()):
            return start
        if most is None or waiting <= most:
            moved: Mapping[StreamKey, int] = found.ends
        else:
            ids = list(found.ends)
            has_times = self._options.service().has_times
            locate = (lambda moment: self._watch.offsets_at(ids, moment)) if has_times else None
            self._cut = advance(found.starts, found.ends, most, locate, self._cut)
            with explained("looking for where a micro-batch can end", self._options.servers):
                moved = self._options.service().aligned(found.starts, self._cut.ends)
        reached = {**begin.next, **found.discovered, **found.before, **moved}
        found.done = self._watch.done(reached, latest) - begin.gone
        end = found.end(begin, moved, self._watch.tags)
        if end is None:
            return start
        self._watch.check()
        self._tell(found)
        return self._keep(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of every stream when it was last looked at, for the lag in Spark's progress report."""
        if not self._watch.seen:
            self._watch.look()
        return self._report.to_json(self._watch)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The plan of one micro-batch: the same for the same two offsets, after a restart too.

        Only a batch that an earlier run of the query planned is looked at here; else the tasks find what is gone.
        """
        until = self._offset(end)
        spans = spans_between(self._offset(start), until)
        if not self._made(until):
            spans = self._kept(spans, self._watch.replaced(until.tags))
        return plan(spans, PlanBounds.of(self._options))

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

    def _offset(self, value: dict[str, Any]) -> OffsetMap:
        for known, offset in self._known:
            if known == value:
                return offset
        offset = OffsetMap.from_json(value)
        if offset.of != self._options.of:
            theirs, ours = (f"format({of or 'sbp'!r})" for of in (offset.of, self._options.of))
            raise SbpSparkError(
                OFFSETS,
                f"the checkpoint holds offsets of {theirs}, and this query reads with {ours}: begin with a new "
                "checkpoint",
            )
        return offset

    def _keep(self, offset: OffsetMap) -> dict[str, Any]:
        answer = offset.to_json()
        if not self._known or self._known[0][0] != answer:
            self._known = [(answer, offset), *self._known[:1]]
        return answer

    def _most(self, limit: ReadLimit) -> int | None:
        if isinstance(limit, ReadMaxRows):
            return int(limit.max_rows)
        if isinstance(limit, (ReadAllAvailable, ReadMinRows)):
            return None
        raise SbpSparkError(
            UNSUPPORTED, f"a limit by {type(limit).__name__} is not supported: use maxOffsetsPerTrigger"
        )

    def _made(self, offset: OffsetMap) -> bool:
        """Whether this run has made this offset, and not an earlier one."""
        return any(made is offset for _, made in self._known)

    def _kept(self, spans: Sequence[Span], replaced: frozenset[StreamKey]) -> list[Span]:
        """What there still is of a batch that an earlier run of the query planned."""
        firsts = {stream: first for stream, first, _ in spans if stream in replaced}
        found = Standing(unknown=firsts, replaced=replaced)
        if self._options.fail_on_data_loss:
            earliest, latest = self._watch.look({span[0] for span in spans})
            found.lost = [piece.span for piece in gaps.pieces(spans, earliest, latest) if piece.gone]
            self._judge(found)
        elif firsts:
            self._tell(found)
        return [span for span in spans if span[0] not in replaced]

    def _judge(self, found: Standing) -> None:
        """Raises `SbpSparkError` if something is gone and the query may not go on without it."""
        if not self._options.fail_on_data_loss or not (found.lost or found.unknown):
            return
        advice = "set failOnDataLoss=false to go on without them"
        if found.lost or found.replaced:
            advice += ", or start a new query with a new checkpoint"
        raise SbpSparkError(
            DATA_LOSS,
            f"records of this query are not there: {self._told(found)}, {self._options.where}: not retriable, {advice}",
        )

    def _tell(self, found: Standing) -> None:
        """What a batch passes over, once it is sure that it does."""
        self._report.add(found)
        if found.lost or found.unknown:
            _log.warning(
                "[SBP-%d] records of this query are not there, and it goes on without them: %s, %s",
                DATA_LOSS,
                self._told(found),
                self._options.where,
            )
        over = [stream for stream in found.gone if stream not in found.unknown and stream not in found.before]
        if over:
            named = ", ".join(called(stream, self._watch.names.get(stream)) for stream in sorted(over)[:20])
            _log.info("deleted after all their records that were seen had been read: %s", named)

    def _told(self, found: Standing) -> str:
        names = self._watch.names
        parts = [gaps.told([gaps.Piece(span, gone=True) for span in found.lost], names)] if found.lost else []
        for stream, first in sorted(found.unknown.items())[:20]:
            name = called(stream, names.get(stream))
            if stream in found.replaced:
                parts.append(
                    f"{name} is another one than that of the checkpoint, as when a server was set up anew, and what "
                    f"that one held from offset {first} on is not known"
                )
            else:
                parts.append(f"{name} was deleted, and what it held from offset {first} on is not known")
        return ", ".join(parts)
