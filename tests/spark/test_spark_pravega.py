"""``format("pravega")`` through a real Spark session, from a scripted controller and store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from pravega.controller import Controller
from sbp_native import pravega
from sbp_native.testing import eventually
from spark.drivers import Driver
from spark.pravega_support import content, place, put, wanted
from spark.support import failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    Row = tuple[str, int, bytes]

pytestmark = pytest.mark.slow
WITHIN = 150
S0, S1 = "shop/orders/0.#epoch.0", "shop/orders/1.#epoch.0"
LEFT, RIGHT = "shop/orders/2.#epoch.1", "shop/orders/3.#epoch.1"


class Collected:
    """A sink that keeps the rows of every micro-batch in memory."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        rows = batch.select("stream", "offset", "value").collect()
        self.batches.append([(row.stream, row.offset, bytes(row.value)) for row in rows])

    def all(self) -> Counter[Row]:
        return Counter(row for batch in self.batches for row in batch)


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A controller with a stream of two segments."""
    with Controller() as running:
        running.create("shop/orders", 2)
        yield running


def reader(spark: SparkSession, controller: Controller, **options: object) -> DataFrameReader:
    return spark.read.format("pravega").option("controller", controller.address).options(**options)


def rows(frame: DataFrame) -> Counter[Row]:
    return Counter((row.stream, row.offset, bytes(row.value)) for row in frame.collect())


def run(
    spark: SparkSession, controller: Controller, checkpoint: str, **options: Any
) -> tuple[Collected, StreamingQuery]:
    """Runs a query until all that is there has been read; again means: from its checkpoint."""
    sink = Collected()
    query = (
        spark.readStream.format("pravega")
        .option("controller", controller.address)
        .options(**{"startingOffsets": "earliest", **options})
        .load("shop/orders")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WITHIN), "the query did not end"
    return sink, query


def test_it_is_found_without_a_register_call(spark: SparkSession, controller: Controller) -> None:
    put(controller.store, S0, 0, 100)
    put(controller.store, S1, 0, 50)
    frame = reader(spark, controller).load("shop/orders")
    assert frame.schema.simpleString() == (
        "struct<stream:string,stream_id:bigint,offset:bigint,timestamp:timestamp,key:binary,value:binary,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert frame.rdd.getNumPartitions() == 2
    assert rows(frame) == Counter(wanted(S0, 0, 100) + wanted(S1, 0, 50))
    assert frame.where(f"stream = '{S1}' and offset >= {place(S1, 41)}").count() == 9
    few = reader(spark, controller).schema("value binary").load(S1)
    assert Counter(bytes(row.value) for row in few.collect()) == Counter(content(S1, n) for n in range(50))


def test_a_query_goes_on_over_a_scaling(spark: SparkSession, controller: Controller, checkpoint: str) -> None:
    put(controller.store, S0, 0, 40)
    first, query = run(spark, controller, checkpoint)
    assert first.all() == Counter(wanted(S0, 0, 40))
    end = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]  # type: ignore[union-attr]
    assert end == {"v": 1, "of": "pravega", "o": {S0: place(S0, 40), S1: 0}, "from": {S0: 0, S1: 0}}
    put(controller.store, S1, 0, 10)
    controller.scale("shop/orders", [(0, 0.25), (0.25, 1)])
    put(controller.store, LEFT, 0, 5)
    put(controller.store, RIGHT, 0, 7)
    again, query = run(spark, controller, checkpoint)
    assert again.all() == Counter(wanted(S1, 0, 10) + wanted(LEFT, 0, 5) + wanted(RIGHT, 0, 7))
    streams = [{row[0] for row in batch} for batch in again.batches]
    # `LEFT` has keys of the first segment alone, which had been read.
    assert streams[0] == {S1, LEFT}
    assert {RIGHT} in streams[1:]
    end = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]  # type: ignore[union-attr]
    assert end["gone"] == [S0, S1]
    idle, _ = run(spark, controller, checkpoint)
    assert not idle.all()


def test_limits(spark: SparkSession, controller: Controller, checkpoint: str) -> None:
    put(controller.store, S0, 0, 60)
    put(controller.store, S1, 0, 20)
    sink, _ = run(spark, controller, checkpoint, maxBytesPerTrigger=800)
    assert sink.all() == Counter(wanted(S0, 0, 60) + wanted(S1, 0, 20))
    assert len(sink.batches) > 2
    assert all(sum(8 + len(row[2]) for row in batch) <= 800 for batch in sink.batches)


def test_losses(spark: SparkSession, controller: Controller, tmp_path: Path) -> None:
    put(controller.store, S0, 0, 10)
    strict, lax = str(tmp_path / "strict"), str(tmp_path / "lax")
    for checkpoint in (strict, lax):
        run(spark, controller, checkpoint)
    put(controller.store, S0, 10, 30)
    first, last = place(S0, 10), place(S0, 20)
    controller.truncate("shop/orders", {0: last, 1: 0})
    told = failure(lambda: run(spark, controller, strict))
    assert f"[SBP-9013] records of this query are not there: stream {S0} [{first}, {last}), controller" in told
    sink, query = run(spark, controller, lax, failOnDataLoss="false")
    assert sink.all() == Counter(wanted(S0, 20, 30))
    report = json.loads(query.lastProgress.json)["sources"][0]["latestOffset"]  # type: ignore[union-attr]
    assert (report["lost"], report["gaps"]) == ({S0: last - first}, [[S0, first, last]])
    starting = json.dumps({S0: first, S1: -2})
    gaps = reader(spark, controller, failOnDataLoss="false", onDataLoss="rows", startingOffsets=starting)
    frame = gaps.load("shop/orders")
    told_rows = frame.where("gap_end > 0").collect()
    assert [(row.stream, row.stream_id, row.offset, row.gap_end) for row in told_rows] == [(S0, 0, first, last)]
    assert frame.where("gap_end is null").count() == 10


def test_connections_that_are_lost_under_a_query(spark: SparkSession, controller: Controller, checkpoint: str) -> None:
    """And a stream that is scaled under it: everything once, in the order of the segments."""
    put(controller.store, S0, 0, 300)
    put(controller.store, S1, 0, 300)
    sink = Collected()
    query = (
        spark.readStream.format("pravega")
        .option("controller", controller.address)
        .options(startingOffsets="earliest", maxBytesPerTrigger=3000, timeout="60s")
        .load("shop/orders")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        for lost in range(1, 4):
            eventually(lambda lost=lost: len(sink.batches) >= lost, timeout=WITHIN)
            controller.store.hang_up()
        controller.scale("shop/orders", [(0, 1)])
        put(controller.store, LEFT, 0, 50)
        every = Counter(wanted(S0, 0, 300) + wanted(S1, 0, 300) + wanted(LEFT, 0, 50))
        eventually(lambda: sink.all().total() >= every.total() or query.exception() is not None, timeout=WITHIN)
        assert query.exception() is None
    finally:
        query.stop()
    assert sink.all() == every
    order = [row[0] for batch in sink.batches for row in batch]
    assert order.index(LEFT) > max(place for place, stream in enumerate(order) if stream != LEFT)


@pytest.mark.timeout(500)
def test_a_driver_that_is_killed_leaves_each_event_once(controller: Controller, tmp_path: Path) -> None:
    """Amid its micro-batches, again and again, with a scaling between: ``format("sbp")`` has stored all of it once."""
    put(controller.store, S0, 0, 400)
    put(controller.store, S1, 0, 400)
    job = {"controller": controller.address, "stream": "shop/orders", "checkpoint": str(tmp_path / "checkpoint")}
    with sbp.Server(durability="none") as server, sbp.connect(server.address, timeout=20) as client:
        copy = client.create_stream("copy")

        def stored() -> int:
            return copy.positions().latest

        for kill in range(3):
            before = stored()
            with Driver(tmp_path / f"driver-{kill}") as driver:
                driver.start("copy_pravega", servers=server.address, target="copy", **job)
                eventually(lambda before=before: stored() >= before + 40, timeout=200)
            if kill == 1:
                controller.scale("shop/orders", [(0, 1)])
                put(controller.store, LEFT, 0, 100)
        with Driver(tmp_path / "last") as driver:
            driver.run("copy_pravega", servers=server.address, target="copy", all_there_is=True, **job)
        found = Counter(value for batch in copy.read(start="earliest", end="latest") for value in batch.values)
    every = [(S0, 400), (S1, 400), (LEFT, 100)]
    assert found == Counter(content(segment, n) for segment, count in every for n in range(count))


def test_a_sink_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"x",)], "value binary")
    line = '[SBP-9207] format("pravega") only reads: write to streams with format("sbp")'
    assert line in failure(lambda: frame.write.format("pravega").mode("append").save("a/b"))


def test_mistakes_are_told_at_load(spark: SparkSession, controller: Controller) -> None:
    for options, line in (
        ({"servers": "a:1"}, "[SBP-9201] there is no option 'servers': it is called 'controller' here"),
        ({"columns": "arrow"}, "[SBP-9203] option 'columns' is 'arrow'"),
    ):
        assert line in failure(
            lambda options=options: reader(spark, controller, **options).load("shop/orders")  # type: ignore[misc]
        )
    assert "did you mean 'shop/orders'?" in failure(lambda: reader(spark, controller).load("shop/ordres"))


def test_the_finder_imports_pyspark_alone() -> None:
    """It is imported in every session that uses any Python source: nothing of ours may be able to break it."""
    code = (
        "import sys, pyspark_pravega; assert pyspark_pravega.DefaultSource.name() == 'pravega'; "
        "print([name for name in sys.modules if name.startswith('sbp_native')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"


def test_a_stream_that_our_own_server_serves(spark: SparkSession) -> None:
    values = {b"event-%d" % number for number in range(2_000)}
    with sbp.Server(durability="none", pravega="127.0.0.1:0") as server:
        assert server.pravega_address is not None
        with pravega.connect(server.pravega_address, timeout=20) as client:
            client.create_scope("shop")
            client.create_stream("shop/orders", 2)
            with client.writer("shop/orders") as writer:
                writer.append_many((str(number), value) for number, value in enumerate(sorted(values)))
        frame = spark.read.format("pravega").option("controller", server.pravega_address).load("shop/orders")
        rows = frame.select("stream", "value").collect()
        assert {row.stream for row in rows} == {S0, S1}
        assert Counter(bytes(row.value) for row in rows) == Counter(values)
