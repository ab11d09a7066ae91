"""``format("pravega")`` in a real Spark session, from a real server."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from pravega.control import scale, truncate
from pravega.writing import Writing, check, event
from sbp_native.testing import eventually
from spark.drivers import Driver
from spark.support import failure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from sbp_native.pravega import Pravega

pytestmark = pytest.mark.timeout(400)
WITHIN = 150.0


class Collected:
    """A sink that keeps the rows of every micro-batch in memory."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, bytes]] = []
        self.batches = 0

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        rows = batch.select("stream", "offset", "value").collect()
        self.rows += [(row.stream, row.offset, bytes(row.value)) for row in rows]
        self.batches += 1

    def contents(self) -> list[bytes]:
        return [content for _, _, content in self.rows]


def query(
    spark: SparkSession, source: Pravega, stream: str, sink: Collected, checkpoint: Path, **options: object
) -> StreamingQuery:
    """A query from the stream's beginning, or from its checkpoint, that goes on."""
    reader = spark.readStream.format("pravega").option("controller", source.address)
    frame = reader.options(startingOffsets="earliest", **options).load(stream)
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="0 seconds").start()


def test_a_batch_has_all_segments(spark: SparkSession, source: Pravega, stream: str) -> None:
    with source.writer(stream) as writer:
        writer.append_many(map(event, range(700)))
        scale(source, stream, [0, 0.5, 1])
        writer.append_many(map(event, range(700, 1_500)))
    frame = spark.read.format("pravega").option("controller", source.address).load(stream)
    rows = frame.select("stream", "stream_id", "offset", "value").collect()
    names = {row.stream: row.stream_id for row in rows}
    first, left, right = (f"{stream}/{name}" for name in ("0.#epoch.0", "1.#epoch.1", "2.#epoch.1"))
    assert names == {first: 0, left: 1 << 32 | 1, right: 1 << 32 | 2}
    # Segments are tasks here, and tasks are in the order of the segments.
    check((bytes(row.value) for row in rows), 1_500)
    for name in names:
        place = 0
        for row in (row for row in rows if row.stream == name):
            assert row.offset == place
            place += 8 + len(row.value)
    assert {bytes(row.value) for row in frame.where(f"stream = '{first}' and offset = 0").collect()} == {event(0)[1]}


def test_a_query_goes_on_while_the_stream_is_scaled(
    spark: SparkSession, source: Pravega, stream: str, tmp_path: Path
) -> None:
    sink, checkpoint = Collected(), tmp_path / "checkpoint"
    with Writing(source, stream, pause=0.005) as writing:
        running = query(spark, source, stream, sink, checkpoint, maxBytesPerTrigger=20_000)
        try:
            for cuts in ([0, 0.5, 1], [0, 0.3, 0.6, 1], [0, 1]):
                before = len(sink.rows)
                eventually(lambda before=before: len(sink.rows) > before or running.exception(), timeout=WITHIN)
                scale(source, stream, cuts)
        finally:
            running.stop()
    # From its checkpoint, with all that there is now.
    running = query(spark, source, stream, sink, checkpoint)
    try:
        eventually(lambda: len(sink.rows) >= writing.count or running.exception(), timeout=WITHIN)
        assert running.exception() is None
        progress = running.lastProgress
    finally:
        running.stop()
    check(sink.contents(), writing.count)
    assert {name.rpartition("/")[2] for name, _, _ in sink.rows} == {
        "0.#epoch.0", "1.#epoch.1", "2.#epoch.1", "3.#epoch.2", "4.#epoch.2", "5.#epoch.2", "6.#epoch.3",
    }  # fmt: skip
    assert progress is not None


@pytest.mark.timeout(600)
def test_a_driver_is_killed_while_the_stream_is_scaled(source: Pravega, stream: str, tmp_path: Path) -> None:
    """Again and again: ``format("sbp")`` has stored each event once."""
    job = {"controller": source.address, "stream": stream, "checkpoint": str(tmp_path / "checkpoint")}
    with sbp.Server(durability="none") as server, sbp.connect(server.address, timeout=20) as client:
        copy = client.create_stream("copy")
        with Writing(source, stream, pause=0.5) as writing:
            for kill in range(3):
                before = copy.positions().latest
                with Driver(tmp_path / f"driver-{kill}") as driver:
                    driver.start("copy_pravega", servers=server.address, target="copy", **job)
                    eventually(lambda before=before: copy.positions().latest >= before + 100, timeout=200)
                    if kill < 2:
                        scale(source, stream, [[0, 0.5, 1], [0, 1]][kill])
        with Driver(tmp_path / "last") as driver:
            driver.run("copy_pravega", servers=server.address, target="copy", all_there_is=True, **job)
        found = Counter(value for batch in copy.read(start="earliest", end="latest") for value in batch.values)
    assert found == Counter(event(number)[1] for number in range(writing.count))


def test_what_is_truncated_under_a_query(spark: SparkSession, source: Pravega, stream: str, tmp_path: Path) -> None:
    """Bytes that were not read are told; those that were are no loss."""
    sink, strict, lax = Collected(), tmp_path / "strict", tmp_path / "lax"
    with source.writer(stream) as writer:
        writer.append_many(map(event, range(100)))
        for checkpoint in (strict, lax):
            running = query(spark, source, stream, sink, checkpoint)
            try:
                running.processAllAvailable()
            finally:
                running.stop()
        length = [8 + len(event(number)[1]) for number in range(300)]
        writer.append_many(map(event, range(100, 300)))
    first, last = sum(length[:100]), sum(length[:200])
    truncate(source, stream, {0: last})

    def strictly() -> None:
        running = query(spark, source, stream, sink, strict)
        try:
            running.processAllAvailable()
        finally:
            running.stop()

    assert f"[SBP-9013] records of this query are not there: stream {stream}/0.#epoch.0 [{first}, {last})" in failure(
        strictly
    )
    sink = Collected()
    running = query(spark, source, stream, sink, lax, failOnDataLoss="false")
    try:
        running.processAllAvailable()
        assert json.loads(running.lastProgress.json)["sources"][0]["latestOffset"]["lost"] == {  # type: ignore[union-attr]
            f"{stream}/0.#epoch.0": last - first
        }
    finally:
        running.stop()
    assert sink.contents() == [event(number)[1] for number in range(200, 300)]
