"""The batch write: once per job, or once per application and version."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from . import delivery
from .errors import INVALID_VALUE, UNSUPPORTED, SbpOptionError
from .options import SbpOptions, Use
from .writer import SbpCommitMessage, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType


class SbpBatchWriter(DataSourceArrowWriter):
    """Made once on the driver, which looks up or creates the target; `write` runs in the tasks."""

    def __init__(self, options: SbpOptions, schema: StructType, overwrite: bool) -> None:
        options.refuse_all_but(Use.BATCH_WRITE)
        if overwrite:
            raise SbpOptionError(UNSUPPORTED, "a stream cannot be overwritten, only appended to: use .mode('append')")
        self._options = options
        self._target = Target.of(options, schema)
        self._epoch = _epoch(options)
        self._log = delivery.CommitLog(options, self._epoch.sink) if options.txn_app_id and self._epoch else None
        self._done = self._log is not None and self._epoch is not None and self._log.find(self._epoch) is not None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Appends the rows of one task and waits until all of them are durable."""
        if self._done and self._epoch is not None:
            return self._target.pass_over(iterator, self._epoch)
        return self._target.write(iterator, self._epoch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Notes the version of a transaction; the rows are durable and visible since they were acknowledged.

        Raises `SbpSparkError` if it was noted before with other rows.
        """
        if self._log is not None and self._epoch is not None:
            made = [message for message in messages if isinstance(message, SbpCommitMessage)]
            self._log.commit(self._epoch, delivery.content(made), delivery.written(made))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: what was acknowledged stays."""


def _epoch(options: SbpOptions) -> delivery.Epoch | None:
    """Whose rows they are; None if repeated tasks may leave rows twice."""
    if options.txn_app_id is not None and options.txn_version is not None:
        if options.delivery == "at-least-once":
            raise SbpOptionError(
                INVALID_VALUE, "delivery=at-least-once contradicts txnAppId and txnVersion: leave out one or the other"
            )
        return delivery.of_transaction(options.txn_app_id, options.txn_version, delivery.sink_name(options))
    return delivery.of_job(uuid.uuid4().hex) if options.delivery == "exactly-once" else None
