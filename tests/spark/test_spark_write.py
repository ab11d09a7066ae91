"""Batch writes through Spark, to a real server."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark.support import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    import sbp_native as sbp


def values(client: sbp.Client, name: str) -> list[bytes]:
    return [bytes(record.value) for batch in client.stream(name).read() for record in batch.records()]


def test_records(spark: SparkSession, client: sbp.Client, read: Callable, write: Callable, name: str) -> None:
    client.create_stream(name)
    at = dt.datetime(2013, 1, 1, 12, 0, 0, 123456)
    frame = spark.createDataFrame(
        [(b"k1", "v1", [("h", b"1")], at), (None, None, None, at)],
        "key binary, value string, headers array<struct<key: string, value: binary>>, timestamp timestamp",
    )
    write(frame.coalesce(1)).save(name)
    found = read().load(name).orderBy("offset").collect()
    assert [(row.key, row.value, row.timestamp) for row in found] == [(b"k1", b"v1", at), (None, None, at)]
    assert [(header.key, bytes(header.value)) for header in found[0].headers] == [("h", b"1")]


def test_rows_name_their_stream(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    one, two = client.create_stream(f"{name}/a"), client.create_stream(f"{name}/b")
    frame = spark.range(100).selectExpr(f"concat('{name}/', if(id % 2 = 0, 'a', 'b')) stream", "string(id) value")
    write(frame).save()
    assert sorted(map(int, values(client, one.name))) == list(range(0, 100, 2))
    assert sorted(map(int, values(client, two.name))) == list(range(1, 100, 2))
    by_id = spark.createDataFrame([(one.id, "x"), (two.id, "y")], "stream_id bigint, value string")
    write(by_id).save()
    assert values(client, one.name)[-1] == b"x"
    assert values(client, two.name)[-1] == b"y"


def test_a_kafka_frame_goes_as_it_is(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    client.create_stream(name)
    write(spark.createDataFrame([(name, "a", "b")], "topic string, key string, value string")).save()
    assert values(client, name) == [b"b"]


@pytest.mark.parametrize("columns", ["records", "kafka"])
def test_a_copy_does_not_lose_columns_silently(
    client: sbp.Client, read: Callable, write: Callable, name: str, columns: str
) -> None:
    """Where a row was read cannot be kept: who copies a frame as it is, says so."""
    client.create_stream(f"{name}/from").append([b"a", b"b"])
    client.create_stream(f"{name}/to")
    frame = read(columns=columns).load(f"{name}/from")
    wanted = "'offset'" if columns == "records" else "'partition', 'offset', 'timestampType'"
    assert f"[SBP-9204] body=records cannot keep {wanted}:" in failure(lambda: write(frame).save(f"{name}/to"))
    assert "[SBP-9204]" in failure(lambda: write(frame.selectExpr("value", "1 partition")).save(f"{name}/to"))
    assert values(client, f"{name}/to") == []
    write(frame, originColumns="ignore").save(f"{name}/to")
    write(frame.drop("partition", "offset", "timestampType")).save(f"{name}/to")
    assert sorted(values(client, f"{name}/to")) == [b"a", b"a", b"b", b"b"]


def test_typed(spark: SparkSession, read: Callable, write: Callable, name: str) -> None:
    frame = spark.range(1_000).selectExpr(
        "id", "string(id) name", "timestamp_seconds(id) at", "array(id) list", "if(id % 2 = 0, id, null) even"
    )
    write(frame, body="arrow", createStreams="true").save(name)
    found = read().load(name)
    assert found.columns[:5] == frame.columns
    assert found.schema["id"].nullable is False
    assert sorted(map(str, found.select(frame.columns).collect())) == sorted(map(str, frame.collect()))
    write(frame.limit(10).select("even", "list", "at", "name", "id"), stream=name).save()
    assert read().load(name).count() == 1_010


def test_streams_are_created_once(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    frame = spark.createDataFrame([("a",)], "value string")
    for _ in range(2):
        write(frame, createStreams="true").save(name)
    assert values(client, name) == [b"a", b"a"]
    assert client.stream(name).schema is None


def test_an_empty_frame(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    client.create_stream(name)
    write(spark.createDataFrame([], "value string")).save(name)
    assert values(client, name) == []


def test_many_rows_once_each(spark: SparkSession, read: Callable, write: Callable, name: str) -> None:
    frame = spark.range(0, 200_000, numPartitions=4)
    write(frame, body="arrow", createStreams="true").save(name)
    found = read().schema("id bigint, _offset bigint").load(name)
    row = found.selectExpr("count(*) c", "sum(id) s", "count(distinct id) d", "max(_offset) o").collect()[0]
    assert tuple(row) == (200_000, 200_000 * 199_999 // 2, 200_000, 199_999)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"columns": "arrow"}, "[SBP-9202] option 'columns' is for a batch read or a streaming read"),
        ({"startingOffsets": "earliest"}, "[SBP-9202] option 'startingOffsets' is for"),
        ({"boddy": "arrow"}, "did you mean 'body'?"),
        ({"body": "arrow"}, "has no schema, so it takes body=records, not body=arrow"),
    ],
)
def test_bad_options(
    spark: SparkSession, client: sbp.Client, write: Callable, name: str, options: dict, expected: str
) -> None:
    client.create_stream(name)
    frame = spark.createDataFrame([("a",)], "value string")
    assert expected in failure(lambda: write(frame, **options).save(name))


def test_a_missing_target_is_refused(spark: SparkSession, write: Callable, name: str) -> None:
    frame = spark.createDataFrame([("a",)], "value string")
    assert "or use createStreams=true" in failure(lambda: write(frame).save(name))
    assert "no target is named" in failure(lambda: write(frame).save())


def test_columns_are_checked_on_the_driver(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    client.create_stream(f"{name}/raw")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    client.create_stream(f"{name}/typed", schema=schema)

    def refused(select: str, target: str) -> str:
        return failure(lambda: write(spark.range(1).selectExpr(*select.split(";"))).save(f"{name}/{target}"))

    assert "body=records has no column 'valu': did you mean 'value'?" in refused("'a' valu", "raw")
    assert "column 'value' is bigint: cast it to binary or string" in refused("id value", "raw")
    assert "body=records needs a column 'value'" in refused("'a' key", "raw")
    assert "has no column 'nam': did you mean 'name'?" in refused("id;'a' nam", "typed")
    assert "has a column 'name' that the DataFrame lacks" in refused("id", "typed")
    assert "is int64, the DataFrame's is int32: cast it" in refused("int(id) id;'a' name", "typed")
    assert list(client.stream(f"{name}/typed").read()) == []


def test_nulls_where_there_may_be_none(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    client.create_stream(name, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    frame = spark.createDataFrame([(None,)], "id bigint")
    assert "column 'id' holds 1 nulls" in failure(lambda: write(frame).save(name))


def test_overwrite_is_refused(spark: SparkSession, client: sbp.Client, write: Callable, name: str) -> None:
    client.create_stream(name)
    frame = spark.createDataFrame([("a",)], "value string")
    assert "cannot be overwritten" in failure(lambda: write(frame).mode("overwrite").save(name))
