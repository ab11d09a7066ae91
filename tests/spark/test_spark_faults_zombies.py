"""Attempts that outlive their batch: what they still have to say is not heard. Without a session."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

import sbp_native as sbp
from sbp_native.spark import SbpDataSource, SbpSparkError
from spark import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.datasource import WriterCommitMessage

QUERY = "0c7f3d52-9f4e-4b0e-9d0a-0f2f3a1b5c6d"


@contextmanager
def task(batch: int, partition: int = 0, attempt: int = 0, query: str = QUERY) -> Iterator[None]:
    """The calling code is an attempt of a task of this batch of a query, as Spark tells it."""
    before = TaskContext.get()
    # It is a singleton, and would be handed out again.
    TaskContext._setTaskContext(None)
    properties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": query}
    TaskContext(partitionId=partition, attemptNumber=attempt, stageId=batch, localProperties=properties)
    try:
        yield
    finally:
        TaskContext._setTaskContext(before)


class Sink:
    """The sink, used as Spark uses it: a new writer for each batch, and another one to commit."""

    def __init__(self, address: str, stream: str, delivery: str = "exactly-once") -> None:
        # Many small batches: a writer has something on its way before it has seen its last row.
        self._options = {"servers": address, "path": stream, "batchRows": "10", "delivery": delivery}

    def _writer(self) -> object:
        return SbpDataSource(self._options).streamWriter(StructType().add("value", BinaryType()), False)

    def write(self, batch: int, rows: Iterator[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> object:
        """One attempt of one task."""
        with task(batch, partition, attempt):
            return self._writer().write(rows)

    def commit(self, batch: int, *messages: WriterCommitMessage) -> None:
        """The batch is whole."""
        self._writer().commit(list(messages), batch)


@pytest.fixture
def sink(server: sbp.Server, client: sbp.Client, name: str) -> Sink:
    """A sink into a stream of its own."""
    client.create_stream(name)
    return Sink(server.address, name)


def rows(first: int, last: int) -> pa.RecordBatch:
    """The numbers from first to last as values."""
    return pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(first, last)]})


def wanted(last: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(last))


def interrupted(
    first: pa.RecordBatch, meanwhile: Callable[[], object], rest: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The input of an attempt amid which other things happen."""
    yield first
    meanwhile()
    yield rest


def test_attempts_side_by_side(sink: Sink, client: sbp.Client, name: str) -> None:
    """Two attempts of a task, as under speculation: the second ends first."""
    messages = []

    def second() -> None:
        messages.append(sink.write(0, iter([rows(0, 50), rows(50, 100)]), attempt=1))

    messages.append(sink.write(0, interrupted(rows(0, 50), second, rows(50, 100))))
    sink.commit(0, messages[0])
    assert faults.held(client, name) == wanted(100)


def test_attempts_side_by_side_under_at_least_once(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """The same leaves every row twice: nothing but the delivery made the difference."""
    client.create_stream(name)
    sink = Sink(server.address, name, "at-least-once")
    for attempt in range(2):
        sink.write(0, iter([rows(0, 50), rows(50, 100)]), attempt=attempt)
    assert faults.held(client, name) == wanted(100) + wanted(100)


def test_a_zombie_of_a_batch_that_is_over(sink: Sink, client: sbp.Client, name: str) -> None:
    """The first attempt sleeps; a second one takes over, the next batch follows; then the first wakes up."""

    def meanwhile() -> None:
        sink.commit(0, sink.write(0, iter([rows(0, 50), rows(50, 100)]), attempt=1))
        sink.commit(1, sink.write(1, iter([rows(100, 200)])))

    # It may be told that its time is over, or that all of it is there: nobody waits for its answer.
    with suppress(SbpSparkError):
        sink.write(0, interrupted(rows(0, 50), meanwhile, rows(50, 100)))
    assert faults.held(client, name) == wanted(200)
    sink.commit(2, sink.write(2, iter([rows(200, 210)])))
    assert faults.held(client, name) == wanted(210)


def test_a_zombie_that_has_said_nothing_yet(sink: Sink, client: sbp.Client, name: str) -> None:
    """It wakes up when its batch is committed and the next one too, and has not appended a row so far."""

    def meanwhile() -> None:
        sink.commit(0, sink.write(0, iter([rows(0, 100)]), attempt=1))
        sink.commit(1, sink.write(1, iter([rows(100, 200)])))

    def late() -> Iterator[pa.RecordBatch]:
        meanwhile()
        yield rows(0, 100)

    with suppress(SbpSparkError):
        sink.write(0, late())
    assert faults.held(client, name) == wanted(200)


def test_a_batch_that_is_repeated_after_its_commit(sink: Sink, client: sbp.Client, name: str) -> None:
    """Its input is read to the end and thrown away, also when it comes in other partitions than before."""
    left = sink.write(0, iter([rows(0, 60)]))
    right = sink.write(0, iter([rows(60, 100)]), partition=1)
    sink.commit(0, left, right)
    drained = []

    def again() -> Iterator[pa.RecordBatch]:
        for start in range(0, 100, 20):
            yield rows(start, start + 20)
        drained.append(True)

    sink.commit(0, sink.write(0, again(), partition=2))
    assert drained
    assert faults.held(client, name) == wanted(100)


def test_an_attempt_that_failed_amid_its_rows(sink: Sink, client: sbp.Client, name: str) -> None:
    def fails() -> Iterator[pa.RecordBatch]:
        yield rows(0, 70)
        raise RuntimeError("the row behind this one cannot be computed")

    with pytest.raises(RuntimeError, match="cannot be computed"):
        sink.write(0, fails())
    sink.commit(0, sink.write(0, iter([rows(0, 35), rows(35, 100)]), attempt=1))
    assert faults.held(client, name) == wanted(100)
