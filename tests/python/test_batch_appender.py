"""What Spark's workers write with: batches that depend on rows alone, and writers that may say everything twice."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import sbp_native as sbp
from sbp_native._native import BatchAppender

if TYPE_CHECKING:
    from collections.abc import Iterable

WRITER = bytes(range(16))
TYPED = pa.schema(
    [pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string()), pa.field("ok", pa.bool_())]
)


def records(count: int, first: int = 0, size: int = 20) -> pa.RecordBatch:
    """Rows of several sizes, some without a key."""
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "value": pa.array([b"%d " % n + b"v" * (n * 7 % size) for n in numbers], pa.binary()),
            "key": pa.array([b"k%d" % n if n % 3 else None for n in numbers], pa.binary()),
        }
    )


def typed(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = {"n": numbers, "text": [None if n % 5 == 0 else "t" * (n % 50) for n in numbers], "ok": [True] * count}
    return pa.record_batch(columns, schema=TYPED)


def in_pieces(rows: pa.RecordBatch, sizes: Iterable[int]) -> list[pa.RecordBatch]:
    pieces, place = [], 0
    for size in sizes:
        if place >= rows.num_rows:
            break
        pieces.append(rows.slice(place, size))
        place += size
    return pieces


def append(
    client: sbp.Client, rows: Iterable[pa.RecordBatch], stream: str | None, body: Any = "records", **named: Any
) -> list[tuple[int, int, int, int]]:
    appender = BatchAppender(client, stream, body, **named)
    try:
        for batch in rows:
            appender.append(batch)
        return appender.finish()
    finally:
        appender.close()


def batches(client: sbp.Client, name: str) -> list[int]:
    return [len(batch) for batch in client.stream(name).read()]


def stored(client: sbp.Client, name: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for batch in client.stream(name).read() for record in batch]


def wanted(rows: pa.RecordBatch) -> list[tuple[bytes | None, bytes | None]]:
    return [(row["key"], row["value"]) for row in rows.to_pylist()]


@pytest.mark.parametrize("seed", range(3))
def test_batches_end_at_the_same_rows_however_rows_arrive(client: sbp.Client, name: str, seed: int) -> None:
    rows, chance = records(5_000, size=200), random.Random(seed)
    limits: dict[str, Any] = {"batch_rows": 700, "batch_bytes": 40_000}
    for part, sizes in (("whole", [5_000]), ("pieces", [chance.randint(1, 900) for _ in range(5_000)])):
        client.create_stream(f"{name}/{part}")
        append(client, in_pieces(rows, sizes), f"{name}/{part}", **limits)
        assert stored(client, f"{name}/{part}") == wanted(rows)
    assert batches(client, f"{name}/whole") == batches(client, f"{name}/pieces")
    assert max(batches(client, f"{name}/whole")) <= 700
    assert len(batches(client, f"{name}/whole")) > 5_000 // 700


@pytest.mark.parametrize("seed", range(3))
def test_the_same_holds_for_many_streams(client: sbp.Client, name: str, seed: int) -> None:
    chance = random.Random(seed)
    rows = records(6_000, size=30_000)
    targets = pa.array([f"/{chance.randint(0, 40)}" for _ in range(6_000)])
    for part, sizes in (("whole", [6_000]), ("pieces", [chance.randint(1, 500) for _ in range(6_000)])):
        named = pa.array([f"{name}/{part}{target}" for target in targets.to_pylist()])
        append(
            client,
            in_pieces(rows.append_column("stream", named), sizes),
            None,
            create_streams=True,
            batch_bytes=200_000,
        )
    for target in {str(target) for target in targets.to_pylist()}:
        mine = [row for row, to in zip(wanted(rows), targets.to_pylist(), strict=True) if to == target]
        assert stored(client, f"{name}/whole{target}") == mine
        assert stored(client, f"{name}/pieces{target}") == mine
        assert batches(client, f"{name}/whole{target}") == batches(client, f"{name}/pieces{target}")


@pytest.mark.parametrize("seed", range(3))
def test_the_same_holds_for_typed_columns(client: sbp.Client, name: str, seed: int) -> None:
    rows, chance = typed(5_000), random.Random(seed)
    limits: dict[str, Any] = {"batch_rows": 900, "batch_bytes": 30_000}
    for part, sizes in (("whole", [5_000]), ("pieces", [chance.randint(1, 700) for _ in range(5_000)])):
        stream = client.create_stream(f"{name}/{part}", schema=TYPED)
        append(client, in_pieces(rows, sizes), f"{name}/{part}", "arrow", **limits)
        found = pa.Table.from_batches([pa.record_batch(batch) for batch in stream.read()]).combine_chunks()
        assert found.select(TYPED.names).equals(pa.Table.from_batches([rows]))
    assert batches(client, f"{name}/whole") == batches(client, f"{name}/pieces")


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("body", ["records", "arrow"])
def test_what_is_said_twice_is_stored_once(client: sbp.Client, name: str, body: str, compression: str | None) -> None:
    rows = typed(3_000) if body == "arrow" else records(3_000)
    client.create_stream(name, schema=TYPED if body == "arrow" else None)
    who: dict[str, Any] = {"writer_id": WRITER, "epoch": 7, "batch_rows": 100}
    first = append(client, [rows], name, body, **who)
    assert first[0][1:] == (0, 2_999, 3_000)
    again = append(client, in_pieces(rows, [77] * 3_000), name, body, compression=compression, **who)
    assert again[0][3] == 3_000
    assert client.stream(name).positions().latest == 3_000
    append(client, [rows], name, body, **{**who, "epoch": 8})
    assert client.stream(name).positions().latest == 6_000


def test_a_first_attempt_that_ended_early_is_completed(client: sbp.Client, name: str) -> None:
    rows = records(10_000)
    client.create_stream(name)
    who: dict[str, Any] = {"writer_id": WRITER, "epoch": 1, "batch_rows": 100}
    # More batches than the server remembers, and the last one of this attempt is never sent.
    early = BatchAppender(client, name, **who)
    for piece in in_pieces(rows.slice(0, 8_050), [50] * 161):
        early.append(piece)
    early.close()
    assert append(client, [rows], name, **who)[0][3] == 10_000
    assert stored(client, name) == wanted(rows)


@pytest.mark.parametrize("body", ["records", "arrow"])
@pytest.mark.parametrize("change", ["other rows", "fewer rows", "other batches"])
def test_other_rows_in_their_place_are_an_error(client: sbp.Client, name: str, body: str, change: str) -> None:
    make = typed if body == "arrow" else records
    client.create_stream(name, schema=TYPED if body == "arrow" else None)
    who: dict[str, Any] = {"writer_id": WRITER, "epoch": 1, "batch_rows": 100}
    append(client, [make(1_000)], name, body, **who)
    rows = {"other rows": make(1_000, 1), "fewer rows": make(900), "other batches": make(1_000)}[change]
    what = {"other rows": "are others than", "fewer rows": "there were only 900", "other batches": "1481"}[change]
    if change == "other batches":
        who["batch_rows"] = 150
    with pytest.raises(sbp.errors.SequenceError, match=what):
        append(client, [rows], name, body, **who)
    assert client.stream(name).positions().latest == 1_000


def test_a_late_attempt_of_an_older_epoch_is_fenced(client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    append(client, [records(10)], name, writer_id=WRITER, epoch=5)
    with pytest.raises(sbp.errors.WriterFencedError):
        append(client, [records(20)], name, writer_id=WRITER, epoch=4)
    assert client.stream(name).positions().latest == 10


def test_two_attempts_at_once_store_everything_once(client: sbp.Client, name: str) -> None:
    rows = records(5_000)
    client.create_stream(name)
    attempts = [BatchAppender(client, name, writer_id=WRITER, epoch=1, batch_rows=10) for _ in range(2)]
    for piece in in_pieces(rows, [123] * 50):
        for attempt in attempts:
            attempt.append(piece)
    for attempt in attempts:
        assert attempt.finish()[0][3] == 5_000
    assert stored(client, name) == wanted(rows)


def test_without_a_name_everything_is_stored_each_time(client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    for _ in range(3):
        append(client, [records(10)], name)
    assert client.stream(name).positions().latest == 30


@pytest.mark.parametrize("rule", ["cut answer APPEND every=7 times=2", "drop request APPEND every=9 times=1"])
@pytest.mark.parametrize("who", [{"writer_id": WRITER, "epoch": 3}, {}], ids=["named", "unnamed"])
@pytest.mark.timeout(60)
def test_lost_answers_leave_nothing_out_and_nothing_twice(
    sbp_proxy: sbp.Proxy, name: str, rule: str, who: dict[str, Any]
) -> None:
    rows = records(4_000)
    with sbp.connect(sbp_proxy.address, timeout=20, heartbeat_interval=0.5) as client:
        client.create_stream(name)
        sbp_proxy.add(rule)
        assert append(client, in_pieces(rows, [100] * 40), name, batch_rows=50, timeout=40.0, **who) == [
            (client.stream(name).id, 0, 3_999, 4_000)
        ]
        assert stored(client, name) == wanted(rows)


def test_a_write_that_cannot_begin_says_so(client: sbp.Client, name: str) -> None:
    client.create_stream(name, schema=TYPED)
    with pytest.raises(sbp.SchemaMismatchError, match="body=arrow"):
        append(client, [pa.record_batch({"stream": [name], "value": [b"x"]})], None)
    with pytest.raises(sbp.StreamNotFoundError):
        append(client, [pa.record_batch({"stream": [f"{name}/other"], "value": [b"x"]})], None)
    with pytest.raises(ValueError, match="16 bytes"):
        BatchAppender(client, name, "arrow", writer_id=bytes(16))
