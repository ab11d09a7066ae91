"""Batch reads through Spark, from a real server."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import sbp_native as sbp
from sbp_native._native import SpanReader
from sbp_native.spark import SbpDataSource
from sbp_native.testing import proxied
from spark.support import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("small", pa.int16()),
        pa.field("ratio", pa.float64()),
        pa.field("good", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("spot", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.int32())])),
    ]
)
MOMENT = dt.datetime(2013, 6, 1, 12, 30, 15, 123456)


def rows(start: int, count: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "name": None if number % 3 == 0 else f"n{number}",
                "at": MOMENT.replace(tzinfo=dt.UTC) + dt.timedelta(seconds=number),
                "local": MOMENT + dt.timedelta(hours=number),
                "small": number % 100,
                "ratio": number / 4,
                "good": number % 2 == 0,
                "day": dt.date(2013, 1, 1) + dt.timedelta(days=number % 365),
                "raw": bytes([number % 256]) * (number % 5),
                "tags": [str(number)] * (number % 3),
                "spot": {"x": number * 1.5, "y": number},
            }
            for number in range(start, start + count)
        ],
        schema=TYPED,
    )


def test_records(client: sbp.Client, read: Callable, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"b"], timestamp=1_370_000_000_123)
    stream.append(b"c")
    frame = read().load(name)
    assert frame.columns == ["stream", "stream_id", "offset", "timestamp", "key", "value", "headers"]
    found = frame.orderBy("offset").collect()
    assert [(row.stream, row.stream_id, row.offset, bytes(row.value)) for row in found] == [
        (name, stream.id, offset, value) for offset, value in enumerate([b"a", b"b", b"c"])
    ]
    assert found[0].timestamp == dt.datetime(2013, 5, 31, 11, 33, 20, 123000)
    assert found[0].key is None


def test_readers_travel_light(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """What goes into every task does not grow with the number of streams, and needs nothing that stays behind."""
    names = [f"{name}/{number}" for number in range(300)]
    for each in names:
        client.create_stream(each)
    client.stream(names[7]).append([b"a", b"b"])
    source = SbpDataSource({"servers": server.address, "streams": ",".join(names)})
    schema = StructType([StructField("offset", LongType())])
    batch, stream = source.reader(schema), source.streamReader(schema)
    (partition,) = batch.partitions()
    for reader in (batch, stream):
        travelled = pickle.dumps(reader)
        assert len(travelled) < 3_000
        rows = pickle.loads(travelled).read(pickle.loads(pickle.dumps(partition)))
        assert [row for each in rows for row in each.column("offset").to_pylist()] == [0, 1]


def test_frames_that_batches_keep_are_counted_and_bounded(server: sbp.Server, name: str) -> None:
    bound, size, count = 12 << 20, 4 << 10, 256
    with sbp.connect(server.address, max_pinned_bytes=bound) as own:
        stream = own.create_stream(name)
        for batch in range(40):
            stream.append([batch.to_bytes(1, "little") * size] * count)
        reader = SpanReader(own, [(stream.id, 0, 40 * count)], "records", ["offset", "value"])
        held = list(pa.RecordBatchReader.from_stream(reader))
        assert 0 < own.stats()["bytes_pinned"] <= bound
        assert own.stats()["bytes_copied"] > 0
        values = [(value[:1], len(value)) for batch in held for value in batch.column("value").to_pylist()]
        assert values == [(batch.to_bytes(1, "little"), size) for batch in range(40) for _ in range(count)]
        del held, reader
        assert own.stats()["bytes_pinned"] == 0


def test_one_request_reads_many_streams(name: str) -> None:
    """A task has one FETCH on its way, which names the streams that it still needs."""
    with proxied() as proxy, sbp.connect(proxy.address) as own:
        spans = []
        for number in range(200):
            stream = own.create_stream(f"{name}/{number}")
            stream.append([b"%d" % number] * 50)
            spans.append((stream.id, 0, 50))
        asked = proxy.add("delay=0ms request FETCH")
        reader = SpanReader(own, spans, "records", ["stream_id", "value"])
        with proxy.hold("answer FETCH") as held:
            batches = iter(pa.RecordBatchReader.from_stream(reader))
            first = held.wait()
            assert [rule.matched for rule in proxy.rules if rule.id == asked] == [1]
            first.forward()
        found = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
        assert found == [(stream, b"%d" % number) for number, (stream, _, _) in enumerate(spans) for _ in range(50)]
        (requests,) = [rule.matched for rule in proxy.rules if rule.id == asked]
        assert requests < 20


def test_several_streams_by_name_and_id(client: sbp.Client, read: Callable, name: str) -> None:
    one, two = client.create_stream(f"{name}/a"), client.create_stream(f"{name}/b")
    one.append([b"1", b"2"])
    two.append([b"3"])
    frame = read(streams=f"{two.id},{one.name}").load()
    assert {(row.stream, bytes(row.value)) for row in frame.collect()} == {
        (one.name, b"1"),
        (one.name, b"2"),
        (two.name, b"3"),
    }


def test_kafka_columns(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name).append([b"a", b"b"])
    frame = read(columns="kafka").load(name)
    chosen = frame.selectExpr("CAST(value AS STRING) AS v", "topic", "partition", "offset", "timestampType")
    assert [tuple(row) for row in chosen.orderBy("offset").collect()] == [("a", name, 0, 0, 0), ("b", name, 0, 1, 0)]


def test_kafka_columns_with_headers(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name).append([b"a"], headers=[[("trace", b"1")]])
    frame = read(columns="kafka", includeHeaders="true").load(name)
    assert frame.columns[-1] == "headers"
    (row,) = frame.select("headers").collect()
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("trace", b"1")]


def test_a_temporary_view_keeps_its_options(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str
) -> None:
    client.create_stream(name).append([b"a", b"b", b"c"])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW a_view USING sbp OPTIONS (servers '{server.address}', streams '{name}', "
        "startingOffsets 'latest-2', `client.maxInFlightCalls` '16')"
    )
    found = spark.sql("SELECT CAST(value AS STRING) AS v, offset FROM a_view ORDER BY offset").collect()
    assert [tuple(row) for row in found] == [("b", 1), ("c", 2)]


def test_a_pattern_and_a_time(client: sbp.Client, read: Callable, name: str) -> None:
    for part in ("a", "b", "cc"):
        stream = client.create_stream(f"{name}/{part}")
        stream.append([b"old"] * 3, timestamp=1_000_000)
        stream.append([b"new"] * 2, timestamp=2_000_000)
    frame = read(streamsPattern=f"{name}/.", startingTimestamp="1970-01-01T00:30:00Z").load()
    found = {(row.stream, row.offset, bytes(row.value)) for row in frame.collect()}
    assert found == {(f"{name}/{part}", offset, b"new") for part in ("a", "b") for offset in (3, 4)}


def test_typed_columns_of_every_kind(client: sbp.Client, read: Callable, name: str) -> None:
    stream = client.create_stream(name, schema=TYPED)
    stream.append(rows(0, 10))
    stream.append(rows(10, 20))
    frame = read().load(name)
    assert frame.columns == [*TYPED.names, "_stream", "_offset", "_timestamp"]
    found = frame.orderBy("id").collect()
    expected = rows(0, 30).to_pylist()
    assert len(found) == 30
    for row, wanted in zip(found, expected, strict=True):
        made = row.asDict(recursive=True)
        assert made.pop("_offset") == wanted["id"]
        assert made.pop("_stream") == name
        assert made.pop("_timestamp") is not None
        made["at"] = made["at"].replace(tzinfo=dt.UTC)
        made["raw"] = bytes(made["raw"])
        assert made == wanted


def test_a_schema_is_a_projection(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name, schema=TYPED).append(rows(0, 5))
    frame = read().schema("_offset bigint, name string, id bigint").load(name)
    assert [tuple(row) for row in frame.orderBy("_offset").collect()] == [
        (0, None, 0),
        (1, "n1", 1),
        (2, "n2", 2),
        (3, None, 3),
        (4, "n4", 4),
    ]
    client.create_stream(f"{name}/raw").append([b"a", b"b"])
    raw = read().schema("value binary, offset bigint").load(f"{name}/raw")
    assert [(bytes(row.value), row.offset) for row in raw.orderBy("offset").collect()] == [(b"a", 0), (b"b", 1)]


def test_offsets(client: sbp.Client, read: Callable, name: str) -> None:
    stream = client.create_stream(name)
    for number in range(4):
        stream.append([f"{number}{part}".encode() for part in range(5)])
    frame = read(startingOffsets=json.dumps({name: 3}), endingOffsets=json.dumps({str(stream.id): 12})).load(name)
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(3, 12))
    nothing = read(startingOffsets=json.dumps({name: 20})).load(name)
    assert nothing.count() == 0


def test_an_empty_stream(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name)
    assert read().load(name).collect() == []


def test_the_same_plan_reads_the_same_rows(client: sbp.Client, read: Callable, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 1_000)
    frame = read(endingOffsets=json.dumps({name: 700})).load(name)
    first = [tuple(row) for row in frame.select("offset", "value").collect()]
    stream.append([b"y"] * 100)
    assert [tuple(row) for row in frame.select("offset", "value").collect()] == first
    assert len(first) == 700


def test_a_large_stream_in_several_tasks(client: sbp.Client, read: Callable, name: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    stream = client.create_stream(name, schema=schema)
    for start in range(0, 250_000, 50_000):
        stream.append(pa.table([pa.array(range(start, start + 50_000))], schema=schema))
    frame = read().schema("n bigint").load(name)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.groupBy().sum("n").collect()[0][0] == 250_000 * 249_999 // 2


def test_a_worker_imports_the_client(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str) -> None:
    """A function of the user's appends from a worker, which Spark forked, with a client of its own."""
    client.create_stream(name)
    address = server.address

    def append(batches):
        import os

        import pyarrow as arrow

        import sbp_native as native

        count = sum(batch.num_rows for batch in batches)
        with native.connect(address) as own:
            ack = own.stream(name).append(str(count).encode())
        yield arrow.record_batch({"pid": [os.getpid()], "first": [ack.base_offset]})

    found = spark.range(0, 100, numPartitions=2).mapInArrow(append, "pid bigint, first bigint").collect()
    values = [bytes(record.value) for batch in client.stream(name).read() for record in batch.records()]
    assert sorted(row.first for row in found) == [0, 1]
    assert sum(map(int, values)) == 100


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"colums": "kafka"}, "[SBP-9201] there is no option 'colums': did you mean 'columns'?"),
        ({"columns": "kafak"}, "[SBP-9203] option 'columns' is 'kafak': did you mean 'kafka'?"),
        ({"createStreams": "true"}, "[SBP-9202] option 'createStreams' is for a batch write or a streaming write"),
        ({"startingOffsets": "first"}, "[SBP-9203] option 'startingOffsets' is 'first'"),
    ],
)
def test_bad_options_fail_at_load(client: sbp.Client, read: Callable, name: str, options: dict, expected: str) -> None:
    client.create_stream(name)
    assert expected in failure(lambda: read(**options).load(name))


def test_an_unknown_stream_fails_at_load(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(f"{name}/orders")
    line = failure(lambda: read().load(f"{name}/order"))
    assert f"[SBP-1404] there is no stream '{name}/order' at 127.0.0.1:" in line
    assert f"did you mean '{name}/orders'?" in line


def test_streams_that_disagree_fail_at_load(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(f"{name}/a", schema=pa.schema([("x", pa.int64())]))
    client.create_stream(f"{name}/b", schema=pa.schema([("x", pa.string())]))
    line = failure(lambda: read().load(f"{name}/a,{name}/b"))
    assert "have different schemas, 'x int64' against 'x string'" in line


def test_options_of_a_streaming_read_are_refused(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name)
    line = failure(lambda: read(maxOffsetsPerTrigger=5).load(name).count())
    assert "[SBP-9202] option 'maxOffsetsPerTrigger' is for a streaming read, this is a batch read" in line


def test_offsets_outside_the_stream_are_refused(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name).append([b"a", b"b"])
    line = failure(lambda: read(startingOffsets=json.dumps({name: 7})).load(name).count())
    assert f"option 'startingOffsets' gives stream {name} (" in line
    assert "the offset 7, it holds [0, 2)" in line


def test_a_server_that_is_not_there(read: Callable, name: str) -> None:
    line = failure(lambda: read(servers="127.0.0.1:1", timeout=5).load(name))
    assert "127.0.0.1:1" in line
    assert "[SBP-9" in line
