"""Streams that are given columns while queries read and write them: queries go on with the columns they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sbp_native.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    import sbp_native as sbp

UPDATES = 10


def schema(columns: int) -> pa.Schema:
    return pa.schema([pa.field("n", pa.int64()), *(pa.field(f"c{added}", pa.string()) for added in range(columns))])


def table(n: int, columns: int) -> pa.Table:
    return pa.table({"n": [n], **{f"c{added}": [f"{n}-{added}"] for added in range(columns)}}, schema=schema(columns))


def test_queries_go_on_during_ten_updates(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, tmp_path: Path
) -> None:
    one, two = (client.create_stream(f"{name}-{part}", schema=schema(1)) for part in ("one", "two"))
    target = client.create_stream(f"{name}-target", schema=schema(1))
    found: list[tuple[Any, ...]] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend((row.n, row.c0, row._stream, row._offset) for row in batch.collect())

    rows = (
        spark.readStream.format("sbp")
        .option("servers", server.address)
        .option("startingOffsets", "earliest")
        .load(f"{one.name},{two.name}")
    )
    reading = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "read")).start()
    writing = (
        rows.select("n", "c0")
        .writeStream.format("sbp")
        .option("servers", server.address)
        .option("checkpointLocation", str(tmp_path / "write"))
        .start(target.name)
    )
    wanted = []
    try:
        for update in range(1, UPDATES + 1):
            # The second stream and the target follow the first; what comes is of the old columns and of the new ones.
            one.update(schema=schema(1 + update))
            for number, columns in ((0, 1 + update), (1, update)):
                ack = one.append(table(10 * update + number, columns))
                wanted.append((10 * update + number, f"{10 * update + number}-0", one.name, ack.base_offset))
            ack = two.append(table(10 * update + 2, update))
            wanted.append((10 * update + 2, f"{10 * update + 2}-0", two.name, ack.base_offset))
            eventually(lambda: len(found) >= len(wanted) or not reading.isActive, timeout=60)
            two.update(schema=schema(1 + update))
            target.update(schema=schema(1 + update))
        eventually(lambda: target.positions().latest >= len(wanted) or not writing.isActive, timeout=60)
    finally:
        failed = [query.exception() for query in (reading, writing)]
        for query in (reading, writing):
            query.stop()
    assert failed == [None, None], [getattr(each, "_jvm_cause", each) for each in failed]

    assert sorted(found) == sorted(wanted)
    written = [row for batch in target.read() for row in batch.to_arrow().to_pylist()]
    assert sorted((row["n"], row["c0"]) for row in written) == sorted(row[:2] for row in wanted)


def test_a_frame_goes_on_after_an_update(read: Callable[..., DataFrameReader], client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, schema=schema(1))
    stream.append(table(0, 1))
    frame = read().load(name)
    assert frame.count() == 1
    stream.update(schema=schema(2))
    stream.append(table(1, 2))
    assert sorted(read().schema(frame.schema).load(name).select("n", "c0").collect()) == [(0, "0-0"), (1, "1-0")]
    assert sorted(row.c1 or "" for row in read().load(name).collect()) == ["", "1-1"]


def test_a_worker_writes_columns_that_were_added_since(
    spark: SparkSession, write: Callable[..., Any], client: sbp.Client, name: str
) -> None:
    """Workers keep their clients from one write to the next."""
    stream = client.create_stream(name, schema=schema(1))
    for columns in range(1, 4):
        stream.update(schema=schema(columns))
        frame = spark.createDataFrame(table(columns, columns).to_pandas()).coalesce(1)
        write(frame).save(name)
    rows = [row for batch in stream.read() for row in batch.to_arrow().to_pylist()]
    assert [row["c2"] for row in rows] == [None, None, "3-2"]
