"""Batch reads between two times: the rows are the records whose own times lie between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from python.scripted_peer import APPEND, ScriptedPeer, restamp
from spark.support import failure
from spark.test_spark_positions import SECOND, append_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrameReader, SparkSession


@pytest.mark.parametrize("columns", ["records", "kafka"])
def test_rows_are_those_of_the_window(
    read: Callable[..., DataFrameReader], client: sbp.Client, name: str, columns: str
) -> None:
    """Whatever the order of the times, within batches and over them."""
    stream = client.create_stream(name)
    times = [[5, 1, 9], [2, 8], [3, 4, 7], [0, 6]]
    first = 0
    for batch in times:
        rows = [{"value": b"%d" % (first + row), "timestamp": SECOND + time} for row, time in enumerate(batch)]
        append_rows(stream, rows)
        first += len(batch)
    flat = [time for batch in times for time in batch]
    for start, end in ((3, 7), (0, 10), (5, 5), (9, 10)):
        frame = read(columns=columns, startingTimestamp=SECOND + start, endingTimestamp=SECOND + end).load(name)
        wanted = [offset for offset, time in enumerate(flat) if start <= time < end]
        assert sorted(row.offset for row in frame.select("offset").collect()) == wanted
        assert frame.count() == len(wanted)


@pytest.mark.parametrize("columns", ["records", "kafka"])
@pytest.mark.parametrize("far", [2**63 - 1, 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_that_spark_cannot_show_is_named(
    spark: SparkSession, tmp_path: Path, name: str, columns: str, far: int
) -> None:
    """In a batch that no client of ours writes; the row is named in a batch read and in a query."""
    with ScriptedPeer() as peer, sbp.Server(advertise=peer.address, durability="none") as behind:
        peer.upstream = behind.listening
        with sbp.connect(peer.address, timeout=20) as client:
            stream = client.create_stream(name)
            stream.append([b"0", b"1", b"2"])
            peer.once(APPEND, restamp(SECOND, far))
            stream.append([b"3", b"4"], timestamp=SECOND)
            stream.append(b"5")
        options = {"servers": behind.listening, "columns": columns, "startingOffsets": "earliest"}
        micros = max(min(far * 1000, 2**63 - 1), -(2**63))
        told = f"the record at offset 3 of stream {name} ({stream.id}) has the time {micros} microseconds"
        frame = spark.read.format("sbp").options(**options).load(name)
        line = failure(frame.collect)
        assert told in line
        assert "not in the years 1 to 9999: not retriable, leave out the column 'timestamp'" in line
        values = spark.read.format("sbp").options(**options).schema("value binary").load(name)
        assert sorted(bytes(row.value) for row in values.collect()) == [b"%d" % n for n in range(6)]
        query = (
            spark.readStream.format("sbp")
            .options(**options)
            .load(name)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert told in failure(lambda: query.awaitTermination(40))
