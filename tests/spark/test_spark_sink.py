"""Streaming writes through Spark, to a real server: exactly once, at least once, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    import sbp_native as sbp


def values(client: sbp.Client, name: str) -> list[bytes]:
    return [bytes(record.value) for batch in client.stream(name).read() for record in batch.records()]


def fill(client: sbp.Client, name: str, first: int, count: int) -> None:
    client.create_stream(name, exist_ok=True).append([b"%d" % n for n in range(first, first + count)])


@pytest.fixture
def source(spark: SparkSession, server: sbp.Server) -> Callable[..., DataFrame]:
    def reader(names: str, **options: object) -> DataFrame:
        made = spark.readStream.format("sbp").option("servers", server.address)
        return made.option("startingOffsets", "earliest").options(**options).load(names)

    return reader


@pytest.fixture
def sink(server: sbp.Server, checkpoint: str) -> Callable[..., DataStreamWriter]:
    def writer(frame: DataFrame, **options: object) -> DataStreamWriter:
        made = frame.writeStream.format("sbp").option("servers", server.address).options(**options)
        return made.option("checkpointLocation", checkpoint).trigger(availableNow=True)

    return writer


def run(writer: DataStreamWriter, name: str) -> None:
    assert writer.start(name).awaitTermination(120)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once", None])
def test_every_row_arrives_once(
    client: sbp.Client, source: Callable, sink: Callable, name: str, delivery: str | None
) -> None:
    fill(client, f"{name}/in", 0, 3_000)
    client.create_stream(f"{name}/out")
    options = {"delivery": delivery} if delivery else {}
    for first in (0, 3_000):
        frame = source(f"{name}/in", maxOffsetsPerTrigger=1_000).select("key", "value")
        run(sink(frame, **options), f"{name}/out")
        assert Counter(values(client, f"{name}/out")) == Counter(b"%d" % n for n in range(first + 3_000))
        fill(client, f"{name}/in", first + 3_000, 3_000)


def test_a_commit_that_spark_forgot_is_not_written_again(
    client: sbp.Client, source: Callable, sink: Callable, name: str, checkpoint: str
) -> None:
    fill(client, f"{name}/in", 0, 3_000)
    client.create_stream(f"{name}/out")
    start = lambda: run(sink(source(f"{name}/in", maxOffsetsPerTrigger=1_000)), f"{name}/out")  # noqa: E731
    start()
    forget_last_commit(checkpoint)
    start()
    assert Counter(values(client, f"{name}/out")) == Counter(b"%d" % n for n in range(3_000))


def forget_last_commit(checkpoint: str) -> None:
    """Makes Spark repeat the last batch: as if it had crashed between the sink's commit and its own."""
    from pathlib import Path

    commits = sorted(
        (path for path in (Path(checkpoint) / "commits").iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    commits[-1].unlink()
