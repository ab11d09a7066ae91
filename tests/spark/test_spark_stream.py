"""Streaming reads through Spark, from a real server."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from sbp_native.testing import eventually
from spark.support import descendants, failure
from spark.test_spark_positions import SECOND, append_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


pytestmark = pytest.mark.slow
WITHIN = 40
ERRORS = Path(__file__).parents[2] / "docs" / "spark" / "errors.md"


class Collected:
    """A sink that keeps the offsets of every micro-batch in memory."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, int]]] = []

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        self.batches.append(sorted((row.stream, row.offset) for row in batch.select("stream", "offset").collect()))

    def all(self) -> list[tuple[str, int]]:
        return sorted(row for batch in self.batches for row in batch)


@pytest.fixture
def run(spark: SparkSession, server: sbp.Server, checkpoint: str) -> Callable[..., tuple[Collected, StreamingQuery]]:
    """Runs a query until all that is there has been read; again means: from its checkpoint."""

    def start(streams: str, schema: str | None = None, **options: Any) -> tuple[Collected, StreamingQuery]:
        reader = spark.readStream.format("sbp").option("servers", server.address).options(**options)
        sink = Collected()
        query = (
            (reader.schema(schema) if schema else reader)
            .load(streams)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WITHIN), "the query did not end"
        return sink, query

    return start


def expected(name: str, start: int, end: int) -> list[tuple[str, int]]:
    return [(name, offset) for offset in range(start, end)]


def test_all_that_is_there_and_no_more(client: sbp.Client, run: Callable, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 30)
    sink, query = run(name, startingOffsets="earliest")
    assert sink.all() == expected(name, 0, 30)
    offset = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
    assert offset["o"] == {str(stream.id): 30}


def test_limited_batches(client: sbp.Client, run: Callable, name: str) -> None:
    names = [f"{name}/{part}" for part in "abc"]
    for number, each in enumerate(names):
        stream = client.create_stream(each)
        for tick in range(10 * (number + 1)):
            stream.append(b"x", timestamp=1_000_000 + tick)
    sink, _ = run(",".join(names), startingOffsets="earliest", maxOffsetsPerTrigger=25)
    assert sink.all() == [row for number, each in enumerate(names) for row in expected(each, 0, 10 * (number + 1))]
    assert all(len(batch) <= 25 for batch in sink.batches)
    assert len(sink.batches) >= 3


def test_limited_batches_from_a_time_on(client: sbp.Client, run: Callable, name: str) -> None:
    """Times that do not rise, a start inside a batch, a limit: every record from the first of that time on, once."""
    names = [f"{name}/{part}" for part in "ab"]
    times = {names[0]: [[5, 1, 9], [2, 8, 3], [4, 7, 0], [6]], names[1]: [[0, 1], [2, 6], [3, 9, 9, 1]]}
    streams = {each: client.create_stream(each) for each in names}
    for each, batches in times.items():
        for batch in batches:
            rows: list[dict[str, object]] = [{"value": b"x", "timestamp": SECOND + time} for time in batch]
            append_rows(streams[each], rows)
    firsts = {names[0]: 2, names[1]: 3}
    for each, first in firsts.items():
        flat = [time for batch in times[each] for time in batch]
        assert next(offset for offset, time in enumerate(flat) if time >= 6) == first, "inside a batch"
    options = {"startingTimestamp": SECOND + 6, "maxOffsetsPerTrigger": 4}
    sink, _ = run(",".join(names), **options)
    assert sink.all() == expected(names[0], 2, 10) + expected(names[1], 3, 8)
    assert all(len(batch) <= 4 for batch in sink.batches)
    assert len(sink.batches) >= 4
    # From its checkpoint it goes on behind them, whatever the times of the next ones are.
    for each in names:
        append_rows(streams[each], [{"value": b"y", "timestamp": SECOND + time} for time in (1, 20, 2)])
    again, _ = run(",".join(names), **options)
    assert again.all() == expected(names[0], 10, 13) + expected(names[1], 8, 11)
    assert all(len(batch) <= 4 for batch in again.batches)


def test_restart_from_the_checkpoint(client: sbp.Client, run: Callable, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    first, _ = run(name, startingOffsets="earliest")
    stream.append([b"y"] * 7)
    second, _ = run(name, startingOffsets="earliest")
    third, _ = run(name, startingOffsets="earliest")
    assert first.all() == expected(name, 0, 10)
    assert second.all() == expected(name, 10, 17)
    assert third.all() == []


def test_the_first_batch_is_repeated_from_where_it_began(
    client: sbp.Client, run: Callable, name: str, checkpoint: str
) -> None:
    """A crash before the first commit: the start was "latest", and latest has moved on."""
    stream = client.create_stream(name)
    stream.append([b"before"] * 5)
    first, _ = run(name, startingOffsets=json.dumps({name: 2}))
    assert first.all() == expected(name, 2, 5)
    for commit in Path(checkpoint, "commits").glob("*0*"):
        commit.unlink()
    stream.append([b"after"] * 5)
    again, _ = run(name, startingOffsets="latest")
    assert again.batches[0] == expected(name, 2, 5)
    assert again.all() == expected(name, 2, 10)


def test_a_stream_added_on_a_restart_is_read_from_its_beginning(client: sbp.Client, run: Callable, name: str) -> None:
    one, two = client.create_stream(f"{name}/a"), client.create_stream(f"{name}/b")
    one.append([b"x"] * 3)
    run(one.name, startingOffsets="earliest")
    two.append([b"x"] * 4)
    one.append(b"x")
    sink, _ = run(f"{one.name},{two.name}", startingOffsets="earliest")
    assert sink.all() == expected(one.name, 3, 4) + expected(two.name, 0, 4)


def test_a_projection(client: sbp.Client, run: Callable, name: str) -> None:
    client.create_stream(name).append([b"x"] * 3)
    sink, _ = run(name, schema="offset bigint, stream string", startingOffsets="earliest")
    assert sink.all() == expected(name, 0, 3)


def test_live(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, checkpoint: str) -> None:
    """From "latest", with the usual trigger: what is appended afterwards arrives, what was there before does not."""
    stream = client.create_stream(name)
    stream.append([b"old"] * 5)
    sink = Collected()
    query = (
        spark.readStream.format("sbp")
        .option("servers", server.address)
        .load(name)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
        for _ in range(3):
            stream.append([b"new"] * 2)
            query.processAllAvailable()
    finally:
        query.stop()
    assert sink.all() == expected(name, 5, 11)
    assert query.exception() is None


def test_a_stream_is_created_and_another_deleted_while_a_query_runs(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, checkpoint: str
) -> None:
    first = client.create_stream(f"{name}/a")
    first.append([b"x"] * 4)
    sink = Collected()
    query = (
        spark.readStream.format("sbp")
        .options(servers=server.address, streamsPattern=f"{name}/[a-z]", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
        client.create_stream(f"{name}/b").append([b"x"] * 3)
        client.create_stream(f"{name}/other").append([b"x"] * 3)
        query.processAllAvailable()
        client.delete_stream(first.name)
        again = client.create_stream(first.name)
        again.append([b"x"] * 2)
        client.stream(f"{name}/b").seal()
        client.stream(f"{name}/b").append(b"x")
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    assert sink.all() == sorted(expected(f"{name}/a", 0, 4) + expected(f"{name}/a", 0, 2) + expected(f"{name}/b", 0, 4))


def test_lost_records_fail_the_query_or_are_rows(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, run: Callable, name: str, checkpoint: str
) -> None:
    """The same checkpoint: first the query fails, then it is allowed to go on."""
    stream = client.create_stream(name)
    stream.append([b"x"] * 5)
    run(name, startingOffsets="earliest")
    stream.append([b"x"] * 5)
    stream.trim(8)
    line = failure(lambda: run(name, startingOffsets="earliest"))
    assert f"[SBP-9013] records of this query are not there: stream {name} ({stream.id}) [5, 8), servers" in line
    rows: list[tuple[int, bytes | None, int | None]] = []
    query = (
        spark.readStream.format("sbp")
        .options(servers=server.address, failOnDataLoss="false", onDataLoss="rows")
        .load(name)
        .writeStream.foreachBatch(
            lambda batch, _: rows.extend((row.offset, row.value, row.gap_end) for row in batch.collect())
        )
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WITHIN)
    assert sorted(rows) == [(5, None, 8), (8, b"x", None), (9, b"x", None)]


def test_bad_options(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, run: Callable) -> None:
    client.create_stream(name)
    reader = spark.readStream.format("sbp").option("servers", server.address)
    assert "did you mean 'maxOffsetsPerTrigger'?" in failure(lambda: reader.option("maxOffsetsTrigger", 5).load(name))
    line = failure(lambda: run(name, endingOffsets="latest"))
    assert "[SBP-9202] option 'endingOffsets' is for a batch read, this is a streaming read" in line


def test_records_that_are_gone_are_named(client: sbp.Client, run: Callable, name: str, checkpoint: str) -> None:
    """A checkpoint that is ahead of its stream, as when a directory was restored from an old copy."""
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    run(name, startingOffsets="earliest")
    for offsets in Path(checkpoint, "offsets").glob("[0-9]*"):
        offsets.write_text(offsets.read_text().replace(": 10}", ": 12}"))
    line = failure(lambda: run(name, startingOffsets="earliest"))
    assert f"[SBP-9013] records of this query are not there: stream {name} ({stream.id}) [10, 12)" in line


#: How Spark says that the process of a source has ended. Where it reads the end instead of an answer, its exception has
#: no words.
ENDED = re.compile(r"terminated with exception: (Connection reset|Broken pipe|) ?SQLSTATE")


def explanations(error: Exception) -> list[tuple[str, str]]:
    """Why, and what to do: the rows of the page of errors that list Spark's words for the end of a source."""
    match = ENDED.search(str(error))
    assert match, error
    words = ["terminated with exception", match[1] or "no words at all before `SQLSTATE`"]
    rows = [line.split("|")[1:4] for line in ERRORS.read_text().splitlines() if line.startswith("|")]
    return [(why, advice) for text, why, advice in rows if all(word in text for word in words)]


@pytest.mark.parametrize("amid_an_answer", [False, True])
def test_the_process_of_a_source_is_killed(
    spark: SparkSession, name: str, checkpoint: str, amid_an_answer: bool
) -> None:
    """Spark's own words, which the page of errors explains, and what it says to do: the next start goes on."""
    with ExitStack() as stack:
        proxy = stack.enter_context(sbp.Proxy())
        server = stack.enter_context(sbp.Server(durability="none", advertise=proxy.address))
        proxy.target = server.listening
        stream = stack.enter_context(sbp.connect(proxy.address)).create_stream(name)
        stream.append([b"x"] * 10)
        sink = Collected()

        def start() -> StreamingQuery:
            reader = spark.readStream.format("sbp").options(servers=proxy.address, startingOffsets="earliest")
            return reader.load(name).writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()

        query = start()
        eventually(lambda: sink.all() == expected(name, 0, 10), timeout=WITHIN)
        sources = [one for one in descendants(os.getpid()) if "python_streaming_source_runner" in one.command]
        assert sources
        with proxy.hold("answer FETCH") if amid_an_answer else nullcontext() as held:
            if held is not None:
                # The process asks where the stream ends, for Spark, which waits to be told. All rows are here: nobody
                # else fetches. The answer stays held while the process is killed: told the end, Spark would write its
                # next question to a process that is gone.
                held.wait(WITHIN)
            for source in sources:
                os.kill(source.pid, signal.SIGKILL)
            with pytest.raises(Exception, match=ENDED) as told:
                query.awaitTermination(WITHIN)
        assert not amid_an_answer or ": SQLSTATE" in str(told.value).replace("  ", " ")
        assert [
            ("a streaming read" in why, "start the query again" in advice) for why, advice in explanations(told.value)
        ] == [(True, True)]
        stream.append([b"x"] * 10)
        query = start()
        query.processAllAvailable()
        query.stop()
        assert sink.all() == expected(name, 0, 20)
