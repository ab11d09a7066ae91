"""Servers that hold a query's streams are killed, and others take over: every row is there, once.

The streams have three copies, of which two acknowledge, on range servers in processes of their own.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from clusters import Cluster, How, Pace
from sbp_native.testing import eventually
from spark import faults, gates
from spark.drivers import Driver
from spark.support import failure, forget_last_commit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COPIES = {"replicas": 3, "acks": 2}
#: A stopped server is found out by its silence: that takes a minute for a query, which long tests have.
HOWS: list[How] = ["killed", "stopped"] if os.environ.get("SBP_THOROUGH") else ["killed"]

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[sbp.Client]:
    with sbp.connect(cluster.address, timeout=60) as client:
        yield client


def fill(stream: sbp.Stream, first: int, end: int) -> None:
    for start in range(first, end, 100):
        stream.append([b"row %d" % number for number in range(start, min(start + 100, end))])


def expect(client: sbp.Client, name: str, rows: int) -> None:
    """Each row that was appended is in the stream, once."""
    found, wanted = faults.held(client, name), Counter(faults.numbered(rows))
    assert not wanted - found, f"{(wanted - found).total()} rows are missing"
    assert not found - wanted, f"{(found - wanted).total()} rows too many"


def marks_of(client: sbp.Client) -> sbp.Stream:
    """The stream in which the only sink notes what it has written, when it has written something."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = [info.name for info in client.list_streams() if info.name.startswith("_sbp/sinks/")]
        return len(found) == 1

    eventually(is_there, timeout=90)
    return client.stream(found[0])


def reading(spark: SparkSession, cluster: Cluster, name: str, **options: object) -> DataFrame:
    made = spark.readStream.format("sbp").options(servers=cluster.address, startingOffsets="earliest", **options)
    return made.load(name).select("value")


@pytest.mark.parametrize("how", HOWS)
def test_the_primary_is_lost_between_the_plan_and_its_tasks(
    spark: SparkSession, cluster: Cluster, client: sbp.Client, how: How
) -> None:
    stream = client.create_stream("orders", **COPIES)
    fill(stream, 0, 1_000)
    read = spark.read.format("sbp").options(servers=cluster.address, minPartitions=4)
    frame = read.load("orders").select("offset", "value")
    # It is planned here, for all actions.
    assert frame.count() == 1_000
    fill(stream, 1_000, 1_100)
    number = cluster.primary(stream)
    cluster.away(number, how)
    rows = [(row.offset, bytes(row.value)) for row in frame.collect()]
    assert sorted(rows) == list(enumerate(faults.numbered(1_000)))
    cluster.back(number)
    assert read.load("orders").count() == 1_100


def test_a_target_is_made_with_copies_and_so_are_the_marks(
    spark: SparkSession, cluster: Cluster, client: sbp.Client
) -> None:
    """Asked for where the target is made; without being asked for, as many as the target has."""
    frame = spark.range(10, numPartitions=1).selectExpr("concat('row ', id) value")

    def write(target: str, **options: object) -> None:
        to = frame.write.format("sbp").mode("append").option("servers", cluster.address)
        to.options(txnAppId=target, txnVersion=1, **options).save(target)

    def copies(name: str) -> tuple[int, int]:
        info = client.describe_stream(name)
        return info.replicas, info.acks

    write("made", createStreams=True, replicas=3, acks=2)
    assert copies("made") == copies(marks_of(client).name) == (3, 2)
    client.delete_stream(marks_of(client).name)
    client.create_stream("there", **COPIES)
    write("there")
    assert copies(marks_of(client).name) == (3, 2)
    client.delete_stream(marks_of(client).name)
    write("plain", createStreams=True)
    assert copies("plain") == copies(marks_of(client).name) == (1, 1)
    line = failure(lambda: write("more", createStreams=True, replicas=7))
    assert "[SBP-1502] creating stream more: 7 replicas of which 4 acknowledge need at least 4" in line


@contextmanager
def growing(cluster: Cluster, name: str, pace: Pace) -> Iterator[None]:
    """A writer that appends numbered rows until the block is left."""
    over = threading.Event()

    def write() -> None:
        number = 0
        with sbp.connect(cluster.address, timeout=60) as own, own.stream(name).writer() as writer:
            while not over.wait(0.02):
                for _ in range(10):
                    writer.append(b"row %d" % number)
                    number += 1
                writer.flush()
                pace.note(10)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            over.set()
        writing.result(60)


@pytest.mark.parametrize("how", HOWS)
def test_a_query_goes_on_through_takeovers(
    spark: SparkSession, cluster: Cluster, client: sbp.Client, checkpoint: str, how: How
) -> None:
    """Of what it reads and of what it writes, while the streams grow; and from its checkpoint, after one more."""
    source = client.create_stream("source", **COPIES)
    target = client.create_stream("target", **COPIES)
    frame = reading(spark, cluster, "source", maxOffsetsPerTrigger=500, minPartitions=2)
    to = frame.writeStream.format("sbp").options(servers=cluster.address, checkpointLocation=checkpoint)
    pace = Pace()
    with growing(cluster, "source", pace):
        query = to.start("target")
        try:
            eventually(lambda: target.positions().latest > 0, timeout=90)
            for stream in (source, target, source, marks_of(client)):
                number = cluster.primary(stream)
                cluster.away(number, how)
                pace.goes_on(100)
                reached = source.positions().latest
                # What was appended without the server is copied without it.
                eventually(lambda reached=reached: target.positions().latest >= reached, timeout=90)
                assert query.exception() is None
                cluster.back(number)
        finally:
            query.stop()
        number = cluster.primary(marks_of(client))
        cluster.away(number, how)
        pace.goes_on(100)
        cluster.back(number)
    assert marks_of(client).describe().replicas == 3
    assert to.trigger(availableNow=True).start("target").awaitTermination(120)
    print(f"{how}: {pace.count} rows, which stood still for {pace.longest:.2f} s at most")
    expect(client, "source", pace.count)
    expect(client, "target", pace.count)


@pytest.mark.parametrize("how", HOWS)
def test_primaries_are_lost_between_write_and_commit(
    spark: SparkSession, cluster: Cluster, client: sbp.Client, checkpoint: str, how: How
) -> None:
    """That of the target, and that of the stream with the marks; the mark of the second batch comes after both."""
    source, target = client.create_stream("source", **COPIES), client.create_stream("target", **COPIES)
    fill(source, 0, 900)
    spark.dataSource.register(gates.GatedDataSource)
    frame = reading(spark, cluster, "source", maxOffsetsPerTrigger=300, minPartitions=2)
    to = frame.writeStream.format("gated").options(servers=cluster.address, checkpointLocation=checkpoint)
    gate = gates.of(checkpoint)
    query = to.trigger(availableNow=True).start("target")
    try:
        gate.open("batch-0")
        gate.wait("batch-1")
        assert target.positions().latest == 600
        lost = {cluster.primary(target)}
        cluster.away(*lost, how)
        # With one server less everything goes on, with two less not.
        # A plain append to a stopped server is in doubt; a writer's goes on where the stream is.
        with target.writer() as writer:
            writer.append(b"row 900")
        gate.open("batch-1")
        gate.wait("batch-2")
        for number in lost:
            cluster.back(number)
        number = cluster.primary(marks_of(client))
        cluster.away(number, how)
        gate.open("batch-2")
        assert query.awaitTermination(120)
    finally:
        query.stop()
    expect(client, "target", 901)
    # The last batch comes again, as after a crash in front of Spark's own commit.
    forget_last_commit(checkpoint)
    cluster.back(number)
    cluster.away(cluster.primary(target), how)
    assert to.trigger(availableNow=True).start("target").awaitTermination(120)
    expect(client, "target", 901)
    marks = [record.offset for batch in marks_of(client).read() for record in batch]
    assert marks == [0, 1, 2]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_task_is_repeated_on_the_server_that_took_over(
    cluster: Cluster, client: sbp.Client, checkpoint: str, tmp_path: Path, delivery: str
) -> None:
    """What the first attempt stored on one server, the second one sends to another, which knows it."""
    source, target = client.create_stream("source", **COPIES), client.create_stream("target", **COPIES)
    fill(source, 0, 1_000)
    with Driver(tmp_path / "driver") as driver:
        driver.start(
            "copy",
            servers=cluster.address,
            source="source",
            target="target",
            checkpoint=checkpoint,
            options={"delivery": delivery},
            sink="failing",
        )
        gate = gates.of(checkpoint)
        for task in ("task-0", "task-1"):
            gate.wait(task)
        assert target.positions().latest == 1_000
        cluster.away(cluster.primary(target), "killed")
        for task in ("task-0", "task-1"):
            gate.open(task)
        driver.answer()
    if delivery == "exactly-once":
        expect(client, "target", 1_000)
    else:
        assert faults.held(client, "target").total() == 2_000, "the fault did not happen"
