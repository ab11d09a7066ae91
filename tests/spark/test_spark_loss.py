"""Records that are gone, and servers that go away, in batch reads."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import sbp_native as sbp
from sbp_native.spark import SbpDataSource
from sbp_native.spark.errors import SbpSparkError
from sbp_native.spark.gaps import Piece, behind, pieces, runs, told
from spark.support import ServerProcess, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceReader

OFFSETS = StructType([StructField("stream_id", LongType()), StructField("offset", LongType())])
GAPS = StructType([*OFFSETS.fields, StructField("gap_end", LongType())])
WARN = {"failOnDataLoss": "false"}
ROWS = {"failOnDataLoss": "false", "onDataLoss": "rows"}


def reader(address: str, load: str, schema: StructType | None = OFFSETS, **options: str) -> DataSourceReader:
    """A reader as Spark has it, in this process."""
    source = SbpDataSource({"servers": address, "path": load, "workerGcFreeze": "false", **options})
    return source.reader(schema or source.schema())


def rows(made: DataSourceReader) -> Iterator[tuple[object, ...]]:
    """Plans and reads, row by row."""
    for partition in made.partitions():
        for batch in made.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def test_spans_are_cut_where_records_are_gone() -> None:
    spans = [(1, 5, 10), (2, 0, 3), (3, 4, 9), (4, 0, 2), (5, 1, 8)]
    earliest, latest = {1: 0, 2: 7, 3: 6, 5: 3}, {1: 20, 2: 9, 3: 20, 5: 5}
    assert pieces(spans, earliest, latest) == [
        Piece((1, 5, 10), False),
        Piece((2, 0, 3), True),
        Piece((3, 4, 6), True),
        Piece((3, 6, 9), False),
        Piece((4, 0, 2), True),
        Piece((5, 1, 3), True),
        Piece((5, 3, 5), False),
        Piece((5, 5, 8), True),
    ]


def test_what_is_there_is_read_in_one_go() -> None:
    there = [Piece((stream, 0, 5), False) for stream in range(3)]
    gone = Piece((9, 0, 5), True)
    assert runs([there[0], there[1], gone, gone, there[2]]) == [there[:2], [gone], [gone], there[2:]]
    assert runs([]) == []


def test_what_is_left_behind_what_was_delivered() -> None:
    spans = [(1, 5, 10), (2, 0, 3)]
    assert behind(spans, 0) == spans
    assert behind(spans, 2) == [(1, 7, 10), (2, 0, 3)]
    assert behind(spans, 5) == [(2, 0, 3)]
    assert behind(spans, 7) == [(2, 2, 3)]
    assert behind(spans, 8) == []


def test_intervals_as_text() -> None:
    gone = [Piece((stream, 0, 5), True) for stream in range(1, 24)]
    text = told(gone, {1: "orders"})
    assert text.startswith("stream orders (1) [0, 5), stream 2 [0, 5), ")
    assert text.endswith("stream 20 [0, 5) and 3 more")


def test_trimmed_between_plan_and_read(server: sbp.Server, client: sbp.Client, name: str) -> None:
    one, two = client.create_stream(f"{name}/a"), client.create_stream(f"{name}/b")
    for stream in (one, two):
        for _ in range(4):
            stream.append([b"x"] * 5)
    load = f"{name}/a,{name}/b"
    made = {
        kind: reader(server.address, load, GAPS if kind == "rows" else OFFSETS, **options)
        for kind, options in (("fail", {}), ("warn", WARN), ("rows", ROWS))
    }
    plans = {kind: each.partitions() for kind, each in made.items()}
    two.trim(7)

    def read(kind: str) -> list[tuple[object, ...]]:
        batches = [batch for partition in plans[kind] for batch in made[kind].read(partition)]
        return [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]

    with pytest.raises(SbpSparkError) as caught:
        read("fail")
    assert f"[SBP-9013] records of this query are not there any more: stream {two.id} [0, 7), " in str(caught.value)
    kept = [(one.id, offset) for offset in range(20)] + [(two.id, offset) for offset in range(7, 20)]
    assert read("warn") == kept
    assert read("rows") == [*((*row, None) for row in kept[:20]), (two.id, 0, 7), *((*row, None) for row in kept[20:])]


def test_losses_are_logged_with_their_intervals(
    server: sbp.Server, client: sbp.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    made = reader(server.address, name, **WARN)
    planned = made.partitions()
    client.delete_stream(name)
    with caplog.at_level(logging.WARNING, "sbp_native.spark"):
        assert [batch for each in planned for batch in made.read(each)] == []
    assert (
        f"[SBP-9013] records of this query are not there any more, and it goes on without them: stream {stream.id} "
        f"[0, 10), servers {server.address}" in caplog.text
    )


def test_deleted_and_created_again(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """An id is never given again: the new stream of that name is another one, and none of its records is delivered."""
    old = client.create_stream(name)
    old.append([b"old"] * 3)
    made, insisting = reader(server.address, name, GAPS, **ROWS), reader(server.address, name)
    planned, insisted = made.partitions(), insisting.partitions()
    client.delete_stream(name)
    new = client.create_stream(name)
    new.append([b"new"] * 5)
    found = [row for each in planned for batch in made.read(each) for row in batch.to_pylist()]
    assert found == [{"stream_id": old.id, "offset": 0, "gap_end": 3}]
    with pytest.raises(SbpSparkError, match=rf"stream {old.id} \[0, 3\)"):
        [batch for each in insisted for batch in insisting.read(each)]
    assert list(rows(reader(server.address, name))) == [(new.id, offset) for offset in range(5)]


def test_a_start_that_is_trimmed(server: sbp.Server, client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    stream.trim(4)
    start = {"startingOffsets": json.dumps({name: 1})}
    with pytest.raises(SbpSparkError, match=r"the offset 1, it holds \[4, 10\): set failOnDataLoss=false"):
        reader(server.address, name, **start).partitions()
    assert list(rows(reader(server.address, name, **start, **WARN))) == [(stream.id, offset) for offset in range(4, 10)]
    with_gaps = list(rows(reader(server.address, name, GAPS, **start, **ROWS)))
    assert with_gaps == [(stream.id, 1, 4), *((stream.id, offset, None) for offset in range(4, 10))]


def test_a_sealed_stream_is_read_over_its_ranges(server: sbp.Server, client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    for _ in range(3):
        stream.append([b"x"] * 4)
        stream.seal()
    stream.append([b"x"] * 4)
    assert list(rows(reader(server.address, name))) == [(stream.id, offset) for offset in range(16)]


@pytest.mark.parametrize("options", [WARN, ROWS], ids=["warn", "rows"])
def test_trimmed_in_the_middle_of_a_read(
    server: sbp.Server, client: sbp.Client, name: str, options: dict[str, str]
) -> None:
    """What was delivered and what is reported make up the plan, without a record twice."""
    stream = client.create_stream(name)
    total, size = 1_600, 64 << 10
    for _ in range(0, total, 100):
        stream.append([bytes(size)] * 100)
    schema = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    if options is ROWS:
        schema.add("gap_end", LongType())
    going = rows(reader(server.address, name, schema, **options))
    found = [next(going)]
    stream.trim(1_550)
    found += going
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets))
    missing = sorted(set(range(total)) - set(offsets))
    if options is ROWS:
        (gap,) = [row for row in found if row[2] is not None]
        assert gap[1] is None
        missing = [gap[0], *missing]
        assert gap[2] == 1_550
    assert missing == list(range(missing[0], 1_550))
    assert all(row[1] == bytes(size) for row in found if row[0] not in missing)


def test_a_server_that_is_killed_in_the_middle_of_a_read(tmp_path: Path) -> None:
    """Reading goes on behind the last record delivered, when the server is back."""
    total, size = 1_600, 64 << 10
    with ServerProcess(tmp_path) as process:
        with sbp.connect(process.address) as client:
            stream = client.create_stream("orders")
            for start in range(0, total, 100):
                stream.append([start.to_bytes(4, "little") * (size // 4)] * 100)
        schema = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
        going = rows(reader(process.address, "orders", schema, timeout="60"))
        found = [next(going)]
        process.kill()
        process.start()
        found += going
    assert [row[0] for row in found] == list(range(total))
    assert all(value[:4] == (offset // 100 * 100).to_bytes(4, "little") for offset, value in found)


def test_a_server_that_stays_away_is_named(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as process:
        with sbp.connect(process.address) as client:
            client.create_stream("orders").append([b"x"] * 10)
        made = reader(process.address, "orders", timeout="2")
        (partition,) = made.partitions()
        process.kill()
        with pytest.raises(SbpSparkError) as caught:
            list(made.read(partition))
    assert process.address in str(caught.value)
    assert caught.value.code < 9200


@pytest.mark.parametrize("columns", ["records", "kafka"])
def test_the_columns_of_a_gap(server: sbp.Server, client: sbp.Client, name: str, columns: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 4)
    stream.trim(3)
    options = {"columns": columns, "startingOffsets": json.dumps({name: 0}), "includeHeaders": "true", **ROWS}
    made = reader(server.address, name, None, **options)
    gap, record = [row for each in made.partitions() for batch in made.read(each) for row in batch.to_pylist()]
    place = {
        "records": {"stream": name, "stream_id": stream.id, "offset": 0},
        "kafka": {"topic": name, "partition": 0, "offset": 0, "timestampType": 0},
    }[columns]
    assert {key: value for key, value in gap.items() if value is not None} == place | {"gap_end": 3}
    assert record["offset"] == 3
    assert record["gap_end"] is None


def test_gaps_through_spark(client: sbp.Client, read: Callable, name: str) -> None:
    """Typed columns that allow no nulls are null in the row of a gap, and Spark accepts it."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("gap_end", pa.int64())])
    stream = client.create_stream(name, schema=schema)
    stream.append(pa.table([pa.array([0, 1, 2, 3]), pa.array([7, 7, 7, 7])], schema=schema))
    stream.trim(2)
    options = {"startingOffsets": json.dumps({name: 0})}
    assert "[SBP-9203] option 'startingOffsets' gives stream" in failure(lambda: read(**options).load(name).count())
    frame = read(**options, **ROWS).load(name).orderBy("_offset")
    assert [tuple(row) for row in frame.select("n", "gap_end", "_stream", "_offset", "_gap_end").collect()] == [
        (None, None, name, 0, 2),
        (2, 7, name, 2, None),
        (3, 7, name, 3, None),
    ]
    assert frame.selectExpr("sum(coalesce(_gap_end - _offset, 1))").collect()[0][0] == 4
