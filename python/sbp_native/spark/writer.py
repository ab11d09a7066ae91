"""What batch and streaming writes have in common: where rows go, whether they fit, and how a task appends them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

import sbp_native
from sbp_native._native import BatchAppender

from . import delivery, runtime
from .content import NOTHING, Content
from .errors import INVALID_VALUE, OTHER_ROWS, SCHEMA, SbpOptionError, SbpSparkError, explained, nearest
from .ordering import sorted_batches
from .schema import Conform, arrow_schema
from .streams import StreamHead, every_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from .options import Body, SbpOptions

#: The columns of a write with body `records`, and the types each may have.
_RECORD_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
    "stream": (StringType,),
    "topic": (StringType,),
    "stream_id": (LongType,),
}
_TARGETS: Final = ("stream", "stream_id", "topic")
#: Columns of a read, and of Kafka's, that say where a record came from: an append gives new ones.
_ORIGIN: Final = ("offset", "partition", "timestampType")
_SEQUENCE_OVERLAP: Final = 1481
_WRITER_FENCED: Final = 1482
#: What the client says behind the facts; here the sink says it.
_NO_USE: Final = "; not worth trying again"


@dataclass(frozen=True)
class Appended:
    """What was stored of one stream; offsets are -1 where the server no longer knows the place of a repeat."""

    stream: int
    first: int
    last: int
    rows: int


@dataclass
class SbpCommitMessage(WriterCommitMessage):
    """What one task wrote, and of which batch it was; `repeated` if that batch was committed before."""

    rows: int
    appended: tuple[Appended, ...]
    epoch: delivery.Epoch | None = None
    repeated: bool = False
    #: What the task was given, of batches that are committed.
    content: Content = NOTHING


@dataclass(frozen=True)
class Target:
    """Where rows go, found fit for them on the driver. Travels to the tasks."""

    options: SbpOptions
    #: The one stream that everything goes to; None if the rows name theirs.
    stream: str | None
    body: Body
    #: The stream's schema, with body `arrow`.
    schema_ipc: bytes = b""

    @classmethod
    def of(cls, options: SbpOptions, schema: StructType, *, growing: bool = False) -> Target:
        """Looks the target up, or creates it, and compares the DataFrame's columns with it.

        With `growing` the target may have been given columns since the query began: those at its end that the
        DataFrame lacks are null.

        Raises `SbpOptionError` if there is none, or if they do not fit.
        """
        name = options.target()
        head = _find_or_create(options, name, schema) if name is not None else None
        body = _body(options, head)
        if body == "arrow":
            assert head is not None
            return cls(options, head.name, body, _typed_target(head, schema, growing))
        _check_records(options, schema, head.name if head is not None else None)
        return cls(options, head.name if head is not None else None, body)

    def write(self, batches: Iterator[pa.RecordBatch], epoch: delivery.Epoch | None) -> SbpCommitMessage:
        """Appends the rows of one task, and waits until all of them are durable.

        With an epoch, rows that an earlier attempt has stored are not stored again.
        """
        runtime.prepare_worker(self.options.worker_gc_freeze)
        rows, content = 0, NOTHING
        appended: list[tuple[int, int, int, int]] = []
        to = self.stream or "the streams that the rows name"
        with _explained(f"appending to {to}", self.options.servers, epoch):
            appender: BatchAppender | None = None
            prepare = self._prepare()
            # The input is always read to its end, or the other side of the pipe may wait for ever.
            for batch in sorted_batches(batches) if self.options.sort_within_batch else batches:
                if batch.num_rows:
                    appender = appender or self._appender(epoch)
                    prepared = prepare(batch)
                    appender.append(prepared)
                    rows += batch.num_rows
                    if epoch is not None and epoch.is_committed:
                        content += Content.of(prepared)
            if appender is not None:
                appended = appender.finish()
        return SbpCommitMessage(rows, tuple(Appended(*each) for each in appended), epoch, content=content)

    def pass_over(self, batches: Iterable[pa.RecordBatch], epoch: delivery.Epoch) -> SbpCommitMessage:
        """Writes nothing, because the batch was committed; says what the task was given, for the driver to compare."""
        runtime.prepare_worker(self.options.worker_gc_freeze)
        prepare = self._prepare()
        content = Content.sum(Content.of(prepare(batch)) for batch in batches if batch.num_rows)
        return SbpCommitMessage(0, (), epoch, repeated=True, content=content)

    def _prepare(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        return _prepare_typed(self.schema_ipc) if self.body == "arrow" else _prepare_records

    def _appender(self, epoch: delivery.Epoch | None) -> BatchAppender:
        options = self.options
        writer_id, number = epoch.writer(delivery.partition()) if epoch is not None else (None, 0)
        return BatchAppender(
            runtime.client(options),
            self.stream,
            self.body,
            options.timeout,
            writer_id=writer_id,
            epoch=number,
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            compression=options.compression,
            create_streams=options.create_streams,
            replicas=options.replicas,
            acks=options.acks,
        )


@contextmanager
def _explained(doing: str, servers: str, epoch: delivery.Epoch | None) -> Iterator[None]:
    """Errors of an append in one line; those about rows that were stored before say what that means."""
    try:
        with explained(doing, servers):
            yield
    except SbpSparkError as error:
        if epoch is None or error.code not in (_SEQUENCE_OVERLAP, _WRITER_FENCED):
            raise
        what = error.message.partition(_NO_USE)[0]
        if error.code == _WRITER_FENCED:
            raise SbpSparkError(
                error.code,
                f"{what}; this is {epoch}, and this task's writer has stored rows of a later one: this attempt was "
                f"given up by Spark, or {epoch.advice}",
            ) from error
        raise SbpSparkError(
            OTHER_ROWS,
            f"{what}; an earlier attempt of this task stored other rows, so the plan does not give the same rows each "
            "time, or batchRows, batchBytes or the body were changed, or the checkpoint is another copy: use "
            "sbp_native.spark.deterministic(df, n), sortWithinBatch=true, or delivery=at-least-once",
        ) from error


def _find_or_create(options: SbpOptions, name: str, schema: StructType) -> StreamHead:
    with explained(f"looking for stream {name}", options.servers):
        try:
            info = runtime.client(options).describe_stream(int(name) if name.isdigit() else name)
            return StreamHead(int(info.id), info.name, info.schema_ipc)
        except sbp_native.errors.StreamNotFoundError:
            pass
    if name.isdigit() or not options.create_streams:
        heads = every_stream(options)
        hint = nearest(name, [head.name for head in heads]) or "the server has no stream yet"
        raise SbpOptionError(
            INVALID_VALUE, f"there is no stream {name!r} at {options.servers}: {hint}, or use createStreams=true"
        )
    # A stream is typed for good, so only body=arrow makes it so.
    typed = arrow_schema(schema) if options.body == "arrow" else None
    if typed is None:
        _check_records(options, schema, name)
    with explained(f"creating stream {name}", options.servers):
        created = runtime.client(options).create_stream(
            name, schema=typed, replicas=options.replicas, acks=options.acks, exist_ok=True
        )
    return StreamHead(int(created.id), created.name, typed.serialize().to_pybytes() if typed is not None else None)


def _body(options: SbpOptions, head: StreamHead | None) -> Body:
    typed = head is not None and head.schema_ipc is not None
    if head is None:
        if options.body == "arrow":
            raise SbpOptionError(INVALID_VALUE, "body=arrow needs one target: use save('a') or option 'stream'")
    elif options.body is not None and typed != (options.body == "arrow"):
        has = "has a schema, so it takes body=arrow" if typed else "has no schema, so it takes body=records"
        raise SbpOptionError(SCHEMA, f"{head} {has}, not body={options.body}")
    return "arrow" if typed else "records"


def _typed_target(head: StreamHead, schema: StructType, growing: bool) -> bytes:
    """Checks the DataFrame's columns against the stream's; order and nullable flags are settled row by row."""
    assert head.schema_ipc is not None
    wanted = head.arrow_schema()
    given = arrow_schema(schema)
    while (
        growing and len(wanted) > 1 and wanted.field(len(wanted) - 1).nullable and wanted.names[-1] not in given.names
    ):
        wanted = wanted.remove(len(wanted) - 1)
    for name in given.names:
        if name not in wanted.names:
            raise SbpOptionError(SCHEMA, f"{head} has no column {name!r}: {nearest(name, wanted.names)}")
    for field in wanted:
        if field.name not in given.names:
            raise SbpOptionError(
                SCHEMA, f"{head} has a column {field.name!r} that the DataFrame lacks: add it, null if allowed"
            )
        offered = given.field(field.name).type
        if offered != field.type:
            raise SbpOptionError(
                SCHEMA, f"column {field.name!r} of {head} is {field.type}, the DataFrame's is {offered}: cast it"
            )
    return wanted.serialize().to_pybytes() if growing else head.schema_ipc


def _check_records(options: SbpOptions, schema: StructType, target: str | None) -> None:
    origin = [name for name in schema.fieldNames() if name in _ORIGIN]
    if origin and not options.ignore_origin:
        named, dropped = ", ".join(map(repr, origin)), ", ".join(f'"{name}"' for name in origin)
        raise SbpOptionError(
            SCHEMA,
            f"body=records cannot keep {named}: that is where a row was read, and each gets a new place. Write the "
            f"rest with .drop({dropped}), or set originColumns=ignore",
        )
    for field in schema.fields:
        if field.name in _ORIGIN:
            continue
        types = _RECORD_COLUMNS.get(field.name)
        if types is None:
            raise SbpOptionError(
                SCHEMA,
                f"body=records has no column {field.name!r}: {nearest(field.name, _RECORD_COLUMNS)}; "
                "or write the DataFrame's own columns with body=arrow",
            )
        if not isinstance(field.dataType, types):
            wanted = (
                " or ".join(kind().simpleString() for kind in types if kind is not ArrayType) or "the headers' type"
            )
            raise SbpOptionError(
                SCHEMA, f"column {field.name!r} is {field.dataType.simpleString()}: cast it to {wanted}"
            )
    names = schema.fieldNames()
    if "value" not in names:
        raise SbpOptionError(
            SCHEMA, "body=records needs a column 'value', binary or string; body=arrow takes any columns"
        )
    targets = [name for name in _TARGETS if name in names]
    if target is None and len(targets) != 1:
        raise SbpOptionError(
            INVALID_VALUE, "no target is named: use save('a'), option 'stream', or one column 'stream' or 'stream_id'"
        )


def _prepare_typed(schema_ipc: bytes) -> Conform:
    import pyarrow as pa

    return Conform(pa.ipc.read_schema(pa.py_buffer(schema_ipc)))


def _prepare_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The record columns with the types of the wire: text as UTF-8 bytes, times in UTC."""
    import pyarrow as pa

    types = {
        "value": pa.binary(),
        "key": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "stream": pa.string(),
        "topic": pa.string(),
        "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    }
    names, columns = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name in _ORIGIN:
            continue
        wanted = types.get(field.name)
        names.append("stream" if field.name == "topic" else field.name)
        columns.append(column if wanted is None or column.type == wanted else column.cast(wanted))
    missing = next((name for name in ("stream", "stream_id") if name in names), None)
    if missing is not None and columns[names.index(missing)].null_count:
        raise SbpSparkError(INVALID_VALUE, f"column {missing!r} is null in some rows: every row needs a target")
    return pa.RecordBatch.from_arrays(columns, names=names)
