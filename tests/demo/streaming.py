"""December as a stream: windowed sums per carrier, while the events arrive a day at a time."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from . import events, verify
from .replay import Ledger, replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: Where the finished windows go.
WINDOWS = "results/windows"

#: No event of these data is later than 34 hours after its scheduled hour, and the streams drift by less than a day.
WATERMARK = "3 days"

#: Less than a day has, so that the limit splits every day.
ROWS_PER_TRIGGER = 1_200

_DAY_WITHIN = 120.0
_FIGURES = ("departures", "arrivals", "cancellations", "departure delay", "arrival delay")


@dataclass
class Outcome:
    """What the query did, from its progress reports."""

    triggers: int = 0
    rows: int = 0
    rows_dropped: int = 0
    largest_batch: int = 0
    milliseconds: dict[str, list[int]] = field(default_factory=dict)

    def add(self, progress: dict[str, Any]) -> None:
        """Adds one progress report."""
        rows = int(progress["numInputRows"])
        self.triggers += 1
        self.rows += rows
        self.largest_batch = max(self.largest_batch, rows)
        for part, spent in progress["durationMs"].items():
            self.milliseconds.setdefault(part, []).append(int(spent))
        self.rows_dropped += sum(int(state["numRowsDroppedByWatermark"]) for state in progress["stateOperators"])

    def median(self, part: str) -> float:
        """The median of what a part of the micro-batches took, in milliseconds."""
        return statistics.median(self.milliseconds.get(part, [0]))


def start(
    spark: SparkSession, servers: str, streams: list[str], starting: dict[str, int], checkpoint: Path
) -> StreamingQuery:
    """Starts the query at the offsets where December begins."""
    # A micro-batch has a thousand rows and sixteen carriers: one task aggregates and writes them.
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    source = (
        spark.readStream.format("sbp")
        .option("servers", servers)
        .option("streams", ",".join(streams))
        .option("startingOffsets", json.dumps(starting))
        .option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
        .load()
    )

    def write(batch: DataFrame, _batch_id: int) -> None:
        writer = batch.write.format("sbp").mode("append").option("servers", servers)
        writer.option("body", "arrow").option("createStreams", "true").save(WINDOWS)

    return (
        windowed(source)
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(write)
        .start()
    )


def windowed(source: DataFrame) -> DataFrame:
    """Sums and counts per carrier in windows of scheduled time."""

    def count(kind: str) -> Any:
        return fn.sum(fn.when(fn.col("kind") == kind, 1).otherwise(0))

    return (
        source.withWatermark("time_hour", WATERMARK)
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


async def feed(
    client: Any,
    query: StreamingQuery,
    december: pa.Table,
    ledger: Ledger,
    streams: list[str],
    advance: Callable[[int], None],
) -> Outcome:
    """Appends December a day at a time, each after the query has passed the one before; then the closing event.

    Raises `RuntimeError` if the query fails or stops making progress.
    """
    day = dt.datetime.combine(december["happened"][0].as_py().date(), dt.time(), dt.UTC)
    last = december["happened"][-1].as_py()
    while day <= last:
        today = events.between(december, day, day + dt.timedelta(days=1))
        day += dt.timedelta(days=1)
        if today.num_rows:
            await replay(client, events.slots(today, hours=1), ledger)
            await _passed(query, await ends(client, streams))
            advance(today.num_rows)

    closing = events.closing_event()
    name = events.stream_name(closing["carrier"][0].as_py())
    ack = (await client.append_all({name: closing}))[name]
    ledger.enter(name, ack.base_offset, ack.last_offset, closing)
    # Its own batch moves the watermark; the windows go out in the batch after that, which has no rows.
    await _until(query, lambda report: report["eventTime"].get("watermark", "") > "2014-02", "the last windows")

    outcome = Outcome()
    for progress in query.recentProgress:
        outcome.add(json.loads(progress.json))
    return outcome


async def ends(client: Any, streams: list[str]) -> dict[str, int]:
    """The next offset of each stream, by name."""
    return {name: int(held.latest) for name, held in (await client.positions(streams)).items()}


async def _passed(query: StreamingQuery, places: dict[str, int]) -> None:
    total = sum(places.values())

    def reached(report: dict[str, Any]) -> bool:
        offset = report["sources"][0]["endOffset"]
        offset = json.loads(offset) if isinstance(offset, str) else offset
        return offset is not None and sum(offset["o"].values()) >= total

    await _until(query, reached, "the day's last event")


async def _until(query: StreamingQuery, reached: Callable[[dict[str, Any]], bool], what: str) -> None:
    deadline = time.monotonic() + _DAY_WITHIN
    while True:
        failure = query.exception()
        if failure is not None or not query.isActive:
            raise RuntimeError(f"the streaming query ended while waiting for {what}") from failure
        progress = query.lastProgress
        if progress is not None and reached(json.loads(progress.json)):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the streaming query did not reach {what} within {_DAY_WITHIN:.0f} s")
        await asyncio.sleep(0.02)


def figures(spark: SparkSession, servers: str) -> verify.Figures:
    """The windows as they were written, read back from their stream."""
    found: verify.Figures = {}
    windows = spark.read.format("sbp").option("servers", servers).load(WINDOWS)
    # As seconds, because Spark hands a timestamp to Python in the zone that this machine happens to be in.
    for row in windows.withColumn("start", fn.unix_seconds("window_start")).collect():
        start = dt.datetime.fromtimestamp(row["start"], dt.UTC)
        for figure in _FIGURES:
            name = verify.of_window(figure, row["carrier"], start)
            # A window that was written twice counts twice, so that it shows.
            found[name] = found.get(name, 0) + int(row[figure])
    return found
