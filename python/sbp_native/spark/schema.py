"""The three sets of columns, and the exact Arrow form in which Spark accepts them.

Spark demands equality: the order of columns, plain types, microseconds in UTC, the nullable flags. What the user asks
for with ``.schema(...)`` is the only projection there is, so it is checked here and handed down to the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .errors import SCHEMA, SbpOptionError, SbpSparkError, nearest
from .naming import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from .offsets import Span
    from .options import Columns
    from .read_options import ReadOptions
    from .streams import StreamHead

_HEADERS: Final = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)

_RECORDS: Final = (
    StructField("stream", StringType(), nullable=False),
    StructField("stream_id", LongType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
)

# The columns, types and order of Spark's Kafka source, which leaves headers out unless asked.
_KAFKA: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType(), nullable=False),
    StructField("partition", IntegerType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("timestampType", IntegerType(), nullable=False),
)

_METADATA: Final = (
    StructField("_stream", StringType(), nullable=False),
    StructField("_offset", LongType(), nullable=False),
    StructField("_timestamp", TimestampType(), nullable=False),
)


#: The column that ends a gap: set in the rows that stand for records that are gone, null in all others.
GAP_COLUMN: Final[dict[Columns, str]] = {"records": "gap_end", "kafka": "gap_end", "arrow": "_gap_end"}

# What else is set in such a row; all other columns are null.
_PLACE: Final[dict[Columns, tuple[str, ...]]] = {
    "records": ("stream", "stream_id", "offset"),
    "kafka": ("topic", "partition", "offset", "timestampType"),
    "arrow": ("_stream", "_offset"),
}


@dataclass(frozen=True)
class ColumnSet:
    """One set of columns: what it yields by itself, and what more may be asked for by name."""

    kind: Columns
    fields: tuple[StructField, ...]
    on_request: tuple[StructField, ...] = ()

    def default(self) -> StructType:
        """The schema of a load without ``.schema(...)``."""
        return StructType(list(self.fields))

    def check(self, schema: StructType) -> None:
        """Raises `SbpOptionError` unless `schema` is a choice of these columns with their types, in any order."""
        known = {field.name: field for field in (*self.fields, *self.on_request)}
        for wanted in schema.fields:
            field = known.get(wanted.name)
            if field is None:
                raise SbpOptionError(
                    SCHEMA,
                    f"there is no column {wanted.name!r} among the {self.kind} columns: {nearest(wanted.name, known)}",
                )
            if _loose(wanted.dataType) != _loose(field.dataType):
                raise SbpOptionError(
                    SCHEMA,
                    f"column {wanted.name!r} is {field.dataType.simpleString()}, not {wanted.dataType.simpleString()}: "
                    "ask for it as it is and cast it in the query",
                )


def column_set(heads: Iterable[StreamHead], options: ReadOptions, *, growing: bool = False) -> ColumnSet:
    """The columns for these streams: what the options say, else typed columns if the streams have a schema.

    A load needs streams of one schema. A query that was planned knows its columns, and goes on while its streams are
    given more, one after the other: with `growing` a stream may have more columns than another, and the set is that of
    the stream that has the most.

    Raises `SbpOptionError` if the streams disagree about it, naming two that do.
    """
    heads = list(heads)
    typed = next((head for head in heads if head.schema_ipc is not None), None)
    untyped = next((head for head in heads if head.schema_ipc is None), None)
    kind: Columns = options.columns or ("arrow" if typed else "records")
    if typed is not None and untyped is not None:
        raise SbpOptionError(SCHEMA, f"{typed} has a schema and {untyped} has none: load them apart")
    if kind != "arrow":
        if typed is not None:
            raise SbpOptionError(
                SCHEMA, f"{typed} has a schema, so its rows are columns, not records: leave out columns={kind}"
            )
        return _untyped(kind, options)
    if untyped is not None:
        raise SbpOptionError(SCHEMA, f"{untyped} has no schema, so it has no typed columns: leave out columns=arrow")
    if options.include_headers:
        raise SbpOptionError(SCHEMA, f"{typed} has typed columns, and they have no headers: leave out includeHeaders")
    first = heads[0]
    schema = first.arrow_schema()
    for head in heads[1:]:
        # Equal bytes are the rule, and reading thousands of schemas is not free.
        if head.schema_ipc == first.schema_ipc or (other := head.arrow_schema()).equals(schema):
            continue
        if growing and _has_grown(schema, other):
            first, schema = head, other
        elif not (growing and _has_grown(other, schema)):
            raise SbpOptionError(
                SCHEMA,
                f"{first} and {head} have different schemas, {_difference(schema, other)}: load them apart",
            )
    return _with_gaps(ColumnSet("arrow", (*spark_schema(schema).fields, *_METADATA)), options)


def _untyped(kind: Columns, options: ReadOptions) -> ColumnSet:
    """`records` has headers unless they are refused, `kafka` only if they are asked for, as in Spark's Kafka source."""
    fields = _RECORDS if kind == "records" else _KAFKA
    by_default = kind == "records" if options.include_headers is None else options.include_headers
    columns = ColumnSet(kind, (*fields, _HEADERS)) if by_default else ColumnSet(kind, fields, (_HEADERS,))
    return _with_gaps(columns, options)


def _with_gaps(columns: ColumnSet, options: ReadOptions) -> ColumnSet:
    """With a column for the ends of gaps, if these are to be rows; they have a place and nothing else."""
    if not options.gaps_as_rows:
        return columns
    kind = columns.kind
    fields = [
        field if field.name in _PLACE[kind] else StructField(field.name, field.dataType) for field in columns.fields
    ]
    return ColumnSet(kind, (*fields, StructField(GAP_COLUMN[kind], LongType())), columns.on_request)


def gap_row(kind: Columns, schema: pa.Schema, name: str, span: Span) -> pa.RecordBatch:
    """The one row that stands for the records of a span, which are gone."""
    import pyarrow as pa

    stream, start, end = span
    values: dict[str, object] = {
        "stream": name,
        "topic": name,
        "_stream": name,
        "stream_id": number_of(stream),
        "offset": start,
        "_offset": start,
        "partition": 0,
        "timestampType": 0,
    }
    row = {column: values[column] for column in _PLACE[kind]} | {GAP_COLUMN[kind]: end}
    arrays = [pa.array([row.get(field.name)], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """A stream's Arrow schema as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema.remove_metadata(), prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark demands of batches with this schema.

    Raises `SbpOptionError` for a column of a type that Spark has no Arrow type for.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError:
        field = next((field for field in schema.fields if not _has_arrow_type(field)), None)
        if field is None:
            raise
        raise SbpOptionError(
            SCHEMA,
            f"column {field.name!r} is {field.dataType.simpleString()}, which Spark does not hand to Python in Arrow "
            "form: cast it to a number or a string (of an interval in months: the number of months)",
        ) from None


def _has_arrow_type(field: StructField) -> bool:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        to_arrow_type(field.dataType, timezone="UTC")
    except PySparkTypeError:
        return False
    return True


class Conform:
    """Gives batches exactly one schema; moves no data where only names and nullable flags differ.

    A column named as `absent` may be missing; it is null then.
    """

    def __init__(self, schema: pa.Schema, absent: str | None = None) -> None:
        self._schema = schema
        self._absent = absent

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with the columns of the schema, found by name.

        Raises `SbpSparkError` if a column is missing, of a type that cannot be turned into the right one, or holds
        nulls where the schema knows none.
        """
        import pyarrow as pa

        if batch.schema.equals(self._schema):
            return batch
        columns = []
        for field in self._schema:
            index = batch.schema.get_field_index(field.name)
            if index < 0 and field.name == self._absent:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            if index < 0:
                raise SbpSparkError(SCHEMA, f"column {field.name!r} is missing, there are {batch.schema.names}")
            column = batch.column(index)
            if column.type != field.type:
                try:
                    column = column.cast(field.type)
                except pa.ArrowInvalid as error:
                    raise SbpSparkError(SCHEMA, f"column {field.name!r} cannot become {field.type}: {error}") from error
            if not field.nullable and column.null_count:
                raise SbpSparkError(
                    SCHEMA,
                    f"column {field.name!r} holds {column.null_count} nulls, but the stream's schema allows none",
                )
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _has_grown(old: pa.Schema, new: pa.Schema) -> bool:
    """Whether `new` is `old` with columns at its end, all of which may be null."""
    count = len(old)
    same = all(one.equals(other) for one, other in zip(old, new, strict=False))
    return len(new) > count and same and all(new.field(place).nullable for place in range(count, len(new)))


def _difference(first: pa.Schema, second: pa.Schema) -> str:
    for one, other in zip(first, second, strict=False):
        if not one.equals(other):
            return f"{_field(one)} against {_field(other)}"
    return f"{len(first)} columns against {len(second)}"


def _field(field: pa.Field) -> str:
    return f"'{field.name} {field.type}{'' if field.nullable else ' not null'}'"


def _loose(kind: DataType) -> str:
    """The type without its nullable flags, which a user's schema cannot be expected to repeat."""
    return kind.simpleString()
