"""The sink of users, with gates: when what a task or a batch holds is stored, and that is not noted yet."""

# The names are Spark's.
# ruff: noqa: N802, N803

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sbp_native.spark import SbpDataSource
from sbp_native.spark.options import SbpOptions
from sbp_native.spark.stream_writer import SbpStreamWriter
from sbp_native.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

#: What a commit waits for at most.
WITHIN = 150.0


class Gate:
    """Files below a directory by which a test and a sink of another process wait for each other, step by step."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def pass_through(self, step: str) -> None:
        """Says that the rows of a step are stored, and waits until it may go on."""
        self._place.mkdir(parents=True, exist_ok=True)
        (self._place / f"stored-{step}").touch()
        eventually((self._place / f"open-{step}").exists, timeout=WITHIN)

    def wait(self, step: str) -> None:
        """Waits until the rows of a step are stored."""
        eventually((self._place / f"stored-{step}").exists, timeout=WITHIN)

    def open(self, step: str) -> None:
        """Lets it go on."""
        self._place.mkdir(parents=True, exist_ok=True)
        (self._place / f"open-{step}").touch()


def of(checkpoint: str) -> Gate:
    """The gate of the query with this checkpoint."""
    return Gate(Path(checkpoint).with_name("gate"))


class GatedDataSource(SbpDataSource):
    """`sbp` under another name. Its commits wait, at the gate of the query's checkpoint: step `batch-0` and so on."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._checkpoint = options.get("checkpointLocation", "")

    @classmethod
    def name(cls) -> str:
        return "gated"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return GatedWriter(self._options, schema, overwrite, self._checkpoint)


class FailingDataSource(GatedDataSource):
    """The same for tasks, `task-0` and so on. The first attempt of each stores its rows, waits, and fails."""

    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FailingWriter(self._options, schema, overwrite, self._checkpoint)


class GatedWriter(SbpStreamWriter):
    """The sink's writer, which waits in front of each commit."""

    def __init__(self, options: SbpOptions, schema: StructType, overwrite: bool, checkpoint: str) -> None:
        super().__init__(options, schema, overwrite)
        self._checkpoint = checkpoint

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        of(self._checkpoint).pass_through(f"batch-{batchId}")
        super().commit(messages, batchId)


class FailingWriter(GatedWriter):
    """The sink's writer, whose tasks fail the first time, behind their gate."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        written = super().write(iterator)
        if context.attemptNumber() == 0:
            of(self._checkpoint).pass_through(f"task-{context.partitionId()}")
            raise RuntimeError("the first attempt of every task fails here")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        SbpStreamWriter.commit(self, messages, batchId)
