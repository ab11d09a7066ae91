"""For the benchmark only: the same rows from the same server, handed to Spark as Python tuples, one at a time."""

# The method names are Spark's.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


@dataclass
class Span(InputPartition):
    """Offsets of one stream."""

    servers: str
    stream: str
    start: int
    end: int

    def __post_init__(self) -> None:
        super().__init__((self.start, self.end))


class TupleReader(DataSourceReader):
    """Reads spans with the package's own blocking reader and makes a tuple of every record."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = dict(options)

    def partitions(self) -> list[InputPartition]:
        """As many spans as the option `partitions` says."""
        rows, parts = int(self._options["rows"]), int(self._options["partitions"])
        step = -(-rows // parts)
        return [
            Span(self._options["servers"], self._options["path"], start, min(start + step, rows))
            for start in range(0, rows, step)
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Every record as a tuple."""
        import datetime

        import sbp_native as sbp

        assert isinstance(partition, Span)
        with sbp.connect(partition.servers) as client:
            stream = client.stream(partition.stream)
            for batch in stream.read(start=partition.start, end=partition.end):
                for record in batch.records():
                    time = datetime.datetime.fromtimestamp(record.timestamp / 1e6, tz=datetime.UTC)
                    yield (batch.stream, batch.stream_id, record.offset, time, record.key, record.value)


class TupleSource(DataSource):
    """The benchmark's opponent."""

    @classmethod
    def name(cls) -> str:
        """The word in `format(...)`."""
        return "sbp_tuples"

    def schema(self) -> str:
        """The same columns as the `records` set."""
        return "stream string, stream_id bigint, offset bigint, timestamp timestamp, key binary, value binary"

    def reader(self, schema: object) -> DataSourceReader:
        """The reader."""
        return TupleReader(dict(self.options))
