"""Streams of Pravega, written and read through the package, against a scripted segment store."""

from __future__ import annotations

import asyncio
import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sbp_native as sbp
from pravega.store import Running, frame, text
from sbp_native import pravega
from sbp_native.errors import ClosedError, InvalidRequestError

PAGE = Path(__file__).parents[2] / "docs" / "pravega.md"
NAME = "sc/st/0.#epoch.0"


@pytest.fixture
def store() -> Iterator[Running]:
    """A segment store with a stream of one segment."""
    with Running() as running:
        with pravega.connect(segment_store=running.address, timeout=20) as client:
            client.create_stream("sc/st")
        yield running


@pytest.fixture
def client(store: Running) -> Iterator[pravega.Pravega]:
    """A client of it."""
    with pravega.connect(segment_store=store.address, timeout=20) as client:
        yield client


def write(client: pravega.Pravega, *events: bytes) -> None:
    with client.writer("sc/st") as writer:
        writer.append_many(events)


def test_an_event_comes_back_as_a_batch(client: pravega.Pravega) -> None:
    with client.writer("sc/st") as writer:
        assert writer.stream == "sc/st"
        writer.append(b"one", key="k1")
        writer.append(bytearray(b""))
        writer.append_many([memoryview(b"three"), ("k", b"four"), (None, b"five")])
    [batch] = client.read("sc/st", start="earliest", end="latest")
    assert isinstance(batch, sbp.Batch)
    assert (batch.stream, batch.stream_id, len(batch)) == (NAME, 0, 5)
    assert batch.values == [b"one", b"", b"three", b"four", b"five"]
    assert tuple(batch.offsets) == (0, 11, 19, 32, 44)
    assert batch.keys == [None] * 5
    assert batch.timestamps == [0] * 5
    table = batch.to_arrow()
    table.validate(full=True)
    assert table["value"].to_pylist() == batch.values
    assert client.stats() == {"events": 5, "written": 5, "lost_bytes": 0}


def test_a_stream_is_an_arrow_stream(client: pravega.Pravega) -> None:
    client.create_stream("sc/wide", 3)
    with client.writer("sc/wide") as writer:
        writer.append_many((str(n), b"event-%d" % n) for n in range(1_000))
    table = pa.table(client.read("sc/wide", end="latest"))
    assert sorted(table["value"].to_pylist()) == sorted(b"event-%d" % n for n in range(1_000))
    infos = client.segments("sc/wide")
    assert [info.name for info in infos] == [f"sc/wide/{n}.#epoch.0" for n in range(3)]
    assert all(info.length > 0 and not info.sealed and info.start == 0 for info in infos)
    assert infos[0].keys == pytest.approx((0.0, 1 / 3))
    one = client.read("sc/wide", start={1: "earliest"}, end="latest")
    assert {batch.stream for batch in one} == {"sc/wide/1.#epoch.0"}
    assert pa.table(client.read("sc/st", end="latest")).num_rows == 0


def test_a_part_of_a_segment_is_read(client: pravega.Pravega) -> None:
    write(client, b"one", b"two", b"three")
    values = [value for batch in client.read("sc/st", start={NAME: 11}, end={NAME: 22}) for value in batch.values]
    assert values == [b"two"]
    with pytest.raises(InvalidRequestError, match="mapping"):
        client.read("sc/st", start=11)
    with pytest.raises(InvalidRequestError, match=r"st/0\.#epoch\.0"):
        client.read("sc/st", start={"other/st/0.#epoch.0": 0})


def test_a_reading_without_end_goes_on(client: pravega.Pravega, store: Running) -> None:
    write(client, b"one")
    batches = client.read("sc/st", timeout=2)
    assert next(batches).values == [b"one"]
    with pytest.raises(TimeoutError):
        next(batches)
    store.hang_up()
    write(client, b"two")
    assert next(client.read("sc/st", start={NAME: 11}, timeout=20)).values == [b"two"]
    later = threading.Timer(0.1, write, (client, b"three"))
    later.start()
    assert next(batches).values[:1] == [b"two"]
    later.join()
    client.seal_stream("sc/st")
    rest = [value for batch in client.read("sc/st", timeout=20) for value in batch.values]
    assert rest == [b"one", b"two", b"three"], "it ends where the stream is sealed"


def test_each_event_is_stored_once_though_acknowledgements_are_lost(client: pravega.Pravega, store: Running) -> None:
    with client.writer("sc/st") as writer:
        for number in range(20):
            store.lose = number % 3
            writer.append(b"event-%d" % number)
    values = [value for batch in client.read("sc/st", end="latest") for value in batch.values]
    assert values == [b"event-%d" % number for number in range(20)]


def test_asyncio_has_the_same(store: Running) -> None:
    async def main() -> None:
        async with pravega.aio.connect(segment_store=store.address, timeout=20) as client:
            async with client.writer("sc/st") as writer:
                await asyncio.gather(*(writer.append(b"event-%d" % n) for n in range(200)))
                await writer.append_many([b"last"])
            assert store.appends < 201, "what comes while an append is under way shares the next one"
            values = [value async for batch in client.read("sc/st", end="latest") for value in batch.values]
            assert set(values) == {b"event-%d" % n for n in range(200)} | {b"last"}
            assert len(values) == 201
            assert [info.name for info in await client.segments("sc/st")] == [NAME]
            await client.create_stream("sc/other", 2)
        with pytest.raises(ClosedError):
            await client.segments("sc/st")

    asyncio.run(main())


def test_what_is_closed_takes_no_more(client: pravega.Pravega, store: Running) -> None:
    writer = client.writer("sc/st")
    writer.append(b"one")
    writer.close()
    writer.close()
    with pytest.raises(ClosedError):
        writer.append(b"two")
    again = pickle.loads(pickle.dumps(client))
    assert again.address == store.address
    again.close()
    with pytest.raises(ClosedError):
        again.segments("sc/st")


def test_what_cannot_be_is_refused(client: pravega.Pravega) -> None:
    writer = client.writer("sc/st")
    for wrong in ("text", 7):
        with pytest.raises(TypeError):
            writer.append(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        writer.append_many(b"one event")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError):
        client.create_stream("sc/none", 0)
    with pytest.raises(InvalidRequestError, match="controller"):
        pravega.connect()
    with pytest.raises(InvalidRequestError, match="controller"):
        pravega.connect("127.0.0.1:1", segment_store="127.0.0.1:2")


def raised(kind: type[pravega.PravegaError], code: int, call: Callable[[], Any]) -> pravega.PravegaError:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert caught.value.code == code
    return caught.value


@pytest.mark.provokes(9501, by="peer")
def test_9501_framing(client: pravega.Pravega, store: Running) -> None:
    write(client, b"one")
    store.segments[NAME].data += b"bytes of a byte stream"
    batches = client.read("sc/st", end="latest")
    assert next(batches).values == [b"one"]
    error = raised(pravega.PravegaFramingError, 9501, lambda: next(batches))
    assert NAME in str(error)
    assert error.offset == 11
    # A frame that ends early.
    store.instead = lambda request: frame(12, request + b"\0")
    raised(pravega.PravegaFramingError, 9501, lambda: client.segments("sc/st"))


@pytest.mark.provokes(9502, by="client")
def test_9502_limit(client: pravega.Pravega) -> None:
    with client.writer("sc/st") as writer:
        error = raised(pravega.PravegaLimitError, 9502, lambda: writer.append(bytes(8 * 1024 * 1024 + 1)))
        assert isinstance(error, ValueError)
        writer.append(bytes(8 * 1024 * 1024))


@pytest.mark.provokes(9504, by="peer")
def test_9504_peer(client: pravega.Pravega, store: Running) -> None:
    store.instead = lambda request: frame(21, request + text("x"))
    raised(pravega.PravegaPeerError, 9504, lambda: client.segments("sc/st"))


@pytest.mark.provokes(9505, by="peer")
def test_9505_refused(client: pravega.Pravega) -> None:
    raised(pravega.PravegaRefusedError, 9505, lambda: client.create_stream("sc/st"))
    raised(pravega.PravegaRefusedError, 9505, client.scopes)
    writer = client.writer("sc/st")
    writer.append(b"one")
    client.seal_stream("sc/st")
    error = raised(pravega.PravegaRefusedError, 9505, lambda: writer.append(b"two"))
    assert "sealed" in str(error)


@pytest.mark.provokes(9506, by="client")
def test_9506_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    for connect in (
        lambda: pravega.connect(f"127.0.0.1:{port}", timeout=5),
        lambda: pravega.connect(segment_store=f"127.0.0.1:{port}", timeout=5),
    ):
        error = raised(pravega.PravegaLostError, 9506, connect)
        assert isinstance(error, ConnectionError)
        assert error.retriable
        assert str(port) in str(error)


@pytest.mark.provokes(9507, by="peer")
def test_9507_unknown_name(client: pravega.Pravega) -> None:
    raised(pravega.PravegaUnknownNameError, 9507, lambda: list(client.read("sc/none", end="latest")))
    raised(pravega.PravegaUnknownNameError, 9507, lambda: client.writer("sc/none").append(b"one"))
    raised(pravega.PravegaUnknownNameError, 9507, lambda: client.segments("sc"))
    raised(pravega.PravegaUnknownNameError, 9507, lambda: client.truncate_segment("sc/none", 0, 5))


@pytest.mark.provokes(9508, by="peer")
def test_9508_out_of_range(client: pravega.Pravega) -> None:
    write(client, b"one", b"two", b"three")
    batches = client.read("sc/st", start={0: 0}, end="latest")
    client.truncate_segment("sc/st", NAME, 22)
    error = raised(pravega.PravegaOutOfRangeError, 9508, lambda: next(batches))
    assert error.offset == 0
    assert NAME in str(error)
    assert next(batches).values == [b"three"]
    assert client.stats()["lost_bytes"] == 22


def test_the_examples_of_the_page(store: Running) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    with pravega.connect(segment_store=store.address) as client:
        client.create_stream("shop/orders", 2)
    for block in blocks:
        program = block.replace('"127.0.0.1:9090"', f'segment_store="{store.address}"')
        program = re.sub(r"^.*create_(scope|stream).*\n", "", program, flags=re.MULTILINE)
        exec(compile(program, str(PAGE), "exec"), {"__name__": "__main__"})
    assert sum(len(segment.data) for name, segment in store.segments.items() if "orders" in name) > 0
