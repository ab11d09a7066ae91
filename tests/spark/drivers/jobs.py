"""What a driver of the tests can be told to do. Each takes the session and returns something that is JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark import forks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
