"""Bytes, lists and Arrow data, there and back, blocking."""

from __future__ import annotations

import array
import datetime as dt
import threading

import pyarrow as pa
import pytest

import sbp_native as sbp

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
LARGE = bytes(range(256)) * 4096  # 1 MiB


def values(batches: sbp.Batches) -> list[bytes | None]:
    return [record.value for batch in batches for record in batch.records()]


def test_one_record(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    ack = stream.append(b"first")
    assert (ack.stream, ack.stream_id, ack.base_offset, ack.last_offset) == (name, stream.id, 0, 0)
    assert ack.durability == "fsync"
    assert len(ack) == 1
    assert abs(ack.append_time / 1000 - dt.datetime.now(dt.UTC).timestamp()) < 60
    assert values(stream.read()) == [b"first"]


def test_a_list_is_one_batch(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    ack = stream.append([b"a", bytearray(b"b"), memoryview(b"c"), b""])
    assert (ack.base_offset, ack.last_offset, len(ack)) == (0, 3, 4)
    [batch] = stream.read()
    assert len(batch) == 4
    assert batch.offsets == range(4)
    assert [r.offset for r in batch.records()] == [0, 1, 2, 3]
    assert [r.value for r in batch.records()] == [b"a", b"b", b"c", b""]


@pytest.mark.parametrize(
    "data",
    [b"x" * 10, bytearray(b"y" * 20_000), memoryview(b"z" * 30_000), LARGE, b"", array.array("i", [1, 2, 3])],
    ids=["bytes", "bytearray", "memoryview", "large", "empty", "array"],
)
def test_bytes_like_objects_are_one_record(client: sbp.Client, name: str, data: bytes) -> None:
    stream = client.create_stream(name)
    stream.append(data)
    assert values(stream.read()) == [bytes(data)]


def test_a_mutable_buffer_is_copied_when_it_is_appended(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    data = bytearray(b"before" * 10_000)
    before = bytes(data)
    stream.append(data)
    data[:] = b"AFTER!" * 10_000
    assert values(stream.read()) == [before]


def test_payloads_are_views(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([LARGE, b"small"])
    [batch] = stream.read()
    large, small = batch.payloads
    assert large is not None
    assert small is not None
    view = memoryview(large)
    assert view.readonly
    assert len(view) == len(large) == len(LARGE)
    assert view == LARGE
    assert bytes(small) == b"small"
    assert small[0] == ord("s")
    assert small[-1] == ord("l")
    assert bytes(small[1:3]) == b"ma"
    assert bytes(small[::-1]) == b"llams"
    with pytest.raises(IndexError):
        small[5]
    with pytest.raises(TypeError):
        view[0] = 1
    del batch, large
    assert view[-1] == 255, "the view keeps its frame"
    stream.append(small)
    assert values(stream.read(start=2)) == [b"small"]


def test_arrow_there_and_back(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, schema=SCHEMA)
    assert stream.schema == SCHEMA
    rows = pa.table({"n": [1, 2, None], "text": ["a", None, "c"]}, schema=SCHEMA)
    assert len(stream.append(rows)) == 3
    assert len(stream.append(rows.to_batches()[0])) == 3
    chunked = pa.concat_tables([rows, rows])
    assert chunked.column(0).num_chunks == 2
    assert len(stream.append(chunked)) == 6
    batches = [batch.to_arrow() for batch in stream.read()]
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert [batch.num_rows for batch in batches] == [3, 3, 6]
    assert pa.Table.from_batches(batches) == pa.concat_tables([rows] * 4).combine_chunks()


def test_arrow_goes_out_by_capsule_alone(client: sbp.Client, name: str) -> None:
    polars = pytest.importorskip("polars")
    stream = client.create_stream(name, schema=SCHEMA)
    stream.append(pa.table({"n": [1], "text": ["a"]}, schema=SCHEMA))
    [batch] = stream.read()
    assert polars.DataFrame(batch).rows() == [(1, "a")]


def test_plain_records_as_columns(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"b"], timestamp=1_700_000_000_123)
    [batch] = stream.read()
    columns = batch.to_arrow()
    assert columns.column("offset").to_pylist() == [0, 1]
    assert columns.column("value").to_pylist() == [b"a", b"b"]
    assert batch.timestamps == [1_700_000_000_123_000] * 2
    assert [r.timestamp for r in batch.records()] == [1_700_000_000_123_000] * 2
    frame = batch.to_pandas()
    assert list(frame["offset"]) == [0, 1]


def test_reading_a_part(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    for start in range(0, 30, 10):
        stream.append([b"%d" % n for n in range(start, start + 10)])
    assert values(stream.read(start=5, end=25)) == [b"%d" % n for n in range(5, 25)]
    assert values(stream.read(start=12, end=13)) == [b"12"]
    assert values(stream.read(start="latest")) == []
    assert values(stream.read(start=7, end=7)) == []
    assert [(b.base_offset, b.last_offset) for b in stream.read(start=5, end=25)] == [(5, 9), (10, 19), (20, 24)]


def test_a_read_ends_where_the_stream_ended_when_it_began(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"b"])
    batches = stream.read()
    first = next(batches)
    stream.append(b"later")
    assert [r.value for r in first.records()] == [b"a", b"b"]
    assert values(batches) == []


def test_reading_many_batches_in_order(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    for n in range(200):
        stream.append([b"%d" % n] * 10)
    offsets = [offset for batch in stream.read() for offset in batch.offsets]
    assert offsets == list(range(2000))


def test_append_all_is_one_frame(client: sbp.Client, name: str) -> None:
    names = [f"{name}/{n}" for n in range(17)]
    for each in names:
        client.create_stream(each)
    client.append_all(dict.fromkeys(names, b"warm"))
    before = client.stats()
    acks = client.append_all({each: [b"x", b"y"] for each in names})
    after = client.stats()
    assert after["calls"] - before["calls"] == 1
    assert list(acks) == names
    assert {(ack.stream, ack.base_offset, ack.last_offset) for ack in acks.values()} == {(n, 1, 2) for n in names}


def test_streams_are_found_listed_and_described(client: sbp.Client, name: str) -> None:
    created = client.create_stream(name, schema=SCHEMA)
    assert client.stream(name).id == created.id
    assert client.stream(created.id).name == name
    assert client.stream(name).schema == SCHEMA
    listed = {info.name: info for info in client.list_streams()}
    assert listed[name].id == created.id
    assert listed[name].schema == SCHEMA
    assert listed[name] == created.info
    again = client.create_stream(name, schema=SCHEMA, exist_ok=True)
    assert again.id == created.id


def test_positions(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    assert (stream.positions().earliest, stream.positions().latest) == (0, 0)
    stream.append([b"a", b"b"])
    found = client.positions([name])
    assert set(found) == {name}
    assert (found[name].earliest, found[name].latest, len(found[name])) == (0, 2, 2)
    assert client.positions()[name] == found[name]
    assert client.positions([stream.id])[name] == found[name]


def test_a_tail_sees_what_comes(client: sbp.Client, name: str) -> None:
    one = client.create_stream(f"{name}/1")
    two = client.create_stream(f"{name}/2")
    one.append(b"old")
    with client.tail([one.name, two.name], start={one.name: "earliest", two.name: 0}, timeout=10) as tail:
        first = next(tail)
        assert (first.stream, first.base_offset) == (one.name, 0)
        two.append([b"a", b"b"])
        second = next(tail)
        assert (second.stream, second.offsets) == (two.name, range(2))
        one.append(b"new")
        third = next(tail)
        assert (third.stream, third.base_offset) == (one.name, 1)


def test_a_tail_that_sees_nothing_times_out(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    tail = stream.tail(timeout=0.2)
    with pytest.raises(TimeoutError):
        next(tail)
    stream.append(b"x")
    assert [r.value for r in next(tail).records()] == [b"x"], "a tail goes on after a timeout"
    tail.close()


def test_ping_and_stats(client: sbp.Client) -> None:
    assert 0 < client.ping() < 5
    assert client.stats()["calls"] > 0


def test_a_time_is_a_position(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(b"old", timestamp=dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
    stream.append(b"new", timestamp=dt.datetime(2025, 1, 1, tzinfo=dt.UTC))
    assert values(stream.read(start=dt.datetime(2024, 6, 1, tzinfo=dt.UTC))) == [b"new"]
    with pytest.raises(TypeError, match="time zone"):
        stream.append(b"x", timestamp=dt.datetime(2025, 1, 1))


def test_data_outlives_the_server(tmp_path: object) -> None:
    with sbp.Server(str(tmp_path)) as server, sbp.connect(server.address) as client:
        client.create_stream("kept").append([b"a", b"b"])
    with sbp.Server(str(tmp_path)) as server, sbp.connect(server.address) as client:
        assert values(client.stream("kept").read()) == [b"a", b"b"]
        assert client.stream("kept").append(b"c").base_offset == 2


@pytest.mark.parametrize("kind", ["raw", "list", "arrow"])
def test_bytes_are_copied_no_more_when_there_are_more(client: sbp.Client, name: str, kind: str) -> None:
    copied = []
    for size in (128 << 10, 12 << 20):
        schema = pa.schema([("n", pa.int64())]) if kind == "arrow" else None
        stream = client.create_stream(f"{name}/{kind}/{size}", schema=schema)
        if kind == "raw":
            stream.append(bytes(size))
        elif kind == "list":
            stream.append([bytes(1_000)] * (size // 1_000))
        else:
            stream.append(pa.table({"n": pa.array(range(size // 8), pa.int64())}))
        before = client.stats()["bytes_copied"]
        [batch] = stream.read()
        assert batch.to_arrow().num_rows == len(batch)
        copied.append(client.stats()["bytes_copied"] - before)
    assert copied == [0, 0]


def test_one_stream_of_several_is_refused(client: sbp.Client, name: str) -> None:
    plain = client.create_stream(f"{name}/plain")
    typed = client.create_stream(f"{name}/typed", schema=SCHEMA)
    with pytest.raises(sbp.SchemaMismatchError) as caught:
        client.append_all({typed.name: b"bytes", plain.name: b"bytes"})
    assert caught.value.stream == typed.name
    assert set(caught.value.acks) == {plain.name}
    assert values(plain.read()) == [b"bytes"]
    assert typed.positions().latest == 0


def test_closing_a_tail_ends_a_step_that_waits(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    tail = stream.tail()
    closer = threading.Timer(0.2, tail.close)
    closer.start()
    assert list(tail) == []
    closer.join()
    assert next(tail, None) is None


def test_closing_a_client_ends_a_step_that_waits(server: sbp.Server, name: str) -> None:
    client = sbp.connect(server.address)
    tail = client.create_stream(name).tail()
    closer = threading.Timer(0.2, client.close)
    closer.start()
    with pytest.raises(sbp.ClosedError):
        next(tail)
    closer.join()


def test_threads_share_a_client(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    threads = [threading.Thread(target=lambda: [stream.append(b"x") for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stream.positions().latest == 400
