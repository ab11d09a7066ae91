"""The streaming write: each micro-batch once, or at least once."""

# The arguments' names are Spark's.
# ruff: noqa: ARG002, N803

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from . import delivery, runtime
from .errors import UNSUPPORTED, SbpOptionError
from .options import SbpOptions, Use
from .writer import SbpCommitMessage, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType


class SbpStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every micro-batch, and once more to commit it; `write` runs in the tasks."""

    def __init__(self, options: SbpOptions, schema: StructType, overwrite: bool) -> None:
        options.refuse_all_but(Use.STREAM_WRITE)
        if overwrite:
            raise SbpOptionError(
                UNSUPPORTED,
                "output mode 'complete' writes the whole result anew each time, and a stream can only be appended to: "
                "use outputMode('append') with a watermark, or foreachBatch",
            )
        self._options = options
        self._sink = delivery.sink_name(options)
        self._once = options.delivery != "at-least-once"
        self._target = Target.of(options, schema, growing=True)
        # The driver's Python processes collect garbage after every call too, that is twice per micro-batch.
        runtime.prepare_worker(options.worker_gc_freeze)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Appends the rows of one task and waits until all of them are durable."""
        if not self._once:
            return self._target.write(iterator, None)
        epoch = delivery.of_task(self._sink)
        if delivery.CommitLog(self._options, epoch.sink).find(epoch) is not None:
            return self._target.pass_over(iterator, epoch)
        return self._target.write(iterator, epoch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Notes that the micro-batch is written whole, so that it is not written again.

        Raises `SbpSparkError` if it was noted before with other rows.
        """
        made = [message for message in messages if isinstance(message, SbpCommitMessage)]
        for epoch in {message.epoch for message in made} - {None}:
            assert epoch is not None
            log = delivery.CommitLog(self._options, epoch.sink)
            log.commit(epoch, delivery.content(made), delivery.written(made))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be taken back: what was acknowledged stays, and is recognised when the batch is repeated."""
