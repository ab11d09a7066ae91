"""Column sets and exact batches, without Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
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

from sbp_native.spark.errors import SbpOptionError, SbpSparkError
from sbp_native.spark.options import SbpOptions
from sbp_native.spark.schema import Conform, arrow_schema, column_set
from sbp_native.spark.streams import StreamHead

if TYPE_CHECKING:
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
