"""``format("tank")`` through a real Spark session, from a scripted broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from sbp_native import tank
from sbp_native.testing import eventually
from spark.support import failure
from spark.tank_support import BrokerProcess, add, make, produce, sparse, wanted
from tank.broker import Partition, Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    Row = tuple[str, int, bytes]

pytestmark = pytest.mark.slow
WITHIN = 60


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
def broker() -> Iterator[Running]:
    with Running() as running:
        yield running


def reader(spark: SparkSession, address: str, **options: object) -> DataFrameReader:
    return spark.read.format("tank").option("broker", address).options(**options)


def rows(frame: DataFrame) -> Counter[Row]:
    return Counter((row.stream, row.offset, bytes(row.value)) for row in frame.collect())


def run(
    spark: SparkSession, address: str, checkpoint: str, topics: str, **options: Any
) -> tuple[Collected, StreamingQuery]:
    """Runs a query until all that is there has been read; again means: from its checkpoint."""
    sink = Collected()
    query = (
        spark.readStream.format("tank")
        .option("broker", address)
        .options(**{"startingOffsets": "earliest", **options})
        .load(topics)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WITHIN), "the query did not end"
    return sink, query


def test_it_is_found_without_a_register_call(spark: SparkSession, broker: Running) -> None:
    make(broker.address, "orders", 2)
    for partition in range(2):
        produce(broker.address, "orders", partition, 1, 101)
    frame = reader(spark, broker.address).load("orders")
    assert frame.schema.simpleString() == (
        "struct<stream:string,stream_id:bigint,offset:bigint,timestamp:timestamp,key:binary,value:binary,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert rows(frame) == Counter(wanted("orders", 0, 1, 101) + wanted("orders", 1, 1, 101))
    assert rows(reader(spark, broker.address, minPartitions=7).load("orders")) == rows(frame)
    assert frame.where("stream = 'orders/1' and offset >= 91").count() == 10
    few = reader(spark, broker.address).schema("offset bigint, value binary").load("orders/0")
    assert few.agg({"offset": "sum"}).first() == (5050,)


def test_filters_choose_what_is_read(spark: SparkSession, broker: Running) -> None:
    make(broker.address, "orders", 3)
    for partition in range(3):
        produce(broker.address, "orders", partition, 1, 31)
    pushed = reader(spark, broker.address, pushFilters="true")
    assert pushed.load("orders").where("stream_id = 2 and offset > 20").count() == 10
    assert pushed.load("orders").where("stream = 'orders/1'").count() == 30
    assert pushed.load("orders").where("timestamp > timestamp '2020-01-01'").count() == 90
    assert pushed.load("orders").where("stream_id > 2").count() == 0


def test_what_compaction_left(spark: SparkSession, broker: Running, checkpoint: str) -> None:
    make(broker.address, "t")
    add(broker, "t", sparse(1, 7))
    add(broker, "t", sparse(8, 20, 21))
    add(broker, "t", sparse(30, 31))
    broker.do(lambda: broker.partition(b"t", 0).compact(30))
    there = Counter(("t/0", number, b"%d" % number) for number in (1, 7, 8, 20, 21))
    assert rows(reader(spark, broker.address, maxRecordsPerPartition=4).load("t")) == there
    sink, query = run(spark, broker.address, checkpoint, "t", maxOffsetsPerTrigger=9)
    assert sink.all() == there
    assert query.lastProgress is not None
    assert json.loads(query.lastProgress.json)["sources"][0]["endOffset"]["o"] == {"t/0": 32}


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, broker: Running, checkpoint: str) -> None:
    make(broker.address, "orders", 2)
    produce(broker.address, "orders", 0, 1, 41)
    first, query = run(spark, broker.address, checkpoint, "orders")
    assert first.all() == Counter(wanted("orders", 0, 1, 41))
    end = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]  # type: ignore[union-attr]
    assert end == {"v": 1, "of": "tank", "o": {"orders/0": 41, "orders/1": 1}, "from": {"orders/0": 1, "orders/1": 1}}
    produce(broker.address, "orders", 0, 41, 51)
    produce(broker.address, "orders", 1, 1, 11)
    broker.do(lambda: broker.broker.topics[b"orders"].append(Partition()))
    produce(broker.address, "orders", 2, 1, 6)
    again, _ = run(spark, broker.address, checkpoint, "orders")
    new = wanted("orders", 0, 41, 51) + wanted("orders", 1, 1, 11) + wanted("orders", 2, 1, 6)
    assert again.all() == Counter(new)
    idle, _ = run(spark, broker.address, checkpoint, "orders")
    assert not idle.all()


def test_limits(spark: SparkSession, broker: Running, checkpoint: str) -> None:
    make(broker.address, "orders", 2)
    produce(broker.address, "orders", 0, 1, 61)
    produce(broker.address, "orders", 1, 1, 21)
    sink, _ = run(spark, broker.address, checkpoint, "orders", maxOffsetsPerTrigger=20)
    assert sink.all() == Counter(wanted("orders", 0, 1, 61) + wanted("orders", 1, 1, 21))
    assert [len(batch) for batch in sink.batches] == [20] * 4
    assert all({row[0] for row in batch} == {"orders/0", "orders/1"} for batch in sink.batches)


def test_losses(spark: SparkSession, broker: Running, tmp_path: Path) -> None:
    make(broker.address, "t")
    produce(broker.address, "t", 0, 1, 11)
    strict, lax = str(tmp_path / "strict"), str(tmp_path / "lax")
    for checkpoint in (strict, lax):
        run(spark, broker.address, checkpoint, "t")
    produce(broker.address, "t", 0, 11, 31)
    broker.do(lambda: broker.partition(b"t", 0).trim(21))
    told = failure(lambda: run(spark, broker.address, strict, "t"))
    assert "[SBP-9013] records of this query are not there: stream t/0 [11, 21), broker" in told
    sink, query = run(spark, broker.address, lax, "t", failOnDataLoss="false")
    assert sink.all() == Counter(wanted("t", 0, 21, 31))
    report = json.loads(query.lastProgress.json)["sources"][0]["latestOffset"]  # type: ignore[union-attr]
    assert (report["lost"], report["gaps"]) == ({"t/0": 10}, [["t/0", 11, 21]])
    gaps = reader(spark, broker.address, failOnDataLoss="false", onDataLoss="rows", startingOffsets='{"t": 5}').load(
        "t"
    )
    assert [(row.stream, row.stream_id, row.offset, row.gap_end) for row in gaps.where("gap_end > 0").collect()] == [
        ("t/0", 0, 5, 21)
    ]
    assert gaps.where("gap_end is null").count() == 10


def test_a_broker_that_is_killed_and_comes_back(spark: SparkSession, tmp_path: Path, checkpoint: str) -> None:
    """Under a query that goes on and a task that reads: everything once."""
    with BrokerProcess(tmp_path) as broker:
        make(broker.address, "t", 2)
        for partition in range(2):
            produce(broker.address, "t", partition, 1, 301)
        sink = Collected()
        query = (
            spark.readStream.format("tank")
            .option("broker", broker.address)
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=100, timeout="60s")
            .load("t")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            for kills in range(1, 4):
                eventually(lambda kills=kills: len(sink.batches) >= kills, timeout=WITHIN)
                broker.kill()
                broker.start()
            produce(broker.address, "t", 1, 301, 351)
            every = Counter(wanted("t", 0, 1, 301) + wanted("t", 1, 1, 351))
            eventually(lambda: sink.all().total() >= every.total() or query.exception() is not None, timeout=WITHIN)
            assert query.exception() is None
        finally:
            query.stop()
        assert sink.all() == every


def test_a_broker_that_stays_away_is_told(spark: SparkSession, tmp_path: Path, checkpoint: str) -> None:
    with BrokerProcess(tmp_path) as broker:
        make(broker.address, "t")
        produce(broker.address, "t", 0, 1, 11)
        run(spark, broker.address, checkpoint, "t", timeout="2s")
        broker.kill()
        told = failure(lambda: run(spark, broker.address, checkpoint, "t", timeout="2s"))
        assert "[SBP-9306]" in told
        assert "can be tried again" in told
        told = failure(lambda: reader(spark, broker.address, timeout="1s").load("t"))
        assert told.count("[SBP-9306] listing the topics") == 1


def test_a_sink_is_refused(spark: SparkSession, broker: Running, checkpoint: str) -> None:
    make(broker.address, "t")
    frame = spark.createDataFrame([(b"x",)], "value binary")
    line = '[SBP-9207] format("tank") only reads: write to streams with format("sbp")'
    told = failure(lambda: frame.write.format("tank").mode("append").option("broker", broker.address).save("t"))
    assert line in told
    told = failure(lambda: frame.write.format("tank").mode("append").option("servers", "a:1").save())
    assert line in told
    stream = spark.readStream.format("rate").load().selectExpr("cast(cast(value as string) as binary) value")

    def write() -> None:
        query = stream.writeStream.format("tank").option("checkpointLocation", checkpoint).start()
        query.processAllAvailable()

    assert line in failure(write)


def test_options_are_judged_by_spark_s_user(spark: SparkSession, broker: Running) -> None:
    make(broker.address, "orders")
    for options, line in (
        ({"servers": "a:1"}, "[SBP-9201] there is no option 'servers': it is called 'broker' here"),
        (
            {"startingTimestamp": "soon"},
            "[SBP-9203] option 'startingTimestamp' is 'soon'",
        ),
        ({"columns": "arrow"}, "[SBP-9203] option 'columns' is 'arrow'"),
    ):
        assert line in failure(lambda options=options: reader(spark, broker.address, **options).load("orders"))
    assert "did you mean 'orders'?" in failure(lambda: reader(spark, broker.address).load("ordres"))
    stream = spark.readStream.format("tank").option("broker", broker.address).option("endingOffsets", "latest")

    def start() -> None:
        query = stream.load("orders").writeStream.format("memory").queryName("refused").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    assert "[SBP-9202] option 'endingOffsets' is for a batch read, this is a streaming read" in failure(start)


def test_the_finder_imports_pyspark_alone() -> None:
    """It is imported in every session that uses any Python source: nothing of ours may be able to break it."""
    code = (
        "import sys, pyspark_tank; assert pyspark_tank.DefaultSource.name() == 'tank'; "
        "print([name for name in sys.modules if name.startswith('sbp_native')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"


def test_a_topic_of_a_server_of_ours_is_read_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    """A gateway's topics are what its clients see: the same rows by `tank` and by `sbp`."""
    import sbp_native as sbp

    with sbp.Server(durability="none", tank="127.0.0.1:0") as server:
        assert server.tank_address is not None
        with tank.connect(server.tank_address) as broker:
            broker.create_topic("orders", 2)
            broker.produce("orders", 0, [(b"k", b"a"), b"b"])
            broker.produce("orders", 1, [b"c"])
        theirs = reader(spark, server.tank_address).load("orders").select("stream", "key", "value")
        ours = spark.read.format("sbp").option("servers", server.address).load("orders/0,orders/1")
        ours = ours.select("stream", "key", "value")
        assert theirs.count() == 3
        assert theirs.exceptAll(ours).count() == ours.exceptAll(theirs).count() == 0
