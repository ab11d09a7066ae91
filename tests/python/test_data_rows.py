"""Rows for many streams, sorted out and appended many streams in a frame: what Spark's workers write with."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import sbp_native as sbp
from sbp_native._native import BatchAppender

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def written(server: sbp.Server, rows: pa.RecordBatch, stream: str | None = None) -> dict[int, int]:
    """Records stored by stream id, of these rows."""
    appender = BatchAppender(server.address, stream)
    appender.append(rows)
    return {stream_id: records for stream_id, _, _, records in appender.finish()}


def values(client: sbp.Client, name: str) -> list[bytes | None]:
    return [value for batch in client.stream(name).read() for value in batch.values]


@pytest.mark.parametrize("run", [1, 3, 50, 1_000], ids=lambda run: f"runs of {run}")
@pytest.mark.parametrize("by", ["stream", "stream_id"])
def test_rows_go_to_their_streams_in_order(
    server: sbp.Server, client: sbp.Client, name: str, run: int, by: str
) -> None:
    streams = [client.create_stream(f"{name}/{n}") for n in range(5)]
    chance = random.Random(run)
    targets = [target for _ in range(3_000 // run) for target in [chance.choice(streams)] * run]
    column = [target.name for target in targets] if by == "stream" else [target.id for target in targets]
    rows = pa.record_batch(
        {
            by: pa.array(column),
            "value": pa.array([b"%d" % n for n in range(len(targets))]),
            "key": pa.array([b"k%d" % n if n % 3 else None for n in range(len(targets))]),
            "timestamp": pa.array(range(len(targets)), pa.timestamp("us", tz="UTC")),
        }
    )
    stored = written(server, rows)
    assert sum(stored.values()) == len(targets)
    for stream in streams:
        expected = [n for n, target in enumerate(targets) if target is stream]
        records = [record for batch in stream.read() for record in batch]
        assert [(r.value, r.key, r.timestamp) for r in records] == [
            (b"%d" % n, b"k%d" % n if n % 3 else None, n) for n in expected
        ]
        assert stored.get(stream.id, 0) == len(expected)


def test_headers_nulls_and_text(server: sbp.Server, client: sbp.Client, name: str) -> None:
    for n in range(2):
        client.create_stream(f"{name}/{n}")
    rows = pa.record_batch(
        {
            "stream": [f"{name}/{n % 2}" for n in range(6)],
            "value": ["a", None, "c", "d", None, "f"],
            "headers": pa.array(
                [None, [{"key": "h", "value": b"1"}], [], None, None, [{"key": "i", "value": None}]], HEADERS
            ),
        }
    )
    written(server, rows)
    assert values(client, f"{name}/0") == [b"a", b"c", None]
    [batch] = client.stream(f"{name}/1").read()
    assert batch.values == [None, b"d", b"f"]
    assert batch.headers == [[("h", b"1")], [], [("i", None)]]


def test_large_rows_become_several_batches(server: sbp.Server, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    rows = pa.record_batch({"value": [bytes([n]) * 700_000 for n in range(10)]})
    assert list(written(server, rows, name).values()) == [10]
    batches = list(client.stream(name).read())
    assert len(batches) == 10, "two of them are more than a MiB"
    assert [(value or b"")[0] for batch in batches for value in batch.values] == list(range(10))


def test_a_row_without_a_stream_is_refused(server: sbp.Server, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    rows = pa.record_batch({"stream": [name, None], "value": [b"a", b"b"]})
    appender = BatchAppender(server.address)
    with pytest.raises(sbp.SchemaMismatchError, match='column "stream" is null in row 1'):
        appender.append(rows)
    appender.close()
    assert values(client, name) == []


def test_no_rows(server: sbp.Server, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    assert written(server, pa.record_batch({"value": pa.array([], pa.binary())}), name) == {}
