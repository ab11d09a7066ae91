"""Streaming writes through Spark, to a real server: exactly once, at least once, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sbp_native.spark import deterministic
from spark.support import failure, forget_last_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    import sbp_native as sbp

OPTIONS = Path(__file__).parents[2] / "docs" / "spark" / "options.md"


def values(client: sbp.Client, name: str) -> list[bytes]:
    return [bytes(record.value) for batch in client.stream(name).read() for record in batch.records()]


def fill(client: sbp.Client, name: str, first: int, count: int) -> None:
    client.create_stream(name, exist_ok=True).append([b"%d" % n for n in range(first, first + count)])


@pytest.fixture
def source(spark: SparkSession, server: sbp.Server) -> Callable[..., DataFrame]:
    def reader(names: str, **options: object) -> DataFrame:
        made = spark.readStream.format("sbp").option("servers", server.address)
        return made.option("startingOffsets", "earliest").options(**options).load(names)

    return reader


@pytest.fixture
def sink(server: sbp.Server, checkpoint: str) -> Callable[..., DataStreamWriter]:
    def writer(frame: DataFrame, **options: object) -> DataStreamWriter:
        made = frame.writeStream.format("sbp").option("servers", server.address).options(**options)
        return made.option("checkpointLocation", checkpoint).trigger(availableNow=True)

    return writer


def run(writer: DataStreamWriter, name: str | None) -> None:
    assert writer.start(name).awaitTermination(120)


@pytest.mark.parametrize("delivery", ["at-least-once", None])
def test_every_row_arrives_once(
    client: sbp.Client, source: Callable, sink: Callable, name: str, delivery: str | None
) -> None:
    fill(client, f"{name}/in", 0, 3_000)
    client.create_stream(f"{name}/out")
    options = {"delivery": delivery} if delivery else {}
    for first in (0, 3_000):
        frame = source(f"{name}/in", maxOffsetsPerTrigger=2_000).select("key", "value")
        run(sink(frame, **options), f"{name}/out")
        assert Counter(values(client, f"{name}/out")) == Counter(b"%d" % n for n in range(first + 3_000))
        fill(client, f"{name}/in", first + 3_000, 3_000)


def test_a_commit_that_spark_forgot_is_not_written_again(
    client: sbp.Client, source: Callable, sink: Callable, name: str, checkpoint: str
) -> None:
    fill(client, f"{name}/in", 0, 3_000)
    client.create_stream(f"{name}/out")
    for _ in range(2):
        run(sink(source(f"{name}/in", maxOffsetsPerTrigger=1_000), originColumns="ignore"), f"{name}/out")
        forget_last_commit(checkpoint)
    assert Counter(values(client, f"{name}/out")) == Counter(b"%d" % n for n in range(3_000))


def test_typed_rows_through_a_query(
    client: sbp.Client, source: Callable, sink: Callable, name: str, read: Callable
) -> None:
    """A flow of events, made typed on the way; the target is created by the first micro-batch."""
    fill(client, f"{name}/in", 0, 1_000)
    frame = source(f"{name}/in").selectExpr("cast(string(value) as bigint) n", "timestamp at", "array(string(value)) l")
    run(sink(frame, body="arrow", createStreams="true"), f"{name}/out")
    found = read().load(f"{name}/out")
    assert found.columns[:3] == ["n", "at", "l"]
    assert sorted(row.n for row in found.collect()) == list(range(1_000))


def test_a_target_that_does_not_fit_is_told_before_there_are_rows(
    spark: SparkSession, client: sbp.Client, source: Callable, sink: Callable, name: str, write: Callable
) -> None:
    """As the page says: a query tells at its first micro-batch, a batch write without rows before any query begins."""
    page = " ".join(OPTIONS.read_text().split())
    assert "those of a streaming write at its first micro-batch: that of a new query comes at once" in page
    assert 'To be told before, write no rows: `spark.createDataFrame([], totals.schema).write.format("sbp")`' in page
    client.create_stream(f"{name}/in")
    target = client.create_stream(f"{name}/out", schema=pa.schema([("n", pa.int64())]))
    frame = source(f"{name}/in").selectExpr("cast(string(value) as int) n")
    wanted = "[SBP-9204] column 'n' of stream"
    assert wanted in failure(lambda: write(spark.createDataFrame([], frame.schema)).save(target.name))
    query = sink(frame).trigger(processingTime="0 seconds").start(target.name)
    assert wanted in failure(lambda: query.awaitTermination(60))
    write(spark.createDataFrame([], "n bigint")).save(target.name)
    assert target.positions().latest == 0


def test_a_query_whose_plan_moves_rows_is_made_deterministic(
    client: sbp.Client, source: Callable, sink: Callable, name: str, checkpoint: str
) -> None:
    fill(client, f"{name}/in", 0, 2_000)
    for part in "ab":
        client.create_stream(f"{name}/{part}")

    def start() -> None:
        moved = source(f"{name}/in", minPartitions=3).selectExpr(
            f"concat('{name}/', if(cast(string(value) as int) % 2 = 0, 'a', 'b')) stream", "value"
        )
        run(sink(deterministic(moved.repartition(4), 2)), None)

    start()
    forget_last_commit(checkpoint)
    start()
    for odd, part in enumerate("ab"):
        assert Counter(values(client, f"{name}/{part}")) == Counter(b"%d" % n for n in range(odd, 2_000, 2))


def test_batches_of_a_query_under_its_own_versions(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, source: Callable, name: str, checkpoint: str
) -> None:
    """`foreachBatch` with the batch writer: the batch's number is the version, so a repeated batch does nothing."""
    fill(client, f"{name}/in", 0, 1_000)
    client.create_stream(f"{name}/out")

    def write(batch: DataFrame, number: int) -> None:
        made = batch.select("value").write.format("sbp").mode("append").option("servers", server.address)
        made.option("txnAppId", f"copy of {name}").option("txnVersion", number).save(f"{name}/out")

    for _ in range(2):
        query = source(f"{name}/in", maxOffsetsPerTrigger=400).writeStream.foreachBatch(write)
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        forget_last_commit(checkpoint)
    assert Counter(values(client, f"{name}/out")) == Counter(b"%d" % n for n in range(1_000))


def test_modes_and_options_that_a_stream_cannot_have(
    client: sbp.Client, source: Callable, sink: Callable, name: str
) -> None:
    client.create_stream(name).append([b"x"])
    grouped = source(name).groupBy("value").count().selectExpr("value")
    with pytest.raises(Exception, match="does not support Update mode"):
        run(sink(grouped).outputMode("update"), name)
    assert "[SBP-9207] output mode 'complete'" in failure(lambda: run(sink(grouped).outputMode("complete"), name))
