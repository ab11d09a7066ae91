"""What tests of ``format("pravega")`` need: events in a scripted store, loads and queries as Spark makes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pravega.store import Running
from sbp_native.spark.pravega.source import PravegaDataSource
from spark.test_spark_stream_reader import Query

if TYPE_CHECKING:
    import pyarrow as pa

    Row = tuple[str, int, bytes]


def content(segment: str, number: int) -> bytes:
    """What event `number` of a segment says: which it is."""
    return b"%s %d" % (segment.encode(), number) + b"." * (number % 7)


def put(store: Running, segment: str, start: int, end: int) -> None:
    """Has the store keep these events of a segment, at its end."""
    with store.grown:
        for number in range(start, end):
            event = content(segment, number)
            store.segments[segment].data += struct.pack(">ii", 0, len(event)) + event
        store.grown.notify_all()


def place(segment: str, number: int) -> int:
    """The byte at which event `number` begins, in a segment that holds such events alone."""
    return sum(8 + len(content(segment, before)) for before in range(number))


def wanted(segment: str, start: int, end: int) -> list[Row]:
    """The rows of these events."""
    found = []
    at = place(segment, start)
    for number in range(start, end):
        found.append((segment, at, content(segment, number)))
        at += 8 + len(found[-1][2])
    return found


def restarted(store: Running) -> Running:
    """A store at the address of one that has stopped, with its segments."""
    port = int(store.address.rpartition(":")[2])
    again = Running(port)
    again.segments = store.segments
    return again


def load(schema: str | None = None, **options: object) -> list[dict[str, Any]]:
    """A batch read, with the calls and in the order of Spark's, in this process."""
    from pyspark.sql.types import StructType

    source = PravegaDataSource({key: str(each) for key, each in options.items()})
    columns = source.schema()
    if schema is not None:
        columns = StructType([field for name in schema.split(",") for field in columns if field.name == name])
    reader = source.reader(columns)
    batches: list[pa.RecordBatch] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


class PravegaQuery(Query):
    """A streaming query of ``format("pravega")``, as `Query` is one of ``format("sbp")``."""

    def __init__(self, **options: object) -> None:
        self._options = {"startingOffsets": "earliest", **{key: str(each) for key, each in options.items()}}
        self.batches = []
        self.place = None
        self.restart()

    def restart(self) -> None:
        """What a new driver does: everything but the checkpoint is forgotten."""
        source = PravegaDataSource(self._options)
        self.reader = source.streamReader(source.schema())
        self._default = self.reader.getDefaultReadLimit()
