"""What the tests of faults send into Spark's workers, and how they look at what came of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import sbp_native as sbp
from sbp_native.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

#: Settings of Spark with which rows are handed on soon, some at a time: otherwise a task's few rows wait between its
#: Python workers, and none is with the sink before the last of them has come.
SMALL_PORTIONS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50", "spark.buffer.size": "1024"}


def fail_late(batches: Iterator[pa.RecordBatch], servers: str, target: str) -> Iterator[pa.RecordBatch]:
    """Passes everything on, and then fails if this is a task's first attempt, when some of its rows are stored."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        with sbp.connect(servers, timeout=10) as client:
            eventually(lambda: client.stream(target).positions().latest > 0, timeout=90)
        raise RuntimeError("the first attempt of every task fails here")


def numbered(count: int) -> list[bytes]:
    """Different values, one for each number."""
    return [b"row %d" % number for number in range(count)]


def held(client: sbp.Client, name: str) -> Counter[bytes | None]:
    """The values that a stream holds, and how often."""
    found: Counter[bytes | None] = Counter()
    for batch in client.stream(name).read(start="earliest", end="latest"):
        found.update(batch.values)
    return found


def linger(
    batches: Iterator[pa.RecordBatch], place: Path, partition: int, servers: str, target: str, within: float = 90.0
) -> Iterator[pa.RecordBatch]:
    """Passes everything on; one task's first attempt then waits until the second one has passed everything on too.

    The second begins when rows of the first are stored. Each leaves a file behind when it has passed everything on.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.partitionId() != partition:
        yield from batches
        return
    first, second = place / "attempt-0", place / "attempt-1"
    if context.attemptNumber() == 0:
        yield from _until_stored(batches, servers, target, within)
        first.touch()
        eventually(second.exists, timeout=within)
    else:
        eventually(first.exists, timeout=within)
        yield from batches
        second.touch()


def _until_stored(
    batches: Iterator[pa.RecordBatch], servers: str, target: str, within: float
) -> Iterator[pa.RecordBatch]:
    """Passes everything on, and waits until the first row of it is stored."""
    head = next(batches)
    yield head
    yield from batches
    value = head.column("value")[0].as_py()
    value = value.encode() if isinstance(value, str) else value
    with sbp.connect(servers, timeout=10) as client:
        eventually(lambda: value in held(client, target), timeout=within)
