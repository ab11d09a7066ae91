"""Who writes, and what was written whole: what makes a repeated task or batch leave nothing twice.

Two things are told apart. A *writer* has a name and an epoch; the server stores what it sends once, however often it is
sent. So a task that Spark repeats takes the name of the task before it. And a *commit* says that a whole batch is
stored: it is one record in a stream of the sink's own, appended on the condition that no other came between. A batch
that was committed is not written again, even if it were to hold other rows now.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sbp_native
from sbp_native import errors

from . import runtime
from .errors import UNSUPPORTED, SbpSparkError, explained

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .options import SbpOptions
    from .writer import Appended

#: What the names of sinks' own streams begin with.
PREFIX: Final = "_sbp/sinks"

#: Commits before the last one that are kept; they are of no use, but each trim is a call.
_KEPT: Final = 64
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


def written(messages: Iterable[object]) -> list[Appended]:
    """What all tasks together have stored."""
    return [each for message in messages for each in getattr(message, "appended", ())]


def partition() -> int:
    """The number of the partition that the calling task writes."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


class CommitLog:
    """The commits of one sink: a stream of which only the last record counts."""

    def __init__(self, options: SbpOptions, sink: str) -> None:
        self._options = options
        self._name = sink

    def last(self) -> int | None:
        """The highest batch that is committed, None if there is none."""
        with explained(f"reading the commits of the sink, stream {self._name}", self._options.servers):
            found = self._last()
            return found[0] if found is not None else None

    def has(self, epoch: Epoch) -> bool:
        """Whether this batch, or a later one, is committed."""
        last = self.last()
        return last is not None and last >= epoch.number

    def commit(self, epoch: Epoch, appended: Iterable[Appended]) -> None:
        """Commits a batch; one that is committed already, or is older than the last one that is, stays as it is."""
        record = json.dumps(
            {"v": 1, "batch": epoch.number, "streams": _by_stream(appended)}, separators=(",", ":")
        ).encode()
        deadline = time.monotonic() + self._options.timeout
        with explained(f"committing batch {epoch.number}, stream {self._name}", self._options.servers):
            while not self._try(epoch.number, record, deadline):
                pass

    def _try(self, number: int, record: bytes, deadline: float) -> bool:
        last = self._last(create=True)
        if last is not None and last[0] >= number:
            return True
        stream = self._stream()
        at = last[1] if last is not None else stream.positions().latest
        try:
            stream.append(record, expected_offset=at)
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
                stream.trim(before=at)
        return True

    def _last(self, create: bool = False) -> tuple[int, int] | None:
        """The last commit's batch, and the offset behind its record."""
        try:
            batches = self._stream().fetch("latest-1")
        except errors.StreamNotFoundError:
            if create:
                runtime.client(self._options).create_stream(self._name, exist_ok=True)
            return None
        if not batches:
            return None
        last = list(batches[-1])[-1]
        return int(json.loads(bytes(last.value or b""))["batch"]), last.offset + 1

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
