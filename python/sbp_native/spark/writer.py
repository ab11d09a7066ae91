"""The batch write: rows become records, at least once.

A task appends its rows and returns when every append is acknowledged, which means durable. A task that Spark repeats
appends again: rows written by its first attempt stay, so a failure in the middle can leave duplicates, never a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from sbp_native._native import BatchAppender

from . import runtime
from .errors import INVALID_VALUE, SCHEMA, UNSUPPORTED, SbpOptionError, SbpSparkError, explained, nearest
from .options import Body, SbpOptions, Use
from .schema import Conform, arrow_schema
from .streams import StreamHead, every_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

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


@dataclass
class SbpCommitMessage(WriterCommitMessage):
    """What one task wrote: rows in all, and per stream (id, first offset, last offset, rows)."""

    rows: int
    appended: tuple[tuple[int, int, int, int], ...]


class SbpBatchWriter(DataSourceArrowWriter):
    """Made once on the driver, which looks up or creates the target; `write` runs in the tasks."""

    def __init__(self, options: SbpOptions, schema: StructType, overwrite: bool) -> None:
        options.refuse_all_but(Use.BATCH_WRITE)
        if overwrite:
            raise SbpOptionError(UNSUPPORTED, "a stream cannot be overwritten, only appended to: use .mode('append')")
        self._options = options
        name = options.target()
        head = _find_or_create(options, name, schema) if name is not None else None
        self._stream: str | None = head.name if head is not None else None
        self._body: Body = _body(options, head)
        if self._body == "arrow":
            self._schema_ipc = _typed_target(head, schema)
        else:
            _check_records(schema, self._stream)
            self._schema_ipc = b""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Appends the rows of one task and waits until all of them are durable."""
        runtime.prepare_worker()
        prepare = _prepare_typed(self._schema_ipc) if self._body == "arrow" else _prepare_records
        rows = 0
        with explained(f"appending to {self._stream or 'the streams that the rows name'}", self._options.servers):
            appender: BatchAppender | None = None
            # The input is always read to its end, or the other side of the pipe may wait for ever.
            for batch in iterator:
                if batch.num_rows:
                    appender = appender or self._appender()
                    appender.append(prepare(batch))
                    rows += batch.num_rows
            appended = tuple(appender.finish()) if appender is not None else ()
        return SbpCommitMessage(rows, appended)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: the rows are durable and visible since their append was acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: what was acknowledged stays."""

    def _appender(self) -> BatchAppender:
        return BatchAppender(self._options.servers, self._stream, self._body, self._options.timeout)


def _find_or_create(options: SbpOptions, name: str, schema: StructType) -> StreamHead:
    heads = every_stream(options)
    found = next((head for head in heads if name in (head.name, str(head.id))), None)
    if found is not None:
        return found
    if name.isdigit() or not options.create_streams:
        hint = nearest(name, [head.name for head in heads]) if heads else "the server has no stream yet"
        raise SbpOptionError(
            INVALID_VALUE, f"there is no stream {name!r} at {options.servers}: {hint}, or use createStreams=true"
        )
    # A stream is typed for good, so only body=arrow makes it so.
    typed = arrow_schema(schema) if options.body == "arrow" else None
    if typed is None:
        _check_records(schema, name)
    with explained(f"creating stream {name}", options.servers):
        created = runtime.client(options).create_stream(name, schema=typed, exist_ok=True)
    return StreamHead(int(created.id), created.name, typed.serialize().to_pybytes() if typed is not None else None)


def _body(options: SbpOptions, head: StreamHead | None) -> Body:
    typed = head is not None and head.schema_ipc is not None
    if head is None:
        if options.body == "arrow":
            raise SbpOptionError(INVALID_VALUE, "body=arrow needs one target: use save('a') or option 'stream'")
        if options.create_streams:
            raise SbpOptionError(INVALID_VALUE, "createStreams needs one target: use save('a') or option 'stream'")
    elif options.body is not None and typed != (options.body == "arrow"):
        has = "has a schema, so it takes body=arrow" if typed else "has no schema, so it takes body=records"
        raise SbpOptionError(SCHEMA, f"{head} {has}, not body={options.body}")
    return "arrow" if typed else "records"


def _typed_target(head: StreamHead | None, schema: StructType) -> bytes:
    """Checks the DataFrame's columns against the stream's; order and nullable flags are settled row by row."""
    assert head is not None and head.schema_ipc is not None  # noqa: PT018 - `_body` said arrow
    wanted = head.arrow_schema()
    given = arrow_schema(schema)
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
    return head.schema_ipc


def _check_records(schema: StructType, target: str | None) -> None:
    for field in schema.fields:
        types = _RECORD_COLUMNS.get(field.name)
        if types is None:
            raise SbpOptionError(
                SCHEMA,
                f"body=records has no column {field.name!r}: {nearest(field.name, _RECORD_COLUMNS)} "
                "Or write the DataFrame's own columns with body=arrow",
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
        "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    }
    names, columns = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        wanted = types.get(field.name)
        names.append("stream" if field.name == "topic" else field.name)
        columns.append(column if wanted is None or column.type == wanted else column.cast(wanted))
    missing = next((name for name in ("stream", "stream_id") if name in names), None)
    if missing is not None and columns[names.index(missing)].null_count:
        raise SbpSparkError(INVALID_VALUE, f"column {missing!r} is null in some rows: every row needs a target")
    return pa.RecordBatch.from_arrays(columns, names=names)
