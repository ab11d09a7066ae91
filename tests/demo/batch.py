"""Batch queries over the whole year, and a step whose workers use the client themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as fn

from . import events, verify
from .replay import WEATHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

#: Where the workers of the ``mapInArrow`` step put their partial results.
PARTIALS = "results/partials"

PARTIAL_SCHEMA = pa.schema(
    [
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("arrivals", pa.int64(), nullable=False),
        pa.field("air_time", pa.int64(), nullable=False),
    ]
)


class Queries:
    """The demo's questions to one server."""

    def __init__(self, spark: SparkSession, servers: str, streams: list[str]) -> None:
        self._spark = spark
        self._servers = servers
        self._streams = ",".join(streams)

    def batch(self) -> verify.Figures:
        """Counts and sums per carrier and month, and of the whole year."""
        return by_month(
            self._flights("kind string, carrier string, month int, distance int, dep_delay int, arr_delay int")
        )

    def weather(self) -> verify.Figures:
        """Flights joined with the weather of their scheduled hour."""
        flown = self._flights("kind string, origin string, time_hour timestamp, dep_delay int").where(_is_flight())
        weather = self._load(WEATHER, "origin string, time_hour timestamp, precip double")
        weather = fn.broadcast(weather.withColumn("observed", fn.lit(1)))
        joined = flown.join(weather, ["origin", "time_hour"], "left")
        rain = (fn.col("kind") == events.DEPARTURE) & (fn.col("precip") > 0)
        rows = joined.groupBy("origin").agg(
            fn.count(fn.lit(1)).alias("flights"),
            fn.count("observed").alias("flights with weather"),
            _count(rain).alias("departures in rain"),
            fn.coalesce(fn.sum(fn.when(rain, fn.col("dep_delay"))), fn.lit(0)).alias("departure delay in rain"),
        )
        return {
            verify.of_origin(figure, row["origin"]): row[figure]
            for row in rows.collect()
            for figure in rows.columns
            if figure != "origin"
        }

    def partials(self) -> verify.Figures:
        """Lets every worker append what it adds up, then adds up what they appended."""
        flown = self._flights("kind string, carrier string, air_time int").where(fn.col("kind") == events.ARRIVAL)
        claimed = flown.mapInArrow(_append_partials(self._servers), "first bigint, last bigint").collect()
        stored = self._load(PARTIALS, "_offset bigint, carrier string, arrivals bigint, air_time bigint")
        appended = {offset for row in claimed for offset in range(row["first"], row["last"] + 1)}
        rows = stored.collect()
        if {row["_offset"] for row in rows} != appended:
            raise RuntimeError(f"{PARTIALS} holds other offsets than the workers were told")
        figures: verify.Figures = {}
        for row in rows:
            for figure, column in (("arrivals", "arrivals"), ("air time", "air_time")):
                name = verify.of_carrier(figure, row["carrier"])
                figures[name] = figures.get(name, 0) + row[column]
        return figures

    def delays(self) -> list[tuple[str, int, float, int]]:
        """(carrier, local hour of schedule, mean departure delay in minutes, departures), for the chart."""
        flown = self._flights("kind string, carrier string, hour int, dep_delay int")
        rows = (
            flown.where(fn.col("kind") == events.DEPARTURE)
            .groupBy("carrier", "hour")
            .agg(fn.avg("dep_delay").alias("mean"), fn.count(fn.lit(1)).alias("departures"))
            .collect()
        )
        return [(row["carrier"], row["hour"], row["mean"], row["departures"]) for row in rows]

    def _flights(self, columns: str) -> DataFrame:
        return self._load(self._streams, columns).where(fn.col("kind") != events.CLOSING)

    def _load(self, streams: str, columns: str) -> DataFrame:
        # The schema is the projection: no other column leaves the server's answers.
        return self._spark.read.format("sbp").option("servers", self._servers).schema(columns).load(streams)


def by_month(flown: DataFrame) -> verify.Figures:
    """Counts and sums of events per carrier and month, and of the whole year."""
    rows = (
        flown.groupBy("carrier", "month")
        .agg(
            fn.count(fn.lit(1)).alias("events"),
            _count(_is_flight()).alias("flights"),
            _count(fn.col("kind") == events.DEPARTURE).alias("departures"),
            _count(fn.col("kind") == events.ARRIVAL).alias("arrivals"),
            _count(fn.col("kind") == events.CANCELLATION).alias("cancellations"),
            fn.coalesce(fn.sum("dep_delay"), fn.lit(0)).alias("departure delay"),
            fn.coalesce(fn.sum("arr_delay"), fn.lit(0)).alias("arrival delay"),
            fn.coalesce(fn.sum(fn.when(_is_flight(), fn.col("distance"))), fn.lit(0)).alias("distance"),
        )
        .collect()
    )
    figures: verify.Figures = {verify.over_year("events"): sum(row["events"] for row in rows)}
    for figure in verify.KNOWN:
        figures[verify.over_year(figure)] = sum(row[figure] for row in rows)
        figures |= {verify.of_month(figure, row["carrier"], row["month"]): row[figure] for row in rows}
    return figures


def _is_flight() -> Column:
    return fn.col("kind").isin(events.DEPARTURE, events.CANCELLATION)


def _count(condition: Column) -> Column:
    return fn.sum(fn.when(condition, 1).otherwise(0))


def _append_partials(servers: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker does with its rows; self-contained, because it travels to the worker by value."""
    stream, schema = PARTIALS, PARTIAL_SCHEMA

    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as arrow

        import sbp_native as sbp

        table = arrow.Table.from_batches(list(batches)) if (batches := list(batches)) else None
        if table is None or table.num_rows == 0:
            return
        sums = table.group_by("carrier").aggregate([("air_time", "count"), ("air_time", "sum")])
        columns = [sums["carrier"], sums["air_time_count"], sums["air_time_sum"]]
        partial = arrow.table(columns, names=schema.names).cast(schema).combine_chunks()
        with sbp.connect(servers) as client:
            ack = client.stream(stream).append(partial)
        yield arrow.record_batch({"first": [ack.base_offset], "last": [ack.last_offset]})

    return append
