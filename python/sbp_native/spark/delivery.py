"""Who writes, and what was written whole: what makes a repeated task or batch leave nothing twice.

Two things are told apart. A *writer* has a name and an epoch; the server stores what it sends once, however often it is
sent. So a task that Spark repeats takes the name of the task before it. And a *commit* says that a whole batch is
stored: it is one record in a stream of the sink's own, the batch's mark, appended on the condition that no other came
between. A batch that has its mark is not written again. The number alone does not make it the same batch: a checkpoint
that was put back, or deleted in part, gives numbers out a second time. So the mark says what was written, and a batch
of the same number with other rows is an error.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import sbp_native
from sbp_native import errors

from . import runtime
from .content import Content
from .errors import OFFSETS, OTHER_ROWS, UNSUPPORTED, SbpSparkError, explained

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sbp_native import Record

    from .options import SbpOptions
    from .writer import Appended, SbpCommitMessage

#: What the names of sinks' own streams begin with.
PREFIX: Final = "_sbp/sinks"

#: Commits that are kept at least, to know a batch that comes again after later ones; so many more before a trim.
_KEPT: Final = 64
#: Of what a mark says.
_VERSION: Final = 2
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class Epoch:
    """One batch of one sink: of a streaming query, or of those that write under one application id."""

    #: Names the sink: the query and the target, or the application and the target.
    sink: str
    #: The batch, or the version.
    number: int

    def writer(self, partition: int) -> tuple[bytes, int]:
        """The writer id and epoch of the task that writes a partition, whichever attempt it is."""
        return _digest(self.sink, str(partition))[:16], self.number

    @property
    def is_committed(self) -> bool:
        """Whether it gets a mark when it is whole."""
        return self.sink.startswith(PREFIX)

    @property
    def advice(self) -> str:
        """What to do when it was written before with other rows."""
        if self._is_transaction:
            return (
                "a txnVersion stands for the same rows each time, and the next ones need a higher one. After a "
                "checkpoint was put back, deleted or begun anew, the batches of foreachBatch need a new txnAppId"
            )
        return (
            "the checkpoint is older than what was written, put back or deleted in part, or the plan gives other rows "
            "each time (rand, uuid, a table that was changed). Put the newest checkpoint in place, or begin with a new "
            "checkpointLocation, from the first record that is not in the target; with a new 'sinkId' this query goes "
            "on, and what is in the target already is there twice"
        )

    @property
    def _is_transaction(self) -> bool:
        return self.sink.startswith(f"{PREFIX}/txn/")

    def __str__(self) -> str:
        return f"version {self.number} of this txnAppId" if self._is_transaction else f"batch {self.number}"


def sink_name(options: SbpOptions) -> str:
    """What tells this sink from another of the same query: the option, or the target."""
    return options.sink_id or options.target() or ""


def of_stream(query: str, batch: int, sink: str) -> Epoch:
    """A micro-batch of a streaming query."""
    return Epoch(f"{PREFIX}/{query}/{_short(sink)}", batch)


def of_transaction(app: str, version: int, sink: str) -> Epoch:
    """A batch write under an application's id and version."""
    return Epoch(f"{PREFIX}/txn/{_short(app)}/{_short(sink)}", version)


def of_job(job: str) -> Epoch:
    """A batch write that only its own attempts repeat; it is never committed."""
    return Epoch(job, 0)


def of_task(sink: str) -> Epoch:
    """The micro-batch that the task which calls this belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    batch = context.getLocalProperty(_BATCH) if context is not None else None
    if query is None or batch is None:
        raise SbpSparkError(
            UNSUPPORTED,
            f"Spark does not tell this task its query and batch ({_QUERY}, {_BATCH}), which delivery=exactly-once needs"
            ": use delivery=at-least-once",
        )
    return of_stream(query, int(batch), sink)


def written(messages: Iterable[SbpCommitMessage]) -> list[Appended]:
    """What all tasks together have stored."""
    return [each for message in messages for each in message.appended]


def content(messages: Iterable[SbpCommitMessage]) -> Content:
    """What all tasks together were given, stored now or before."""
    return Content.sum(message.content for message in messages)


def partition() -> int:
    """The number of the partition that the calling task writes."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


class Mark(NamedTuple):
    """The commit of one batch, as it is stored."""

    number: int
    content: Content
    #: The offset behind its record.
    behind: int

    def check(self, epoch: Epoch, content: Content, log: str) -> None:
        """Raises `SbpSparkError` unless this is what was committed."""
        if content == self.content or content.rows == self.content.rows == 0:
            return
        if self.content.digest is None and content.rows == self.content.rows:
            raise SbpSparkError(
                OTHER_ROWS,
                f"{epoch} was written before, by an earlier release of sbp-native, which did not note which rows "
                f"(stream {log}), so it is not known whether these {content.rows} are the same: nothing was written "
                "now. If nobody has touched the checkpoint, start once with the release that wrote it, which passes "
                f"over them; else {epoch.advice}",
            )
        now = "others" if content.rows == self.content.rows else f"now there are {content.rows}"
        raise SbpSparkError(
            OTHER_ROWS,
            f"{epoch} was written before with other rows ({self.content.rows} then, {now}; stream {log}), and nothing "
            f"was written now: {epoch.advice}",
        )


class CommitLog:
    """The commits of one sink: a stream with a mark for each batch, the last ones of which are kept."""

    def __init__(self, options: SbpOptions, sink: str) -> None:
        self._options = options
        self._name = sink

    def last(self) -> int | None:
        """The highest batch that is committed, None if there is none."""
        with explained(f"reading the commits of the sink, stream {self._name}", self._options.servers):
            found = self._last()
            return found.number if found is not None else None

    def find(self, epoch: Epoch) -> Mark | None:
        """The mark of this batch; None if neither it nor a later one is committed.

        Raises `SbpSparkError` if only later ones are known: nobody can tell then what this one held.
        """
        with explained(f"reading the commits of the sink, stream {self._name}", self._options.servers):
            return self._of(epoch, self._last())

    def commit(self, epoch: Epoch, content: Content, appended: Iterable[Appended]) -> None:
        """Commits a batch; one that is committed already stays as it is.

        Raises `SbpSparkError` if other rows were committed under its number, or what was is not known.
        """
        streams = _by_stream(appended)
        record = {"v": _VERSION, "batch": epoch.number, "rows": content.rows, "digest": f"{content.digest:016x}"}
        value = json.dumps({**record, "streams": streams}, separators=(",", ":")).encode()
        deadline = time.monotonic() + self._options.timeout
        with explained(f"committing {epoch}, stream {self._name}", self._options.servers):
            while not self._try(epoch, content, value, streams, deadline):
                pass

    def _try(self, epoch: Epoch, content: Content, value: bytes, streams: Iterable[str], deadline: float) -> bool:
        last = self._last(make_for=streams)
        mark = self._of(epoch, last)
        if mark is not None:
            mark.check(epoch, content, self._name)
            return True
        stream = self._stream()
        at = last.behind if last is not None else stream.positions().latest
        try:
            stream.append(value, expected_offset=at)
        except errors.PreconditionFailedError:
            if time.monotonic() > deadline:
                raise
            return False
        except errors.IndeterminateError:
            # It is looked up whether it was stored; a condition that failed cannot be met by a later attempt.
            if time.monotonic() > deadline:
                raise
            return False
        if at % _KEPT == _KEPT - 1:
            with suppress(errors.SbpError):
                stream.trim(before=at + 1 - _KEPT)
        return True

    def _of(self, epoch: Epoch, last: Mark | None) -> Mark | None:
        if last is None or last.number < epoch.number:
            return None
        if last.number == epoch.number:
            return last
        stream = self._stream()
        # Numbers grow by one at least from mark to mark.
        first = last.behind - 1 - (last.number - epoch.number)
        for batch in stream.read(start=max(first, stream.positions().earliest), end=last.behind):
            for record in batch:
                mark = self._mark(record)
                if mark.number == epoch.number:
                    return mark
        raise SbpSparkError(
            OTHER_ROWS,
            f"{epoch} comes after {last.number}, which was the last one that was written, and what it may have held is "
            f"not noted (stream {self._name}), so nothing was written now: {epoch.advice}",
        )

    def _last(self, make_for: Iterable[str] | None = None) -> Mark | None:
        """The last mark; without a stream there is none, and one is made if the marks are to be of these streams."""
        try:
            batches = self._stream().fetch("latest-1")
        except errors.StreamNotFoundError:
            if make_for is not None:
                self._make(make_for)
            return None
        return self._mark(list(batches[-1])[-1]) if batches else None

    def _make(self, streams: Iterable[str]) -> None:
        """Makes the stream, with as many copies as the one of the sink's streams that has most."""
        replicas, acks = self._copies(streams)
        # Of two that make it with different numbers of copies, the first one's is the one.
        with suppress(errors.AlreadyExistsError):
            runtime.client(self._options).create_stream(self._name, replicas=replicas, acks=acks, exist_ok=True)

    def _copies(self, streams: Iterable[str]) -> tuple[int | None, int | None]:
        options, client = self._options, runtime.client(self._options)
        target, written = options.target(), set(streams)
        if target is not None:
            found = []
            # It may be gone since its rows were written, or not have been made for a batch without rows.
            with suppress(errors.StreamNotFoundError):
                found.append(client.describe_stream(int(target) if target.isdigit() else target))
        else:
            found = [info for info in client.list_streams() if str(info.id) in written] if written else []
        return max(((info.replicas, info.acks) for info in found), default=(options.replicas, options.acks))

    def _mark(self, record: Record) -> Mark:
        """What a record of the stream says. Marks of the first version have no digest, and the rows of each stream."""
        try:
            said = json.loads(bytes(record.value or b""))
            if said["v"] == 1:
                rows = sum(int(stream[2]) for stream in said["streams"].values())
                return Mark(int(said["batch"]), Content(rows, None), record.offset + 1)
            if said["v"] == _VERSION:
                content = Content(int(said["rows"]), int(said["digest"], 16))
                return Mark(int(said["batch"]), content, record.offset + 1)
        except (ValueError, TypeError, LookupError, AttributeError):
            pass
        raise SbpSparkError(
            OFFSETS,
            f"record {record.offset} of stream {self._name} is no commit of a sink that this release can read: it is a "
            "later release's, or somebody else has appended to the stream",
        )

    def _stream(self) -> sbp_native.Stream:
        return runtime.client(self._options).stream(self._name)


def _by_stream(appended: Iterable[Appended]) -> dict[str, list[int]]:
    """First offset, last offset and rows of each stream, over all tasks; -1 where a place is not known."""
    found: dict[int, list[int]] = {}
    for one in appended:
        known = found.setdefault(one.stream, [one.first, one.last, 0])
        known[0] = min((place for place in (known[0], one.first) if place >= 0), default=-1)
        known[1] = max(known[1], one.last)
        known[2] += one.rows
    return {str(stream): found[stream] for stream in sorted(found)}


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _short(text: str) -> str:
    return _digest(text).hex()[:16]
