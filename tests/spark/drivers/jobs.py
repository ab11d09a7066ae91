"""What a driver of the tests can be told to do. Each takes the session and returns something that is JSON."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spark import faults, forks, gates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def application(spark: SparkSession) -> str:
    """What a cluster calls this driver's application."""
    return str(spark.sparkContext.applicationId)


def fork(spark: SparkSession, servers: str, stream: str) -> list[list[str]]:
    """Uses the package in workers and in children of workers; what each said."""
    return forks.run(spark, servers, stream)


def inherited(spark: SparkSession, stream: str) -> list[int]:
    """How many clients of the daemon each of two workers has, all refused there."""
    return spark.sparkContext.parallelize([stream] * 2, 2).map(forks.check_inherited).collect()


def read_offsets(spark: SparkSession, servers: str, streams: str) -> list[list[object]]:
    """Every (stream, offset)."""
    rows = spark.read.format("sbp").option("servers", servers).load(streams).select("stream", "offset").collect()
    return sorted([row.stream, row.offset] for row in rows)


def write_numbers(spark: SparkSession, servers: str, stream: str, rows: int, tasks: int) -> None:
    """Appends the numbers from 0 as text."""
    frame = spark.range(0, rows, numPartitions=tasks).selectExpr("string(id) value")
    frame.write.format("sbp").mode("append").option("servers", servers).save(stream)


def copy(
    spark: SparkSession,
    servers: str,
    source: str,
    target: str,
    checkpoint: str,
    options: dict[str, str] | None = None,
    per_trigger: int = 100_000,
    fail_first_attempts: bool = False,
    linger_at: str | None = None,
    sink: str = "sbp",
) -> int:
    """Copies a stream to another by a query that ends when all is copied; how many batches it made."""
    for made in (gates.GatedDataSource, gates.FailingDataSource):
        spark.dataSource.register(made)
    frame = (
        spark.readStream.format("sbp")
        .options(servers=servers, startingOffsets="earliest", maxOffsetsPerTrigger=per_trigger, minPartitions=2)
        .load(source)
        .select("value")
    )
    if fail_first_attempts:
        frame = frame.mapInArrow(partial(faults.fail_late, servers=servers, target=target), frame.schema)
    if linger_at is not None:
        linger = partial(faults.linger, place=Path(linger_at), partition=1, servers=servers, target=target)
        frame = frame.mapInArrow(linger, frame.schema)
    query = (
        frame.writeStream.format(sink)
        .options(servers=servers, checkpointLocation=checkpoint, **(options or {}))
        .trigger(availableNow=True)
        .start(target)
    )
    try:
        assert query.awaitTermination(200), "the query did not end"
    finally:
        query.stop()
    return len(query.recentProgress)


def sum_of_lengths(spark: SparkSession, servers: str, stream: str) -> list[int]:
    """Rows, sum of offsets and bytes of values of a batch read in many partitions."""
    frame = spark.read.format("sbp").options(servers=servers, minPartitions=8).load(stream)
    row = frame.selectExpr("count(*) c", "sum(offset) o", "sum(length(value)) v").collect()[0]
    return [row.c, row.o, row.v]


def write_lingering(spark: SparkSession, servers: str, target: str, rows: int, place: str, delivery: str) -> None:
    """A batch write of numbers in two tasks, one of which is slow at its first attempt."""
    frame = spark.range(0, rows, numPartitions=2).selectExpr("concat('row ', id) value")
    linger = partial(faults.linger, place=Path(place), partition=1, servers=servers, target=target)
    frame = frame.mapInArrow(linger, frame.schema)
    frame.write.format("sbp").mode("append").options(servers=servers, batchRows=50, delivery=delivery).save(target)


def copy_pravega(
    spark: SparkSession,
    controller: str,
    stream: str,
    servers: str,
    target: str,
    checkpoint: str,
    all_there_is: bool = False,
) -> None:
    """Copies the events of a Pravega stream to a stream, a little at a time; for ever, or until all is copied."""
    query = (
        spark.readStream.format("pravega")
        .options(controller=controller, startingOffsets="earliest", maxBytesPerTrigger=1500)
        .load(stream)
        .select("value")
        .writeStream.format("sbp")
        .options(servers=servers, checkpointLocation=checkpoint)
        .trigger(**({"availableNow": True} if all_there_is else {"processingTime": "0 seconds"}))
        .start(target)
    )
    query.awaitTermination()
