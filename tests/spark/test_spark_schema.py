"""Column sets and exact batches, without Spark."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sbp_native.spark import SbpDataSource
from sbp_native.spark.errors import SbpOptionError, SbpSparkError
from sbp_native.spark.options import SbpOptions
from sbp_native.spark.schema import Conform, arrow_schema, column_set
from sbp_native.spark.streams import StreamHead

if TYPE_CHECKING:
    import sbp_native as sbp
    from sbp_native.spark.options import Columns

TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("spot", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.float64())])),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("many", pa.map_(pa.string(), pa.int32())),
    ]
)


def options(**given: str) -> SbpOptions:
    return SbpOptions.parse({"servers": "127.0.0.1:1", **given})


def head(name: str, number: int, schema: pa.Schema | None = None) -> StreamHead:
    return StreamHead(number, name, schema.serialize().to_pybytes() if schema is not None else None)


def test_records_columns() -> None:
    columns = column_set([head("a", 1)], options())
    assert columns.kind == "records"
    names = ["stream", "stream_id", "offset", "timestamp", "key", "value", "headers"]
    assert columns.default().fieldNames() == names


def test_kafka_columns_are_those_of_the_kafka_source() -> None:
    columns = column_set([head("a", 1)], options(columns="kafka"))
    assert columns.default().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    columns.check(
        StructType([StructField("headers", columns.on_request[0].dataType), StructField("key", BinaryType())])
    )


@pytest.mark.parametrize(
    ("kind", "wanted", "expected"),
    [
        ("records", None, True),
        ("records", "false", False),
        ("records", "true", True),
        ("kafka", None, False),
        ("kafka", "true", True),
    ],
)
def test_headers_are_there_when_asked(kind: str, wanted: str | None, expected: bool) -> None:
    given = {"columns": kind} if wanted is None else {"columns": kind, "includeHeaders": wanted}
    columns = column_set([head("a", 1)], options(**given))
    assert ("headers" in columns.default().fieldNames()) is expected
    # A schema may ask for them in any case.
    columns.check(StructType([StructField("headers", column_set([head("a", 1)], options()).fields[-1].dataType)]))


def test_typed_columns_are_the_default_of_typed_streams() -> None:
    columns = column_set([head("a", 1, TYPED), head("b", 2, TYPED)], options())
    assert columns.kind == "arrow"
    schema = columns.default()
    assert schema.fieldNames() == [*TYPED.names, "_stream", "_offset", "_timestamp"]
    assert schema["id"].nullable is False
    assert schema["at"].dataType == TimestampType()
    assert schema["local"].dataType == TimestampNTZType()
    assert schema["many"].dataType.simpleString() == "map<string,int>"


@pytest.mark.parametrize("kind", ["records", "kafka"])
def test_typed_streams_have_no_records(kind: Columns) -> None:
    with pytest.raises(SbpOptionError, match=rf"stream a \(1\) has a schema.*leave out columns={kind}"):
        column_set([head("a", 1, TYPED)], options(columns=kind))


def test_streams_that_disagree_are_named() -> None:
    other = TYPED.set(0, pa.field("id", pa.int32(), nullable=False))
    with pytest.raises(SbpOptionError) as caught:
        column_set([head("a", 1, TYPED), head("b", 2, other)], options())
    assert (
        "stream a (1) and stream b (2) have different schemas, 'id int64 not null' against 'id int32 not null'"
        in str(caught.value)
    )
    with pytest.raises(SbpOptionError, match="8 columns against 7"):
        column_set([head("a", 1, TYPED), head("b", 2, TYPED.remove(7))], options())


def test_an_untyped_stream_among_typed_ones_is_named() -> None:
    for asked in (options(), options(columns="arrow"), options(columns="records")):
        with pytest.raises(SbpOptionError, match=r"stream a \(1\) has a schema and stream b \(2\) has none"):
            column_set([head("a", 1, TYPED), head("b", 2)], asked)
    with pytest.raises(SbpOptionError, match=r"stream b \(2\) has no schema.*leave out columns=arrow"):
        column_set([head("b", 2)], options(columns="arrow"))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (
            StructField("ofset", LongType()),
            "there is no column 'ofset' among the records columns: did you mean 'offset'?",
        ),
        (StructField("offset", IntegerType()), "column 'offset' is bigint, not int"),
        (StructField("value", StringType()), "column 'value' is binary, not string"),
    ],
)
def test_projections_are_checked(field: StructField, expected: str) -> None:
    with pytest.raises(SbpOptionError) as caught:
        column_set([head("a", 1)], options()).check(StructType([field]))
    assert expected in str(caught.value)


def test_conform_moves_nothing_where_only_flags_and_order_differ() -> None:
    values = pa.array([1, 2])
    batch = pa.record_batch([pa.array(["a", "b"]), values], names=["name", "id"])
    wanted = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    made = Conform(wanted)(batch)
    assert made.schema == wanted
    assert made.column(0).buffers()[1].address == values.buffers()[1].address


def test_conform_changes_zones_and_nested_names() -> None:
    wanted = pa.schema(
        [("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.field("element", pa.string(), nullable=False)))]
    )
    at = pa.array([dt.datetime(2013, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", tz="Etc/UTC"))
    batch = pa.record_batch([at, pa.array([["a"]])], names=["at", "tags"])
    made = Conform(wanted)(batch)
    assert made.schema == wanted
    assert made.column("at").to_pylist() == [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)]


def test_conform_refuses() -> None:
    wanted = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(SbpSparkError, match="column 'id' holds 1 nulls"):
        Conform(wanted)(pa.record_batch([pa.array([1, None])], names=["id"]))
    with pytest.raises(SbpSparkError, match="column 'id' is missing"):
        Conform(wanted)(pa.record_batch([pa.array([1])], names=["other"]))
    with pytest.raises(SbpSparkError, match="column 'id' cannot become int64"):
        Conform(wanted)(pa.record_batch([pa.array(["x"])], names=["id"]))


def test_schemas_survive_spark() -> None:
    """What is promised to Spark and what is read from the stream's own schema must be the same Arrow types."""
    columns = column_set([head("a", 1, TYPED)], options())
    promised = arrow_schema(columns.default())
    for field in TYPED:
        kind = promised.field(field.name).type
        assert kind == field.type or pa.types.is_nested(kind), field


#: Every kind of column that a stream can have, nested ones with nulls forbidden at some level.
EVERY = pa.schema(
    [
        *(
            pa.field(f"{kind}{suffix}", data_type, nullable=not suffix)
            for kind, data_type in {
                "bool": pa.bool_(),
                "int8": pa.int8(),
                "int16": pa.int16(),
                "int32": pa.int32(),
                "int64": pa.int64(),
                "float32": pa.float32(),
                "float64": pa.float64(),
                "decimal": pa.decimal128(38, 18),
                "date": pa.date32(),
                "local": pa.timestamp("us"),
                "instant": pa.timestamp("us", tz="UTC"),
                "text": pa.string(),
                "bytes": pa.binary(),
            }.items()
            for suffix in ("", "_required")
        ),
        pa.field("list", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("lists", pa.list_(pa.list_(pa.int16())), nullable=False),
        pa.field(
            "struct", pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.binary()))])
        ),
        pa.field("map", pa.map_(pa.string(), pa.field("v", pa.timestamp("us", tz="UTC"), nullable=False))),
    ]
)


def sample(field: pa.Field, row: int) -> object:
    """A value for a column: null now and then, where it may be."""
    if field.nullable and row % 3 == 1:
        return None
    kind = field.type
    if pa.types.is_struct(kind):
        return {child.name: sample(child, row + 3) for child in kind}
    if pa.types.is_map(kind):
        return [(str(row), sample(kind.item_field, row))]
    if pa.types.is_list(kind):
        return [sample(kind.value_field, row + each) for each in range(row % 3)]
    moment = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC) + dt.timedelta(microseconds=row)
    number = row % 100
    for matches, value in (
        (pa.types.is_boolean, row % 2 == 0),
        (pa.types.is_integer, number),
        (pa.types.is_floating, number / 4),
        (pa.types.is_decimal, decimal.Decimal(number) / 8),
        (pa.types.is_date, moment.date()),
        (pa.types.is_timestamp, moment if pa.types.is_timestamp(kind) and kind.tz else moment.replace(tzinfo=None)),
        (pa.types.is_string, f"text {row}"),
        (pa.types.is_binary, bytes([number])),
    ):
        if matches(kind):
            return value
    raise AssertionError(kind)


def batches(server: sbp.Server, load: str, schema: StructType | None = None, **given: str) -> list[pa.RecordBatch]:
    """What the tasks of a batch read hand to Spark."""
    source = SbpDataSource({"servers": server.address, "path": load, "workerGcFreeze": "false", **given})
    reader = source.reader(schema or source.schema())
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]


def test_every_type_arrives_as_spark_wants_it(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """The schema of each batch is, field by field and flag by flag, what PySpark makes of the columns promised."""
    table = pa.Table.from_pylist(
        [{field.name: sample(field, row) for field in EVERY} for row in range(100)], schema=EVERY
    )
    stream = client.create_stream(name, schema=EVERY)
    # Small batches are laid together, large ones are views: both must look the same.
    for _ in range(3):
        stream.append(table)
    stream.append(pa.concat_tables([table] * 60).combine_chunks())
    source = SbpDataSource({"servers": server.address, "path": name})
    wanted = to_arrow_schema(source.schema(), timezone="UTC")
    found = batches(server, name)
    assert len(found) > 1
    for batch in found:
        assert type(batch) is pa.RecordBatch
        assert batch.schema.equals(wanted)
        assert batch.schema.remove_metadata() == wanted.remove_metadata()
        batch.validate(full=True)
    own = pa.Table.from_batches(found).select(EVERY.names)
    assert own.to_pylist() == table.to_pylist() * 63


@pytest.mark.parametrize("kind", ["records", "kafka"])
@pytest.mark.parametrize("gaps", [False, True])
def test_records_arrive_as_spark_wants_them(
    server: sbp.Server, client: sbp.Client, name: str, kind: str, gaps: bool
) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", None, b"c"], key=[None, b"k", b""], headers=[[("h", b"1"), ("h", None)], [], None])
    stream.append([b"x"] * 5_000)
    given = {"columns": kind, "includeHeaders": "true"}
    if gaps:
        given |= {"failOnDataLoss": "false", "onDataLoss": "rows"}
    schema = column_set([StreamHead(stream.id, name)], options(**given)).default()
    for chosen in (schema, StructType(schema.fields[::-1]), *(StructType([field]) for field in schema.fields)):
        found = batches(server, name, chosen, **given)
        assert sum(batch.num_rows for batch in found) == 5_003
        for batch in found:
            assert batch.schema.equals(to_arrow_schema(chosen, timezone="UTC"))
            batch.validate(full=True)
    first = batches(server, name, schema, **given)[0].slice(0, 3)
    assert first.column("value").to_pylist() == [b"a", None, b"c"]
    assert first.column("key").to_pylist() == [None, b"k", b""]
    assert first.column("headers").to_pylist()[0] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
