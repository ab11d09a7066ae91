"""Streams by key: where records go, how many streams there are, and reading them back as one."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import sbp_native as sbp


def by_key(batches: sbp.Batches) -> dict[bytes, list[bytes | None]]:
    found: defaultdict[bytes, list[bytes | None]] = defaultdict(list)
    for batch in batches:
        for record in batch.records():
            assert record.key is not None
            found[record.key].append(record.value)
    return dict(found)


def test_records_of_a_key_are_in_one_stream_and_in_order(client: sbp.Client, name: str) -> None:
    orders = sbp.keyed(client, name, 4)
    assert orders.name == name
    assert list(orders) == list(orders.streams) == [f"{name}-{n}" for n in range(4)]
    assert len(orders) == 4
    keys = [f"customer-{n}" for n in range(20)]
    for turn in range(3):
        for key in keys:
            ack = orders.append(key, b"%d" % turn)
            assert ack.stream == orders.stream_of(key) == f"{name}-{zlib.crc32(key.encode()) % 4}"
    assert by_key(orders.read()) == {key.encode(): [b"0", b"1", b"2"] for key in keys}
    assert sum(len(held) for held in orders.positions().values()) == 60
    assert set(orders.positions()) == set(orders)


def test_keys_are_bytes_or_text(client: sbp.Client, name: str) -> None:
    orders = client.keyed(name, 8)
    same: list[bytes | str | bytearray | memoryview] = [
        b"k\xc3\xa9y",
        "kéy",
        bytearray(b"k\xc3\xa9y"),
        memoryview(b"k\xc3\xa9y"),
    ]
    assert len({orders.stream_of(key) for key in same}) == 1
    acks = [orders.append(key, b"x", headers={"h": b"v"}, timestamp=5) for key in same]
    assert [ack.base_offset for ack in acks] == [0, 1, 2, 3]
    records = [record for batch in orders.read() for record in batch.records()]
    assert {(record.key, record.timestamp, tuple(record.headers)) for record in records} == {
        (b"k\xc3\xa9y", 5_000, (("h", b"v"),))
    }
    assert orders.stream_of(b"") == orders.stream_of("") == f"{name}-0"
    for wrong in [None, 5, ["k"]]:
        with pytest.raises(TypeError, match="key"):
            orders.append(wrong, b"x")  # type: ignore[arg-type]


def test_many_records_go_in_one_frame(client: sbp.Client, name: str) -> None:
    orders = client.keyed(name, 4)
    items = [(f"k{n % 10}", b"%d" % n) for n in range(200)]
    before = client.stats()["calls"]
    acks = orders.append_all(items)
    assert client.stats()["calls"] - before == 1
    assert sum(len(ack) for ack in acks.values()) == 200
    assert all(ack.stream == stream for stream, ack in acks.items())
    assert by_key(orders.read()) == {b"k%d" % k: [b"%d" % n for n in range(k, 200, 10)] for k in range(10)}
    acks = orders.append_all((key, None) for key in [b"gone"])
    assert [len(ack) for ack in acks.values()] == [1]
    with pytest.raises(ValueError, match="no records"):
        orders.append_all([])
    for wrong in [[b"value"], [(b"k", b"v", b"x")], [b"kv"]]:
        with pytest.raises(TypeError, match=r"pairs|key"):
            orders.append_all(wrong)  # type: ignore[arg-type]


def test_the_number_of_streams_is_remembered(server: sbp.Server, client: sbp.Client, name: str) -> None:
    with pytest.raises(sbp.StreamNotFoundError):
        client.keyed(name)
    client.keyed(name, 3).append("k", b"v")
    with sbp.connect(server.address) as another:
        assert another.keyed(name).streams == another.keyed(name, 3).streams
        for wrong in [2, 4, 1]:
            with pytest.raises(sbp.AlreadyExistsError, match="3 streams"):
                another.keyed(name, wrong)
        with pytest.raises(sbp.StreamNotFoundError):
            another.stream(f"{name}-3")
    for nonsense in [0, 1025]:
        with pytest.raises(ValueError, match="1 to 1024"):
            client.keyed(f"{name}-other", nonsense)


def test_missing_streams_are_made_and_others_left_alone(client: sbp.Client, name: str) -> None:
    # As if the process that began to make them had been killed behind the first.
    made = client.keyed(name, 3)
    for each in made.streams[1:]:
        client.delete_stream(each)
    assert list(client.keyed(name, 3)) == list(client.keyed(name)) == list(made)
    client.create_stream(f"{name}/plain-0")
    with pytest.raises(sbp.AlreadyExistsError, match="something else"):
        client.keyed(f"{name}/plain", 2)
    client.create_stream(f"{name}/late-1")
    with pytest.raises(sbp.AlreadyExistsError, match="something else"):
        client.keyed(f"{name}/late", 2)


def test_of_two_that_make_them_at_once_one_settles_how_many(server: sbp.Server, client: sbp.Client, name: str) -> None:
    def make(number: int) -> int:
        with sbp.connect(server.address) as own:
            together.wait(20)
            try:
                return len(own.keyed(name, number))
            except sbp.AlreadyExistsError:
                return 0

    numbers = [2, 3, 4, 2, 3, 4]
    together = threading.Barrier(len(numbers))
    with ThreadPoolExecutor(len(numbers)) as pool:
        made = set(pool.map(make, numbers)) - {0}
    assert made == {len(client.keyed(name))}
    streams = [info.name for info in client.list_streams() if info.name.startswith(f"{name}-")]
    assert sorted(streams) == sorted(client.keyed(name)), "and the others have made none"


def test_settings_may_change_but_not_what_they_are(client: sbp.Client, name: str) -> None:
    made = client.keyed(name, 2)
    client.update_stream(made.streams[1], retention=3600)
    assert list(client.keyed(name, 2)) == list(made)


def test_they_are_followed_as_one_and_by_a_cursor(client: sbp.Client, name: str) -> None:
    orders = client.keyed(name, 4)
    tail = orders.tail(timeout=20)
    orders.append_all([(f"k{n}", b"%d" % n) for n in range(16)])
    seen = 0
    for batch in tail:
        seen += len(batch)
        if seen == 16:
            break
    cursor = client.cursor(name, orders)
    assert cursor.streams == orders.streams
    assert len(by_key(cursor.read())) == 16
    cursor.commit()
    assert sum(client.cursor(name, orders.streams).positions.values()) == 16


@pytest.mark.asyncio
async def test_the_same_verbs_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    orders = await sbp.keyed(aclient, name, 4)
    assert (orders.name, len(orders)) == (name, 4)
    acks = await asyncio.gather(*(orders.append(f"k{n % 5}", b"%d" % n) for n in range(50)))
    assert all(ack.stream == orders.stream_of(f"k{n % 5}") for n, ack in enumerate(acks))
    stored = await orders.append_all([("k0", b"50"), ("k1", b"51")])
    assert sum(len(ack) for ack in stored.values()) == 2
    found: defaultdict[bytes | None, list[int]] = defaultdict(list)
    async for batch in orders.read():
        for record in batch.records():
            found[record.key].append(int(record.value or b""))
    assert {key: sorted(numbers) for key, numbers in found.items()} == found, "in order by key"
    assert sum(map(len, found.values())) == 52
    assert sum(len(held) for held in (await orders.positions()).values()) == 52
    assert list(await aclient.keyed(name)) == list(orders)
    async for batch in orders.tail("earliest"):
        assert batch.stream in orders.streams
        break
    assert name in repr(orders)


def test_a_writer_to_all_of_them(client: sbp.Client, name: str) -> None:
    orders = client.keyed(name, 4)
    reports: list[sbp.DeliveryReport] = []
    with orders.writer(linger=0.001, on_delivery=reports.append) as writer:
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for n in range(500):
            number = writer.append(f"k{n % 10}", b"%d" % n, headers={"n": b"%d" % n})
            numbers[orders.stream_of(f"k{n % 10}")].append(number)
        writer.flush(timeout=30)
        assert writer.unflushed == 0
        writer.append(b"k0", b"500")
        assert name in repr(writer)
    assert all(found == list(range(len(found))) for found in numbers.values()), "numbered stream by stream"
    assert by_key(orders.read()) == {
        b"k%d" % k: [b"%d" % n for n in range(k, 501 if k == 0 else 500, 10)] for k in range(10)
    }
    stored = {report.ack.stream for report in reports if report.ack}
    assert stored == {orders.stream_of(f"k{n}") for n in range(10)}
    with pytest.raises(sbp.ClosedError):
        writer.append("k", b"v")
    with pytest.raises(ValueError, match="batch_bytes"):
        orders.writer(batch_bytes=0)


def test_a_writer_tells_of_a_stream_that_is_gone(client: sbp.Client, name: str) -> None:
    orders = client.keyed(name, 2)
    writer = orders.writer()
    keys = {orders.stream_of(f"k{n}"): f"k{n}" for n in range(10)}
    client.delete_stream(orders.streams[0])
    for key in keys.values():
        writer.append(key, b"v")
    with pytest.raises(sbp.StreamNotFoundError):
        writer.flush()
    writer.close()
    assert [value for values in by_key(client.read(orders.streams[1])).values() for value in values] == [b"v"]


@pytest.mark.asyncio
async def test_a_writer_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    orders = await aclient.keyed(name, 3)
    async with orders.writer() as writer:
        for n in range(300):
            await writer.append(f"k{n % 7}", b"%d" % n)
        await writer.flush(timeout=30)
        assert writer.unflushed == 0
        await writer.append("k0", b"300")
    found: defaultdict[bytes | None, list[int]] = defaultdict(list)
    async for batch in orders.read():
        for record in batch.records():
            found[record.key].append(int(record.value or b""))
    assert dict(found) == {b"k%d" % k: [*range(k, 300, 7), *([300] if k == 0 else [])] for k in range(7)}
    opened = await orders.writer()
    await opened.append(b"k", b"v")
    await opened.close()
    assert name in repr(opened)
