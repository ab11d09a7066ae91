"""A source and a sink that cost nothing: what Spark itself allows. Workers import this module by its name."""

# The names of methods and arguments are Spark's.
# ruff: noqa: N802, N803

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sbp_native.spark.runtime import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = "stream string, stream_id bigint, offset bigint, timestamp timestamp, key binary, value binary"
ROWS_PER_BATCH = 10_000


def prepared(names: Sequence[str], rows: int) -> pa.RecordBatch:
    """`rows` rows of 100 bytes in the columns of a read."""
    import pyarrow as pa

    columns: Mapping[str, pa.Array] = {
        "stream": pa.array(["rows"] * rows),
        "stream_id": pa.array([1] * rows, pa.int64()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([1_000_000] * rows, pa.timestamp("us", tz="UTC")),
        "key": pa.array([None] * rows, pa.binary()),
        "value": pa.array([bytes(range(100))] * rows, pa.binary()),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in names})


class Part(InputPartition):
    """A number of rows to yield."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)


def _yield(names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    batch = prepared(names, min(rows, ROWS_PER_BATCH))
    while rows > 0:
        yield batch if rows >= batch.num_rows else batch.slice(0, rows)
        rows -= batch.num_rows


class FakeReader(DataSourceReader):
    """One prepared batch again and again, in as many tasks of the same size as the package plans."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._rows, self._tasks, self._names = int(options["rows"]), int(options["tasks"]), list(names)

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        each = -(-self._rows // self._tasks)
        return [Part(min(each, self._rows - start)) for start in range(0, self._rows, each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batch, until there are rows enough."""
        return _yield(self._names, partition.value)


class FakeStreamReader(DataSourceStreamReader):
    """Has a hundred rows whenever it is asked."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)

    def initialOffset(self) -> dict[str, Any]:
        """The beginning."""
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Always ahead."""
        return {"at": time.time_ns()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One task."""
        return [Part(100)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The hundred rows."""
        return _yield(self._names, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing."""


class Wrote(WriterCommitMessage):
    """Nothing was written."""


class _Drain:
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Takes the rows and drops them."""
        prepare_worker()
        for _ in iterator:
            pass
        return Wrote()


class FakeWriter(_Drain, DataSourceArrowWriter):
    """Takes everything, keeps nothing."""


class FakeStreamWriter(_Drain, DataSourceStreamArrowWriter):
    """The same for streams."""

    def __init__(self) -> None:
        # What the package does, so that neither side pays for Spark's garbage collections.
        prepare_worker()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing."""


class FakeSource(DataSource):
    """`format("fake")`: options `rows` and `tasks` for a batch read."""

    @classmethod
    def name(cls) -> str:
        """The word in `format(...)`."""
        return "fake"

    def schema(self) -> str:
        """The columns of a read without `.schema(...)`."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch source."""
        return FakeReader(self.options, schema.fieldNames())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming source."""
        return FakeStreamReader(schema.fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch sink."""
        return FakeWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The streaming sink."""
        return FakeStreamWriter()
