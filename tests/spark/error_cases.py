"""What a user of Spark can do wrong, or have happen to them: each with the line that they get to see.

``test_spark_errors.py`` does each of these through a real session and compares the line; ``docs/spark/errors.md`` shows
them. The name of a function is what the page says was done. In a line, ``...`` stands for what differs from run to run,
and the server's address is written as `ADDRESS`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter
from pyspark.sql.types import StructType

import sbp_native as sbp
from sbp_native.spark import SbpDataSource
from sbp_native.spark.batch_reader import SbpBatchReader
from sbp_native.spark.planning import SbpInputPartition

ADDRESS = "127.0.0.1:12378"
#: Nobody listens here.
DEAD = "127.0.0.1:9"

#: When the user is told.
LOAD, SAVE, START, ACTION, QUERY = "load()", "save()", "start()", "the action", "the query"


@dataclass(frozen=True)
class Case:
    """One thing that goes wrong."""

    code: int
    when: str
    line: str
    provoke: Callable[[Scene], object]

    @property
    def name(self) -> str:
        """What was done, in words."""
        return self.provoke.__name__.strip("_").replace("__", ", ").replace("_", " ")


CASES: list[Case] = []


def seen(code: int, when: str, line: str) -> Callable[[Callable[[Scene], object]], Callable[[Scene], object]]:
    """Adds a case: `code`, the call that fails, and what follows ``[SBP-code]`` in its text."""

    def add(provoke: Callable[[Scene], object]) -> Callable[[Scene], object]:
        CASES.append(Case(code, when, line, provoke))
        return provoke

    return add


@dataclass(frozen=True)
class Scene:
    """A session, and a server of the case's own that holds the stream `orders` with ten records."""

    spark: SparkSession
    server: sbp.Server
    address: str
    client: sbp.Client
    directory: Path

    def read(self, **options: object) -> DataFrameReader:
        """``spark.read``."""
        return self.spark.read.format("sbp").options(**{"servers": self.address, **options})

    def stream(self, **options: object) -> DataStreamReader:
        """``spark.readStream``, from the first record on."""
        given = {"servers": self.address, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("sbp").options(**given)

    def write(self, frame: DataFrame, **options: object) -> DataFrameWriter:
        """``frame.write`` in append mode."""
        return frame.write.format("sbp").mode("append").options(**{"servers": self.address, **options})

    def write_stream(self, frame: DataFrame, **options: object) -> DataStreamWriter:
        """``frame.writeStream`` with a checkpoint, for what is there now."""
        given = {"servers": self.address, "checkpointLocation": str(self.directory / "sink"), **options}
        return frame.writeStream.format("sbp").options(**given).trigger(availableNow=True)

    def values(self, rows: int = 3) -> DataFrame:
        """Rows with the one column that `body=records` needs."""
        return self.spark.range(rows).selectExpr("string(id) value")

    def run(self, frame: DataFrame) -> None:
        """A query over what there is, into nothing, on this case's checkpoint."""
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.directory / "checkpoint"))
        _ended(writer.trigger(availableNow=True).start())

    def typed(self, name: str, *fields: tuple[str, pa.DataType]) -> sbp.Stream:
        """A stream with a schema."""
        return self.client.create_stream(name, schema=pa.schema(list(fields)))


def _ended(query: Any) -> None:
    try:
        assert query.awaitTermination(60), "the query neither ended nor failed within a minute"
    finally:
        query.stop()


def _failed(query: Any) -> Exception:
    try:
        _ended(query)
    except Exception as error:
        return error
    raise AssertionError("the query came to its end")


# Options.


@seen(9201, LOAD, "there is no option 'strems': did you mean 'streams'?")
def an_option_that_does_not_exist(at: Scene) -> object:
    return at.read(strems="orders").load()


@seen(9201, LOAD, "there is no option 'subscribe': it is called 'streams' here")
def an_option_by_its_name_in_Kafka_s_source(at: Scene) -> object:  # noqa: N802 - a name
    return at.read(subscribe="orders").load()


@seen(
    9201,
    LOAD,
    "there is no option 'kafka.group.id': there are no consumer groups; a reader's place is an offset, kept in "
    "Spark's checkpoint",
)
def a_consumer_group(at: Scene) -> object:
    return at.read(**{"kafka.group.id": "billing"}).load("orders")


@seen(9201, LOAD, "there is no client setting 'client.maxinflight': did you mean 'maxInFlightCalls'?")
def a_client_setting_that_does_not_exist(at: Scene) -> object:
    return at.read(**{"client.maxInflight": "3"}).load("orders")


@seen(
    9202,
    LOAD,
    "option 'body' is for a batch write or a streaming write, this is a batch read or a streaming read: leave it out, "
    "or use 'columns'",
)
def an_option_of_a_write_in_a_read(at: Scene) -> object:
    return at.read(body="arrow").load("orders")


@seen(9202, QUERY, "option 'endingOffsets' is for a batch read, this is a streaming read: leave it out")
def an_end_for_a_stream(at: Scene) -> object:
    return at.run(at.stream(endingOffsets="latest").load("orders"))


@seen(9202, ACTION, "option 'maxOffsetsPerTrigger' is for a streaming read, this is a batch read: leave it out")
def a_limit_per_trigger_for_a_batch(at: Scene) -> object:
    return at.read(maxOffsetsPerTrigger=5).load("orders").count()


@seen(9203, LOAD, "option 'servers' is missing: give 'host:port' or 'host:port,host:port'")
def no_servers(at: Scene) -> object:
    return at.spark.read.format("sbp").load("orders")


@seen(9203, LOAD, "option 'servers' holds 'localhost', which is not 'host:port'")
def a_server_without_its_port(at: Scene) -> object:
    return at.read(servers="localhost").load("orders")


@seen(9203, LOAD, "option 'servers' holds 'PLAINTEXT://broker:9092': leave out 'PLAINTEXT://' and write 'broker:9092'")
def a_server_with_a_scheme(at: Scene) -> object:
    return at.read(servers="PLAINTEXT://broker:9092").load("orders")


@seen(9203, LOAD, "option 'columns' is 'arow': did you mean 'arrow'?")
def a_word_that_an_option_does_not_know(at: Scene) -> object:
    return at.read(columns="arow").load("orders")


@seen(9203, LOAD, "no stream is named: use load('a,b'), option 'streams' or option 'streamsPattern'")
def no_stream(at: Scene) -> object:
    return at.read().load()


@seen(9203, LOAD, "streams are given twice: use load('a,b') or option 'streams', not both")
def streams_given_twice(at: Scene) -> object:
    return at.read(streams="orders").load("orders")


@seen(
    9203,
    LOAD,
    "option 'startingOffsets' is 'newest': it must be 'earliest', 'latest', 'latest-1000' or JSON such as "
    '{"orders": 23, "17": -2} (-2 earliest, -1 latest)',
)
def a_place_that_is_none(at: Scene) -> object:
    return at.read(startingOffsets="newest").load("orders")


@seen(
    9203,
    LOAD,
    "option 'startingTimestamp' is 'yesterday': it must be milliseconds since 1970, ISO 8601 such as "
    "'2026-01-31T12:00:00Z', or a distance from now such as '-10m'",
)
def a_time_that_is_none(at: Scene) -> object:
    return at.read(startingTimestamp="yesterday").load("orders")


@seen(
    9203,
    ACTION,
    "option 'startingOffsets' cannot be 'latest' (-1): a batch read that starts at the end reads nothing",
)
def a_batch_that_begins_at_the_end(at: Scene) -> object:
    return at.read(startingOffsets="latest").load("orders").count()


@seen(9203, ACTION, "option 'startingOffsets' gives stream orders (1) the offset 70, it holds [0, 10)")
def an_offset_behind_the_end(at: Scene) -> object:
    return at.read(startingOffsets=json.dumps({"orders": 70})).load("orders").count()


@seen(9203, ACTION, "option 'startingOffsets' names 'order', which is not read here: did you mean 'orders'?")
def a_place_for_a_stream_that_is_not_read(at: Scene) -> object:
    return at.read(startingOffsets=json.dumps({"order": 7})).load("orders").count()


@seen(9203, ACTION, "option 'startingOffsets' leaves out stream payments (2): give every stream a place")
def a_place_for_one_stream_of_two(at: Scene) -> object:
    at.client.create_stream("payments")
    return at.read(startingOffsets=json.dumps({"orders": 7})).load("orders,payments").count()


# Streams and servers.


@seen(1404, LOAD, f"there is no stream 'order' at {ADDRESS}: did you mean 'orders'?")
def a_stream_that_does_not_exist(at: Scene) -> object:
    return at.read().load("order")


@seen(1404, ACTION, f"there is no stream 'orders' at {ADDRESS}: the server has no stream yet")
def a_stream_that_was_deleted_after_load(at: Scene) -> object:
    frame = at.read().load("orders")
    at.client.delete_stream("orders")
    return frame.count()


@seen(
    9001,
    LOAD,
    f"connecting: no server could be reached: cannot connect to {DEAD}: Connection refused (os error 111); server "
    f"{DEAD}; 1 attempt; can be tried again; check the address, and that the server runs and can be reached",
)
def a_server_that_does_not_run(at: Scene) -> object:
    return at.read(servers=DEAD, timeout="2s").load("orders")


@seen(9001, ACTION, f"...cannot connect to {ADDRESS}: Connection refused...")
def a_server_that_was_stopped_after_load(at: Scene) -> object:
    frame = at.read(timeout="2s").load("orders")
    at.server.close()
    return frame.count()


@seen(
    1404,
    LOAD,
    f"no stream matches streamsPattern 'ordres.*' at {ADDRESS}: did you mean 'orders'?; with columns=records or "
    "columns=kafka a query may begin without any",
)
def a_pattern_that_matches_nothing(at: Scene) -> object:
    return at.read(streamsPattern="ordres.*").load()


# Columns.


@seen(9204, ACTION, "there is no column 'ofset' among the records columns: did you mean 'offset'?")
def a_column_that_does_not_exist(at: Scene) -> object:
    return at.read().schema("ofset bigint").load("orders").count()


@seen(9204, ACTION, "column 'offset' is bigint, not int: ask for it as it is and cast it in the query")
def a_column_of_another_type(at: Scene) -> object:
    return at.read().schema("offset int").load("orders").count()


@seen(9204, LOAD, "stream flights (2) has a schema and stream orders (1) has none: load them apart")
def typed_streams_and_others_in_one_load(at: Scene) -> object:
    at.typed("flights", ("carrier", pa.string()))
    return at.read().load("orders,flights")


@seen(
    9204,
    LOAD,
    "stream flights (2) and stream weather (3) have different schemas, 'carrier string' against 'origin string': load "
    "them apart",
)
def streams_with_different_schemas(at: Scene) -> object:
    at.typed("flights", ("carrier", pa.string()))
    at.typed("weather", ("origin", pa.string()))
    return at.read().load("flights,weather")


@seen(9204, LOAD, "stream orders (1) has no schema, so it has no typed columns: leave out columns=arrow")
def typed_columns_of_a_stream_without_a_schema(at: Scene) -> object:
    return at.read(columns="arrow").load("orders")


# Reading.


@seen(
    9013,
    QUERY,
    f"records of this query are not there: stream orders (1) [10, 18), servers {ADDRESS}: not retriable, set "
    "failOnDataLoss=false to go on without them, or start a new query with a new checkpoint",
)
def records_trimmed_before_a_query_read_them(at: Scene) -> object:
    frame = at.stream().load("orders")
    at.run(frame)
    orders = at.client.stream("orders")
    orders.append([b"more"] * 10)
    orders.trim(18)
    return at.run(frame)


@seen(9206, ACTION, f"10 of 11 records were delivered from stream 1 [0, 10), servers {ADDRESS}: not retriable...")
def a_plan_that_counts_a_record_too_many(at: Scene) -> object:
    # Reader and server prove that they leave nothing out, so the plan has to be wrong.
    class Counted(SbpInputPartition):
        @property
        def records(self) -> int:
            return super().records + 1

    class Reader(SbpBatchReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [Counted(part.spans) for part in super().partitions() if isinstance(part, SbpInputPartition)]

    class Source(SbpDataSource):
        @classmethod
        def name(cls) -> str:
            return "sbp_miscounted"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader(self._options, schema)

    at.spark.dataSource.register(Source)
    return at.read().format("sbp_miscounted").load("orders").collect()


@seen(
    9205,
    QUERY,
    "the checkpoint holds offsets of version 9, this release of sbp-native reads up to 3: upgrade it, or go on with "
    "the release that wrote them",
)
def a_checkpoint_of_a_later_version(at: Scene) -> object:
    frame = at.stream().load("orders")
    at.run(frame)
    offsets = next((at.directory / "checkpoint" / "offsets").glob("[0-9]*"))
    offsets.write_text(re.sub(r'"v": ?3', '"v":9', offsets.read_text()))
    at.client.stream("orders").append(b"more")
    return at.run(frame)


@seen(
    9013,
    ACTION,
    f"records of this query are not there any more: ..., servers {ADDRESS}: not retriable, a DataFrame or view was "
    "planned when it was first used: load it again if that was before, or set failOnDataLoss=false to go on without "
    "them",
)
def records_trimmed_while_a_batch_reads_them(at: Scene) -> object:
    address = at.address

    def trims(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sbp_native

        for batch in batches:
            with sbp_native.connect(address) as client:
                client.stream("orders").trim(10)
            yield batch

    frame = at.read(maxRecordsPerPartition=1).load("orders").select("offset")
    return frame.mapInArrow(trims, "offset bigint").collect()


# Writing.


@seen(9204, SAVE, "body=records needs a column 'value', binary or string; body=arrow takes any columns")
def a_write_without_a_value(at: Scene) -> object:
    return at.write(at.spark.createDataFrame([("a",)], "key string")).save("orders")


@seen(9204, SAVE, "column 'value' is bigint: cast it to binary or string")
def a_value_that_is_a_number(at: Scene) -> object:
    return at.write(at.spark.range(3).selectExpr("id value")).save("orders")


@seen(
    9203,
    SAVE,
    f"there is no stream 'order' at {ADDRESS}: did you mean 'orders'?, or use createStreams=true",
)
def a_target_that_does_not_exist(at: Scene) -> object:
    return at.write(at.values()).save("order")


@seen(9203, SAVE, "no target is named: use save('a'), option 'stream', or one column 'stream' or 'stream_id'")
def a_write_without_a_target(at: Scene) -> object:
    return at.write(at.values()).save()


@seen(
    9204,
    SAVE,
    "body=records cannot keep 'partition', 'offset', 'timestampType': that is where a row was read, and each gets a "
    'new place. Write the rest with .drop("partition", "offset", "timestampType"), or set originColumns=ignore',
)
def a_copy_with_the_places_of_its_rows(at: Scene) -> object:
    at.client.create_stream("copy")
    return at.write(at.read(columns="kafka").load("orders")).save("copy")


@seen(9207, SAVE, "a stream cannot be overwritten, only appended to: use .mode('append')")
def overwriting(at: Scene) -> object:
    return at.write(at.values()).mode("overwrite").save("orders")


@seen(9204, SAVE, "column 'late' of stream flights (2) is int32, the DataFrame's is int64: cast it")
def a_typed_column_of_another_type(at: Scene) -> object:
    at.typed("flights", ("late", pa.int32()))
    return at.write(at.spark.range(3).selectExpr("id late")).save("flights")


@seen(
    9204,
    SAVE,
    "column 'age' is interval month, which Spark does not hand to Python in Arrow form: cast it to a number or a "
    "string (of an interval in months: the number of months)",
)
def a_column_that_has_no_Arrow_type(at: Scene) -> object:  # noqa: N802 - a name
    return at.write(at.spark.sql("SELECT interval '3' month age"), body="arrow", createStreams=True).save("ages")


@seen(
    1413,
    SAVE,
    "...a batch of ... bytes is larger than a server stores (16711680 bytes)...append fewer records at once: one batch "
    "takes a little under 16 MiB, and 64 MiB before it is compressed (lz4, zstd); split a single record that is larger "
    "into several, or keep it elsewhere and append where it is",
)
def a_value_of_20_MB(at: Scene) -> object:  # noqa: N802 - a unit
    return at.write(at.spark.range(1).selectExpr("repeat('x', 20000000) value")).save("orders")


@seen(9204, SAVE, "stream flights (2) has no column 'carier': did you mean 'carrier'?")
def a_typed_column_that_does_not_exist(at: Scene) -> object:
    at.typed("flights", ("carrier", pa.string()))
    return at.write(at.spark.createDataFrame([("UA",)], "carier string")).save("flights")


@seen(
    9204,
    SAVE,
    "stream flights (2) has a column 'origin' that the DataFrame lacks: add it, null if allowed",
)
def a_typed_column_left_out(at: Scene) -> object:
    at.typed("flights", ("carrier", pa.string()), ("origin", pa.string()))
    return at.write(at.spark.createDataFrame([("UA",)], "carrier string")).save("flights")


@seen(9204, SAVE, "stream flights (2) has a schema, so it takes body=arrow, not body=records")
def records_into_a_typed_stream(at: Scene) -> object:
    at.typed("flights", ("carrier", pa.string()))
    return at.write(at.values(), body="records").save("flights")


@seen(9203, SAVE, "3 servers cannot acknowledge what 2 hold: 'acks' is 1 to 'replicas'")
def more_acknowledgements_than_copies(at: Scene) -> object:
    return at.write(at.values(), createStreams=True, replicas=2, acks=3).save("safe")


@seen(
    1502,
    SAVE,
    "creating stream safe: 3 replicas of which 2 acknowledge need at least 2 range servers; 1 are up...",
)
def more_copies_than_servers(at: Scene) -> object:
    return at.write(at.values(), createStreams=True, replicas=3).save("safe")


@seen(9203, SAVE, "option 'txnAppId' does nothing without 'txnVersion': give both, or none")
def a_transaction_without_its_version(at: Scene) -> object:
    return at.write(at.values(), txnAppId="nightly").save("orders")


@seen(
    9203,
    SAVE,
    "delivery=at-least-once contradicts txnAppId and txnVersion: leave out one or the other",
)
def a_transaction_at_least_once(at: Scene) -> object:
    return at.write(at.values(), txnAppId="nightly", txnVersion=1, delivery="at-least-once").save("orders")


@seen(9203, SAVE, "...column 'stream' is null in some rows: every row needs a target")
def a_row_without_a_target(at: Scene) -> object:
    return at.write(at.spark.createDataFrame([("a", None)], "value string, stream string")).save()


@seen(9204, SAVE, "...column 'carrier' holds 1 nulls, but the stream's schema allows none")
def a_null_where_the_stream_has_none(at: Scene) -> object:
    at.client.create_stream("flights", schema=pa.schema([pa.field("carrier", pa.string(), nullable=False)]))
    return at.write(at.spark.createDataFrame([(None,)], "carrier string")).save("flights")


@seen(
    9207,
    QUERY,
    "output mode 'complete' writes the whole result anew each time, and a stream can only be appended to: use "
    "outputMode('append') with a watermark, or foreachBatch",
)
def complete_mode(at: Scene) -> object:
    counts = at.stream().load("orders").groupBy("key").count().selectExpr("string(count) value")
    return _ended(at.write_stream(counts).outputMode("complete").start("orders"))


@seen(9204, QUERY, "body=records needs a column 'value', binary or string; body=arrow takes any columns")
def a_streaming_write_without_a_value(at: Scene) -> object:
    return _ended(at.write_stream(at.stream().load("orders").select("key")).start("orders"))


@seen(9210, QUERY, "...an earlier attempt of this task stored other rows, so the plan does not give the same rows...")
def other_rows_when_a_batch_is_repeated(at: Scene) -> object:
    copy = at.client.create_stream("copy")
    address, failed = at.address, at.directory / "failed"

    def random(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        import uuid

        import sbp_native

        for batch in batches:
            if 9 in batch["offset"].to_pylist() and not failed.exists():
                # The other task has stored its rows, then this one fails.
                with sbp_native.connect(address) as client:
                    deadline = time.monotonic() + 30
                    while client.stream("copy").positions().latest == 0 and time.monotonic() < deadline:
                        time.sleep(0.01)
                failed.touch()
                raise RuntimeError("on purpose")
            yield pa.record_batch({"value": [str(uuid.uuid4()) for _ in range(batch.num_rows)]})

    frame = at.stream(minPartitions=2).load("orders").select("offset").mapInArrow(random, "value string")
    first = at.write_stream(frame).start("copy")
    assert "on purpose" in str(_failed(first))
    assert copy.positions().latest > 0
    return _ended(at.write_stream(frame).start("copy"))


@seen(
    9210,
    QUERY,
    "...batch 0 was written before with other rows (10 then, now there are 11; stream ...), and nothing was written "
    "now: the checkpoint is older than what was written, put back or deleted in part, or...",
)
def a_checkpoint_of_which_only_metadata_is_left(at: Scene) -> object:
    at.client.create_stream("copy")
    frame = at.stream().load("orders").select("value")
    _ended(at.write_stream(frame).start("copy"))
    for part in ("offsets", "commits", "sources"):
        shutil.rmtree(at.directory / "sink" / part, ignore_errors=True)
    at.client.stream("orders").append(b"more")
    return _ended(at.write_stream(frame).start("copy"))


@seen(
    9210,
    SAVE,
    "...version 7 of this txnAppId was written before with other rows (3 then, now there are 4; stream ...), and "
    "nothing was written now: a txnVersion stands for the same rows each time...",
)
def other_rows_under_a_version(at: Scene) -> object:
    for count in (3, 4):
        at.write(at.values(count), txnAppId="nightly", txnVersion=7).save("orders")
    return None
