"""What received and appended data costs: where views point, what is copied, what is kept in memory."""

from __future__ import annotations

import array
import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sbp_native as sbp

KIB = 1024
MIB = 1024 * KIB


def pinned(client: sbp.Client) -> int:
    gc.collect()
    count = client.stats()["bytes_pinned"]
    assert isinstance(count, int)
    return count


def copied(client: sbp.Client) -> int:
    count = client.stats()["bytes_copied"]
    assert isinstance(count, int)
    return count


def filled(client: sbp.Client, name: str, data: list[Any], schema: pa.Schema | None = None) -> sbp.Stream:
    """A stream with these batches."""
    stream = client.create_stream(name, schema=schema)
    for batch in data:
        stream.append(batch)
    return stream


def lies_within(address: int, length: int, batch: sbp.Batch) -> bool:
    start, size = batch._received
    return start <= address and address + length <= start + size


def address_of(view: Any) -> int:
    address = pa.py_buffer(view).address
    assert isinstance(address, int)
    return address


# Where views point.


def test_columns_lie_in_the_frame(client: sbp.Client, name: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
    rows = pa.table({"n": range(50_000), "text": ["text"] * 50_000}, schema=schema)
    [batch] = filled(client, name, [rows], schema).read()
    columns = batch.to_arrow()
    buffers = [buffer for column in columns for buffer in column.buffers() if buffer is not None]
    assert len(buffers) == 3
    for buffer in buffers:
        assert lies_within(buffer.address, buffer.size, batch)


@pytest.mark.parametrize(
    "take", [pa.record_batch, lambda batch: pa.table(batch).to_batches()[0]], ids=["array", "stream"]
)
def test_columns_of_records_lie_in_the_frame(client: sbp.Client, name: str, take: Callable[..., Any]) -> None:
    [batch] = filled(client, name, [[b"x" * 100] * 2_000]).read()
    values = take(batch).column("value")
    _, offsets, data = values.buffers()
    assert lies_within(offsets.address, offsets.size, batch)
    assert lies_within(data.address, data.size, batch)


def test_payloads_lie_in_the_frame(client: sbp.Client, name: str) -> None:
    value = bytes(100 * KIB)
    for each in ([value], [[value] * 10]):
        for batch in filled(client, f"{name}/{type(each[0]).__name__}", each).read():
            for payload in batch.payloads:
                assert payload is not None
                assert lies_within(address_of(payload), len(value), batch)
                assert lies_within(address_of(memoryview(payload)[50:60]), 10, batch)


def test_a_polars_frame_lies_in_the_frame(client: sbp.Client, name: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64())])
    [batch] = filled(client, name, [pa.table({"n": range(100_000)}, schema=schema)], schema).read()
    frame = batch.to_polars()
    numbers = frame["n"].to_numpy(allow_copy=False)
    assert lies_within(numbers.ctypes.data, numbers.nbytes, batch)


# What is copied.


@pytest.mark.parametrize("kind", ["one", "list", "arrow"])
def test_bytes_copied_stay_flat(client: sbp.Client, name: str, kind: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64())]) if kind == "arrow" else None
    counts = []
    for size in (120 * KIB, 12_000 * KIB):
        made: dict[str, Callable[[int], Any]] = {
            "one": lambda size: bytes(size),
            "list": lambda size: [bytes(KIB)] * (size // KIB),
            "arrow": lambda size: pa.table({"n": range(size // 8)}, schema=schema),
        }
        data = made[kind](size)
        stream = filled(client, f"{name}/{kind}/{size}", [data], schema)
        before = copied(client)
        [batch] = stream.read()
        assert batch.to_arrow().num_rows == len(batch)
        if kind != "arrow":
            assert len(batch.payloads) == len(batch)
        counts.append(copied(client) - before)
    assert counts == [0, 0]


def test_compressed_batches_are_copied_once(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(bytes(MIB), compression="zstd")
    before = copied(client)
    [batch] = stream.read()
    [payload] = batch.payloads
    assert payload is not None
    assert len(payload) == MIB
    assert MIB <= copied(client) - before < MIB + 16 * KIB, "its few bytes on the wire, and what it unpacks to"
    assert pinned(client) == 0, "what it was unpacked from is not needed any more"


# What is kept.


def test_frames_count_while_anything_of_them_lives(client: sbp.Client, name: str) -> None:
    stream = filled(client, name, [[bytes(100 * KIB)] * 10])
    assert pinned(client) == 0
    [batch] = stream.read()
    frame = pinned(client)
    assert 1_000 * KIB <= frame < 1_010 * KIB
    first = batch.payloads[0]
    assert pinned(client) == frame, "a payload shares the frame"
    view = memoryview(first)[:10] if first is not None else None
    column = batch.to_arrow().column("value")
    del batch
    assert pinned(client) == frame
    del first
    assert pinned(client) == frame
    del column
    assert pinned(client) == frame
    assert view is not None
    assert bytes(view) == bytes(10)
    del view
    assert pinned(client) == 0


def test_batches_outlive_their_client(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        [batch] = filled(client, name, [bytes(MIB)]).read()
        [payload] = batch.payloads
    del batch, client
    gc.collect()
    assert payload is not None
    assert bytes(payload) == bytes(MIB)


def test_small_slices_do_not_keep_a_frame(client: sbp.Client, name: str) -> None:
    stream = filled(client, name, [[b"small", bytes(MIB)]])
    [batch] = stream.read()
    small, large = batch.payloads
    assert large is not None
    part = large[5:1_000]
    records = batch.records()
    del batch, large
    assert pinned(client) == 0
    assert (bytes(small or b""), len(part), len(records)) == (b"small", 995, 2)


def test_small_batches_do_not_keep_the_frame_they_came_in(client: sbp.Client, name: str) -> None:
    stream = filled(client, name, [bytes(10 * KIB)] + [bytes(200 * KIB)] * 5)
    batches = list(stream.read())
    assert pinned(client) > 1_000 * KIB
    small = batches[0]
    del batches
    assert pinned(client) == 0
    assert small.values == [bytes(10 * KIB)]


def test_pinned_memory_is_capped_and_reading_goes_on(server: sbp.Server, client: sbp.Client, name: str) -> None:
    stream = filled(client, name, [bytes([n]) * MIB for n in range(40)])
    cap = 8 * MIB + 100 * KIB
    with sbp.connect(server.address, max_pinned_bytes=cap) as careful:
        kept = []
        for batch in careful.stream(stream.name).read():
            kept.append(batch)
            assert pinned(careful) <= cap
        assert len(kept) == 40, "who keeps everything reads everything"
        held = pinned(careful)
        assert held >= 2 * MIB
        assert copied(careful) >= 30 * MIB
        assert [payload and payload[0] for batch in kept for payload in batch.payloads] == list(range(40))
        kept.clear()
        del batch
        assert pinned(careful) == 0
        before = copied(careful)
        [batch] = careful.stream(stream.name).read(start=39)
        assert copied(careful) == before, "views again"
        assert len(batch) == 1


def test_nothing_is_pinned_where_nothing_may_be(server: sbp.Server, client: sbp.Client, name: str) -> None:
    stream = filled(client, name, [bytes(MIB)])
    with sbp.connect(server.address, max_pinned_bytes=0) as careful:
        [batch] = careful.stream(stream.name).read()
        assert pinned(careful) == 0
        [payload] = batch.payloads
        assert not lies_within(address_of(payload), MIB, batch)


@pytest.mark.asyncio
async def test_pinned_memory_of_an_async_client(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    await stream.append(bytes(MIB))
    [batch] = [batch async for batch in stream.read()]
    gc.collect()
    assert MIB <= aclient.stats()["bytes_pinned"] < MIB + 16 * KIB
    del batch
    await asyncio.sleep(0)  # the step that brought it holds it while it resumes us
    gc.collect()
    assert aclient.stats()["bytes_pinned"] == 0


# What is given away.


IMMUTABLE: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda data: data,
    "memoryview": memoryview,
    "part of a memoryview": lambda data: memoryview(data)[100:-100],
    "memoryview of words": lambda data: memoryview(data).cast("I"),
    "numpy": lambda data: np.frombuffer(data, np.uint8),
    "part of numpy words": lambda data: np.frombuffer(data, np.int32)[10:-10],
    "memoryview of numpy": lambda data: np.frombuffer(data, np.uint8).data[5:],
}


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", IMMUTABLE)
async def test_large_immutable_data_is_lent(aclient: sbp.AsyncClient, name: str, kind: str) -> None:
    stream = await aclient.create_stream(name)
    data = bytes(range(256)) * 400
    view = IMMUTABLE[kind](data)
    before = sys.getrefcount(data)
    operation = stream.append(view)
    assert sys.getrefcount(data) == before + 1, "lent, not copied"
    await operation
    [batch] = [batch async for batch in stream.read()]
    assert batch.values == [bytes(view)]
    del batch, view, operation
    await aclient.ping()  # a turn of the loop gives back what I/O threads have let go of
    assert sys.getrefcount(data) <= before


@pytest.mark.asyncio
async def test_arrow_buffers_and_payloads_are_lent(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    buffer = pa.py_buffer(bytes(80_000))
    assert not buffer.is_mutable
    before = sys.getrefcount(buffer)
    operation = stream.append(memoryview(buffer)[8:])
    assert sys.getrefcount(buffer) == before + 1
    await operation
    [batch] = [batch async for batch in stream.read()]
    [payload] = batch.payloads
    assert payload is not None
    lent: Any = payload  # numpy lists the types that it takes, and has no word for all others with the protocol
    del batch
    await stream.append(payload)
    await stream.append(memoryview(payload)[80:])
    await stream.append(np.frombuffer(lent, np.int64)[20:])
    batches = [batch async for batch in stream.read(start=1)]
    assert [len(each.values[0] or b"") for each in batches] == [79_992, 79_912, 79_832]


WRITABLE: dict[str, Callable[[bytes], Any]] = {
    "bytearray": bytearray,
    "read-only view of a bytearray": lambda data: memoryview(bytearray(data)).toreadonly(),
    "numpy": lambda data: np.array(np.frombuffer(data, np.uint8)),
    "array": lambda data: array.array("B", data),
    "arrow": lambda data: pa.py_buffer(bytearray(data)),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", WRITABLE)
async def test_writable_data_is_copied_at_once(aclient: sbp.AsyncClient, name: str, kind: str) -> None:
    stream = await aclient.create_stream(name)
    data = bytes(range(256)) * 400
    given = WRITABLE[kind](data)
    operation = stream.append(given)
    under = given.obj if isinstance(given, memoryview) else given
    memoryview(under).cast("B")[:] = bytes(len(data))
    await operation
    [batch] = [batch async for batch in stream.read()]
    assert batch.values == [data]


def test_a_read_only_array_that_owns_its_memory_is_copied(client: sbp.Client, name: str) -> None:
    numbers = np.arange(20_000)
    numbers.flags.writeable = False
    pairs = np.zeros(3, dtype=[("a", np.int32), ("b", np.int8)])
    stream = filled(
        client, name, [numbers, numbers[::-2], np.asfortranarray(numbers.reshape(100, 200)), numbers[:0], pairs]
    )
    found = [value for batch in stream.read() for value in batch.values]
    assert found == [
        numbers.tobytes(),
        numbers[::-2].tobytes(),
        numbers.tobytes(),
        b"",
        pairs.tobytes(),
    ]
