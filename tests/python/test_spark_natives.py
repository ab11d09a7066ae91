"""The two native classes that Spark's workers use, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sbp_native as sbp
from sbp_native._native import BatchAppender, SpanReader

TYPED = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def read(reader: SpanReader) -> pa.Table:
    return pa.RecordBatchReader.from_stream(reader).read_all()


def test_spans_come_in_their_order(client: sbp.Client, server: sbp.Server, name: str) -> None:
    streams = [client.create_stream(f"{name}/{n}") for n in range(3)]
    for n, stream in enumerate(streams):
        for start in range(0, 100, 10):
            stream.append([b"%d/%d" % (n, offset) for offset in range(start, start + 10)], timestamp=n)
    spans = [(streams[2].id, 5, 95), (streams[0].id, 0, 100), (streams[1].id, 99, 100)]
    table = read(SpanReader(server.address, spans))
    assert table.column_names == ["stream", "stream_id", "offset", "timestamp", "key", "value"]
    wanted = [(stream, offset) for stream, start, end in spans for offset in range(start, end)]
    assert list(zip(table["stream_id"].to_pylist(), table["offset"].to_pylist(), strict=True)) == wanted
    assert table["value"][0].as_py() == b"2/5"
    assert table["stream"][0].as_py() == f"{name}/2"
    assert table["timestamp"].type == pa.timestamp("us", tz="UTC")


def test_rows_are_gathered(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name)
    for _ in range(30):
        stream.append([b"x"] * 1_000)
    reader = pa.RecordBatchReader.from_stream(SpanReader(server.address, [(stream.id, 0, 30_000)]))
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 30_000
    assert all(4_096 <= size <= 16_384 for size in sizes[:-1])


def test_projection_and_kafka_columns(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x", b"y"])
    spans = [(stream.id, 0, 2)]
    table = read(SpanReader(server.address, spans, "records", ["offset", "value"]))
    assert table.to_pydict() == {"offset": [0, 1], "value": [b"x", b"y"]}
    kafka = read(SpanReader(server.address, spans, "kafka", None, True))
    assert kafka.column_names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    with pytest.raises(sbp.SbpError, match="nonsense"):
        SpanReader(server.address, spans, "records", ["nonsense"])


def test_typed_columns(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name, schema=TYPED)
    rows = pa.table({"n": [1, 2], "text": ["a", None]}, schema=TYPED)
    stream.append(rows)
    spans = [(stream.id, 0, 2)]
    assert read(SpanReader(server.address, spans, "arrow")).to_pydict() == rows.to_pydict()
    with_metadata = read(SpanReader(server.address, spans, "arrow", None, False, True))
    assert with_metadata["_offset"].to_pylist() == [0, 1]
    assert with_metadata["_stream"].to_pylist() == [name, name]
    other = client.create_stream(f"{name}/other", schema=pa.schema([("m", pa.int64())]))
    with pytest.raises(sbp.SchemaMismatchError, match="different schemas"):
        SpanReader(server.address, [*spans, (other.id, 0, 0)], "arrow")


def test_an_error_says_everything(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(b"x")
    reader = SpanReader(server.address, [(stream.id, 50, 60)])
    with pytest.raises((pa.ArrowException, OSError), match=r"\[SBP-1463\]") as caught:
        read(reader)
    text = str(caught.value)
    for part in (name, "50", server.address):
        assert part in text
    assert isinstance(reader.error, sbp.OffsetOutOfRangeError)
    assert reader.error.stream == name


def test_appending_rows_by_their_stream(client: sbp.Client, server: sbp.Server, name: str) -> None:
    streams = [client.create_stream(f"{name}/{n}") for n in range(3)]
    rows = 3_000
    batch = pa.record_batch(
        {
            "stream": [streams[n % 3].name for n in range(rows)],
            "key": pa.array([b"k%d" % n if n % 2 else None for n in range(rows)], pa.binary()),
            "value": pa.array([b"%d" % n for n in range(rows)], pa.binary()),
            "timestamp": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[("h", b"v")] if n == 4 else [] for n in range(rows)], HEADERS),
        }
    )
    appender = BatchAppender(server.address)
    appender.append(batch)
    appender.append(batch)
    finished = appender.finish()
    assert finished == [(stream.id, 0, 1_999, 2_000) for stream in streams]
    records = [record for found in streams[1].read(end=1_000) for record in found.records()]
    assert [record.value for record in records] == [b"%d" % n for n in range(1, rows, 3)]
    assert [record.timestamp for record in records] == list(range(1, rows, 3))
    assert records[1].key is None
    assert records[0].key == b"k1"
    assert records[1].headers == [("h", b"v")]
    with pytest.raises(RuntimeError, match="finished"):
        appender.append(batch)


def test_appending_rows_by_stream_id(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name)
    appender = BatchAppender(server.address)
    appender.append(pa.record_batch({"stream_id": [stream.id] * 2, "value": ["text", "more"]}))
    assert appender.finish() == [(stream.id, 0, 1, 2)]


def test_appending_typed_columns(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name, schema=TYPED)
    appender = BatchAppender(server.address, name, "arrow")
    rows = pa.record_batch({"n": range(100), "text": ["x" * 100] * 100}, schema=TYPED)
    for _ in range(50):
        appender.append(rows)
    assert appender.finish() == [(stream.id, 0, 4_999, 5_000)]
    total = sum(sum(batch.to_arrow().column("n").to_pylist()) for batch in stream.read())
    assert total == 50 * sum(range(100))


def test_a_batch_that_is_too_large_is_split(client: sbp.Client, server: sbp.Server, name: str) -> None:
    stream = client.create_stream(name, schema=TYPED)
    appender = BatchAppender(server.address, name, "arrow")
    appender.append(pa.record_batch({"n": range(40), "text": ["x" * (1 << 20)] * 40}, schema=TYPED))
    assert appender.finish() == [(stream.id, 0, 39, 40)]


def test_what_cannot_be_appended(client: sbp.Client, server: sbp.Server, name: str) -> None:
    client.create_stream(name)
    with pytest.raises(sbp.SchemaMismatchError, match="has no schema"):
        BatchAppender(server.address, name, "arrow")
    with pytest.raises(sbp.StreamNotFoundError):
        BatchAppender(server.address, "no such stream")
    appender = BatchAppender(server.address)
    with pytest.raises(sbp.SchemaMismatchError, match="stream"):
        appender.append(pa.record_batch({"value": [b"x"]}))
    appender.close()
    appender = BatchAppender(server.address, name)
    with pytest.raises(sbp.SchemaMismatchError, match="cast"):
        appender.append(pa.record_batch({"value": [1]}))
    appender.close()


@pytest.mark.parametrize("rows", [1, 9, 10, 11, 20])
def test_batches_that_end_with_the_last_row(client: sbp.Client, server: sbp.Server, name: str, rows: int) -> None:
    stream = client.create_stream(name)
    appender = BatchAppender(server.address, name, batch_rows=10)
    values = [b"%d" % number for number in range(rows)]
    appender.append(pa.record_batch({"value": values}))
    assert [(last - first + 1, count) for _, first, last, count in appender.finish()] == [(rows, rows)]
    assert [value for batch in stream.read() for value in batch.values] == values
