"""What reading costs: beside a source that costs nothing, and beside Spark's source for Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from tests.bench_python.table import Row

from .counts import fill
from .session import Bench, Taken, checked, discard, tell

#: What makes Spark's Kafka source fast: larger polls, larger answers.
TUNED = {
    "kafka.max.poll.records": 20_000,
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.receive.buffer.bytes": 4 << 20,
    "minPartitions": 2,
}
#: Five columns of a flight, made from a number.
FLIGHT = (
    "element_at(array('UA', 'B6', 'EV', 'DL', 'AA', 'MQ', 'US', '9E'), int(id % 8) + 1) carrier",
    "element_at(array('EWR', 'JFK', 'LGA'), int(id % 3) + 1) origin",
    "cast(id % 97 - 20 as int) dep_delay",
    "cast(id % 113 - 30 as int) arr_delay",
    "cast(id % 4900 + 80 as int) distance",
)
#: How many times fewer rows go the way of tuples.
_FEWER = 20
FLIGHT_SCHEMA = "carrier string, origin string, dep_delay int, arr_delay int, distance int"


def _rates(runs: list[Taken]) -> list[float]:
    return [run.rate for run in runs]


def _noop(bench: Bench, rows: int, frame: Callable[[], DataFrame]) -> Callable[[], Taken]:
    return lambda: bench.timed(rows, lambda: discard(frame()))


def _fill_rows(bench: Bench, rows: int) -> DataFrame:
    """Two streams with half of the rows each; returns their rows."""
    half = bench.rows_file(rows // 2)
    for name in ("rows-0", "rows-1"):
        bench.write(half, createStreams="true", body="records").save(name)
    checked(bench.read().schema("offset bigint").load("rows-0,rows-1").selectExpr("count(*)"), rows // 2 * 2)
    return half


def read(bench: Bench) -> None:
    """All columns and the offset alone, over the prepared batch; the workers' CPU."""
    rows = bench.given.rows
    _fill_rows(bench, rows)

    def mine(schema: str | None = None) -> DataFrame:
        reader = bench.read()
        return (reader.schema(schema) if schema else reader).load("rows-0,rows-1")

    tasks = mine().rdd.getNumPartitions()

    def fake(schema: str | None = None) -> DataFrame:
        reader = bench.spark.read.format("fake").option("rows", rows).option("tasks", tasks)
        return (reader.schema(schema) if schema else reader).load()

    only = "offset bigint"

    def tuples() -> DataFrame:
        reader = bench.spark.read.format("sbp_tuples").option("servers", bench.given.address)
        return reader.option("rows", rows // _FEWER).option("partitions", 2).load("rows-0")

    ours, theirs, few, fewer, slow = bench.in_turns(
        _noop(bench, rows, mine),
        _noop(bench, rows, fake),
        _noop(bench, rows, partial(mine, only)),
        _noop(bench, rows, partial(fake, only)),
        _noop(bench, rows // _FEWER, tuples),
    )
    name = "one prepared batch"
    wanted = {"wanted": 0.75, "aim": 0.9, "of_ratio": True}
    tell(Row("read 100 B, all columns", "M rows/s", _rates(ours), _rates(theirs), name, **wanted))
    tell(Row('read with .schema("offset bigint")', "M rows/s", _rates(few), _rates(fewer), name, 12, 18))
    name_of_tuples = "the same as Python tuples, a twentieth of the rows"
    tell(Row("read 100 B, all columns", "M rows/s", _rates(ours), _rates(slow), name_of_tuples, 6, 8, of_ratio=True))
    workers = ([run.worker_us for run in ours], [run.worker_us for run in theirs])
    tell(Row("CPU in the worker, all columns", "us/row", *workers, name, 0.10, 0.06, less_is_better=True))
    workers = ([run.worker_us for run in few], [run.worker_us for run in fewer])
    tell(Row("CPU in the worker, offset alone", "us/row", *workers, name, less_is_better=True))
    whole = ([run.cpu_us for run in ours], [run.cpu_us for run in theirs])
    tell(Row("CPU of Spark, workers and server, all columns", "us/row", *whole, name, less_is_better=True))


def _grouped(frame: DataFrame) -> DataFrame:
    return frame.groupBy("carrier").agg(sql.avg("dep_delay"), sql.max("arr_delay"), sql.sum("distance"))


def _aggregated(bench: Bench, rows: int, frame: Callable[[], DataFrame]) -> Callable[[], Taken]:
    """Runs the aggregation, and raises unless it saw all the rows."""
    distance = sum(number % 4900 + 80 for number in range(rows // 2)) * 2

    def run() -> None:
        found = sum(row[3] for row in _grouped(frame()).collect())
        if found != distance:
            raise RuntimeError(f"the distances add up to {found}, {distance} was expected")

    return lambda: bench.timed(rows, run)


def _from_json(frame: DataFrame) -> DataFrame:
    parsed = sql.from_json(sql.col("value").cast("string"), FLIGHT_SCHEMA)
    return frame.select(parsed.alias("flight")).select("flight.*")


def _fill_flights(bench: Bench, rows: int) -> tuple[DataFrame, DataFrame]:
    """The same flights as typed columns and as JSON, in two streams each; returns both frames of one stream."""
    typed = bench.spark.range(0, rows // 2, 1, 2).selectExpr(*FLIGHT)
    json = typed.select(sql.to_json(sql.struct("*")).cast("binary").alias("value"))
    for part in (0, 1):
        bench.write(typed, createStreams="true", body="arrow").save(f"typed-{part}")
        bench.write(json, createStreams="true", body="records").save(f"json-{part}")
    return typed, json


def typed(bench: Bench) -> None:
    """Typed bodies over the same rows as JSON, both from the package's source."""
    rows = bench.given.rows // 2
    _fill_flights(bench, rows)
    ours, theirs = bench.in_turns(
        _aggregated(bench, rows, lambda: bench.read().schema(FLIGHT_SCHEMA).load("typed-0,typed-1")),
        _aggregated(bench, rows, lambda: _from_json(bench.read().schema("value binary").load("json-0,json-1"))),
    )
    name = "JSON values + from_json"
    tell(Row("typed columns, aggregation", "M rows/s", _rates(ours), _rates(theirs), name, 8, 11, of_ratio=True))


def spread(bench: Bench) -> None:
    """100,000 rows in 1,000 streams over the same number in one."""
    rows, streams = 100_000, 1_000
    value = bytes(range(100))
    names = [f"many/{number:04}" for number in range(streams)]
    asyncio.run(fill(bench.given.address, names, [value] * (rows // streams)))
    asyncio.run(fill(bench.given.address, ["one"], [value] * rows))
    many, one = bench.in_turns(
        _noop(bench, rows, lambda: bench.read().load(",".join(names))),
        _noop(bench, rows, lambda: bench.read().load("one")),
    )
    name = "in 1 stream"
    figures = (_rates(many), _rates(one), name, 0.7, 0.9)
    tell(Row("a query over 100,000 rows in 1,000 streams", "M rows/s", *figures, of_ratio=True))
    workers = ([run.worker_us for run in many], [run.worker_us for run in one])
    tell(Row("CPU in the workers and planners for it", "us/row", *workers, name, less_is_better=True))


def kafka_read(bench: Bench) -> None:
    """All columns and the offset alone, over Spark's Kafka source with defaults and tuned."""
    rows = bench.given.rows
    half = _fill_rows(bench, rows)
    with bench.topics("rows", partitions=2):
        for part in (0, 1):
            bench.fill_kafka(half.withColumn("partition", sql.lit(part)), "rows")
        topic = partial(bench.kafka, "rows", startingOffsets="earliest")
        streams = "rows-0,rows-1"
        roads = bench.in_turns(
            _noop(bench, rows, lambda: bench.read().load(streams)),
            _noop(bench, rows, lambda: bench.read(columns="kafka").load(streams)),
            _noop(bench, rows, lambda: bench.read(maxPartitions=2).load(streams)),
            _noop(bench, rows, topic),
            _noop(bench, rows, partial(topic, **TUNED)),
            _noop(bench, rows, lambda: bench.read().schema("offset bigint").load(streams)),
            _noop(bench, rows, lambda: topic().select("offset")),
        )
    rates = [_rates(runs) for runs in roads]
    mine, same_columns, two_tasks, defaults, tuned, few, theirs = rates
    tell(Row("read, all columns", "M rows/s", mine, defaults, "Kafka, defaults", 4, 5, of_ratio=True))
    tell(Row("read, all columns", "M rows/s", mine, tuned, "Kafka, tuned", 2.5, 3, of_ratio=True))
    for what, ours in (("with columns=kafka", same_columns), ("with maxPartitions=2", two_tasks)):
        tell(Row(f"the same {what}", "M rows/s", ours, tuned, "Kafka, tuned"))
    tell(Row("read, offset only", "M rows/s", few, theirs, "Kafka", 8, 15, of_ratio=True))
    cpu = [[run.cpu_us for run in runs] for runs in roads]
    what = "CPU of Spark, workers and server, all columns"
    tell(Row(what, "us/row", cpu[0], cpu[3], "Kafka, defaults", less_is_better=True))
    tell(Row(what, "us/row", cpu[0], cpu[4], "Kafka, tuned", less_is_better=True))


def kafka_typed(bench: Bench) -> None:
    """Five typed columns over JSON from Kafka."""
    rows = bench.given.rows // 2
    _, json = _fill_flights(bench, rows)
    with bench.topics("json", partitions=2):
        for part in (0, 1):
            bench.fill_kafka(json.withColumn("partition", sql.lit(part)), "json")
        topic = partial(bench.kafka, "json", startingOffsets="earliest")
        ours, defaults, tuned = bench.in_turns(
            _aggregated(bench, rows, lambda: bench.read().schema(FLIGHT_SCHEMA).load("typed-0,typed-1")),
            _aggregated(bench, rows, lambda: _from_json(topic())),
            _aggregated(bench, rows, lambda: _from_json(topic(**TUNED))),
        )
    what = "five typed columns, aggregation"
    name = "Kafka, JSON + from_json"
    tell(Row(what, "M rows/s", _rates(ours), _rates(defaults), name, 10, 18, of_ratio=True))
    tell(Row(what, "M rows/s", _rates(ours), _rates(tuned), f"{name}, tuned"))
