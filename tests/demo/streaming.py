"""The year as a stream: windowed sums per carrier, written exactly once."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from . import events, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: Where the finished windows go.
WINDOWS = "results/windows"
#: Where those of the impatient query go.
HASTY_WINDOWS = "results/hasty_windows"

#: No event of these data is later than 34 hours after its scheduled hour, and no batch leaves a stream behind.
WATERMARK = "3 days"
#: Flights that are late by more than this leave their window for ever.
HASTY_WATERMARK = "6 hours"

#: Of 664,122 events, over all streams together: about ten days of the year. A micro-batch costs more than its rows.
ROWS_PER_TRIGGER = 20_000

_FIGURES = ("departures", "arrivals", "cancellations", "departure delay", "arrival delay")


@dataclass(frozen=True)
class Job:
    """One streaming query: what it reads, how long it waits for late events, where it writes."""

    servers: str
    streams: tuple[str, ...]
    target: str
    watermark: str
    checkpoint: str
    replicas: int = 1
    acks: int = 1


@dataclass
class Outcome:
    """What a query did, from its progress reports."""

    triggers: int = 0
    rows: int = 0
    rows_dropped: int = 0
    largest_batch: int = 0
    read_to: int = 0
    milliseconds: dict[str, list[int]] = field(default_factory=dict)

    def add(self, progress: dict[str, Any]) -> int:
        """Adds one progress report; returns its rows."""
        rows = int(progress["numInputRows"])
        self.triggers += 1
        self.rows += rows
        self.largest_batch = max(self.largest_batch, rows)
        end = progress["sources"][0]["endOffset"]
        if end:
            self.read_to = sum((json.loads(end) if isinstance(end, str) else end)["o"].values())
        for part, spent in progress["durationMs"].items():
            self.milliseconds.setdefault(part, []).append(int(spent))
        self.rows_dropped += sum(int(state["numRowsDroppedByWatermark"]) for state in progress["stateOperators"])
        return rows

    def median(self, part: str) -> float:
        """The median of what a part of the micro-batches took, in milliseconds."""
        return statistics.median(self.milliseconds.get(part, [0]))


def start(spark: SparkSession, job: Job) -> StreamingQuery:
    """Starts the query over everything that is in the streams now, from its checkpoint on if it has one."""
    # A micro-batch has twenty thousand rows and sixteen carriers: one task aggregates and writes them.
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    source = (
        spark.readStream.format("sbp")
        .option("servers", job.servers)
        .option("streams", ",".join(job.streams))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
        .load()
    )
    return (
        windowed(source, job.watermark)
        .writeStream.format("sbp")
        .option("servers", job.servers)
        .option("body", "arrow")
        .option("createStreams", "true")
        .option("replicas", job.replicas)
        .option("acks", job.acks)
        # Groups leave the aggregation in any order; sorted, a repeated batch is the same batch.
        .option("sortWithinBatch", "true")
        .option("checkpointLocation", job.checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start(job.target)
    )


def judge_by_last_batch(spark: SparkSession) -> None:
    """Has queries that start from here on judge what is late by the watermark that the batch before them left.

    As it is set up, Spark goes by that of one batch earlier, for the sake of plans with several aggregations; a batch
    of this demo is ten days long, and no flight is that late.
    """
    spark.conf.set("spark.sql.streaming.statefulOperator.allowMultiple", "false")


def windowed(source: DataFrame, watermark: str) -> DataFrame:
    """Sums and counts per carrier in windows of scheduled time."""

    def count(kind: str) -> Any:
        return fn.sum(fn.when(fn.col("kind") == kind, 1).otherwise(0))

    return (
        source.withWatermark("time_hour", watermark)
        .groupBy(fn.window("time_hour", f"{verify.WINDOW_HOURS} hours"), "carrier")
        .agg(
            count(events.DEPARTURE).alias("departures"),
            count(events.ARRIVAL).alias("arrivals"),
            count(events.CANCELLATION).alias("cancellations"),
            fn.coalesce(fn.sum("dep_delay"), fn.lit(0)).alias("departure delay"),
            fn.coalesce(fn.sum("arr_delay"), fn.lit(0)).alias("arrival delay"),
        )
        .select(fn.col("window.start").alias("window_start"), "carrier", *_FIGURES)
    )


def figures(spark: SparkSession, servers: str, target: str) -> verify.Figures:
    """The windows as they were written, read back from their stream."""
    found: verify.Figures = {}
    windows = spark.read.format("sbp").option("servers", servers).load(target)
    # As seconds, because Spark hands a timestamp to Python in the zone that this machine happens to be in.
    for row in windows.withColumn("start", fn.unix_seconds("window_start")).collect():
        start = dt.datetime.fromtimestamp(row["start"], dt.UTC)
        for figure in _FIGURES:
            name = verify.of_window(figure, row["carrier"], start)
            # A window that was written twice counts twice, so that it shows.
            found[name] = found.get(name, 0) + int(row[figure])
    return found


def counted(found: verify.Figures) -> int:
    """The events that windows hold."""
    kinds = ("departures", "arrivals", "cancellations")
    return sum(value for name, value in found.items() if name.startswith(kinds))


def checkpoint(directory: Path, name: str) -> str:
    """A place for a query's checkpoint."""
    return str(directory / "checkpoints" / name)
