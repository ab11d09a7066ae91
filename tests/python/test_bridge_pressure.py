"""Back-pressure: by calls and by bytes, and nothing piles up without a bound."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import sbp_native as sbp


@pytest.fixture
def proxy(server: sbp.Server) -> Iterator[sbp.Proxy]:
    with sbp.Proxy(server.address) as running:
        yield running


@pytest_asyncio.fixture
async def aclient(proxy: sbp.Proxy) -> AsyncIterator[sbp.AsyncClient]:
    async with sbp.aio.connect(proxy.address, timeout=20, max_in_flight_calls=4, max_in_flight_bytes=10_000) as client:
        yield client


@pytest.fixture
def client(proxy: sbp.Proxy) -> Iterator[sbp.Client]:
    with sbp.connect(proxy.address, timeout=20, max_in_flight_calls=4, max_in_flight_bytes=10_000) as connected:
        yield connected


@pytest.mark.asyncio
async def test_calls_are_bounded(proxy: sbp.Proxy, aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    sent = proxy.stats()["frames_to_server"]
    with proxy.hold("answer APPEND"):
        accepted = [stream.try_append(b"%d" % n) for n in range(4)]
        with pytest.raises(sbp.BackPressureError, match="4 appends") as refused:
            stream.try_append(b"refused")
        assert refused.value.code == 9008
        assert refused.value.retriable
        assert not refused.value.indeterminate
        waiting = [stream.append(b"%d" % n) for n in range(4, 20)]
        await until(lambda: aclient.stats()["in_flight"] == 20)
        assert proxy.stats()["frames_to_server"] - sent <= 4, "the others wait"
    acks = await asyncio.gather(*accepted, *waiting)
    assert [ack.base_offset for ack in acks] == list(range(20)), "what was refused was not stored, the rest is in order"
    assert (await stream.try_append(b"there is room again")).base_offset == 20


@pytest.mark.asyncio
async def test_bytes_are_bounded(proxy: sbp.Proxy, aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    with proxy.hold("answer APPEND"):
        large = stream.try_append(b"x" * 50_000)  # over the bound by itself: it may go alone
        with pytest.raises(sbp.BackPressureError):
            stream.try_append(b"refused")
    await large
    with proxy.hold("answer APPEND"):
        accepted = [stream.try_append(b"x" * 4_000) for _ in range(2)]
        with pytest.raises(sbp.BackPressureError):
            stream.try_append(b"x" * 4_000)
        accepted.append(stream.try_append(b"x" * 1_000))
    assert len(await asyncio.gather(*accepted)) == 3


@pytest.mark.asyncio
async def test_waiting_appends_keep_their_deadlines(proxy: sbp.Proxy, aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    with proxy.hold("answer APPEND"):
        sent = [stream.append(b"%d" % n) for n in range(4)]
        with pytest.raises(sbp.DeadlineExceededError) as late:
            await stream.append(b"never sent", timeout=0.3)
        assert not late.value.indeterminate
    assert [(await each).base_offset for each in sent] == [0, 1, 2, 3]
    assert (await stream.positions()).latest == 4


@pytest.mark.asyncio
async def test_waiting_appends_can_be_cancelled(proxy: sbp.Proxy, aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    with proxy.hold("answer APPEND"):
        operations = [stream.append(b"%d" % n) for n in range(20)]
        await until(lambda: aclient.stats()["in_flight"] == 20)
        for operation in operations:
            assert operation.cancel()
    await until(lambda: aclient.stats()["operations"] == 0 and aclient.stats()["in_flight"] == 0)
    assert aclient.stats()["bytes_in_flight"] == 0


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_appends_pile_up_only_so_far(proxy: sbp.Proxy, name: str) -> None:
    """A program that never waits for an append is told before it has used up the memory."""
    async with sbp.aio.connect(proxy.address, timeout=60) as client:
        stream = await client.create_stream(name)
        record = b"x" * (8 << 20)  # the same object each time: what counts is what would be sent
        operations: list[sbp.Operation[sbp.Ack]] = []
        with proxy.hold("answer APPEND"):
            with pytest.raises(sbp.BackPressureError, match="or wait for it"):
                for _ in range(10_000):
                    operations.append(stream.append(record))
                    if len(operations) % 64 == 0:
                        await asyncio.sleep(0)
            assert 128 <= len(operations) <= 256
            for operation in operations:
                operation.cancel()
            proxy.cut()


def test_blocking_appends_wait_or_are_refused(proxy: sbp.Proxy, client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    acks: list[sbp.Ack] = []
    with proxy.hold("answer APPEND"):
        threads = [threading.Thread(target=lambda: acks.append(stream.append(b"x"))) for _ in range(6)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while client.stats()["in_flight"] < 6 and time.monotonic() < deadline:
            time.sleep(0.005)
        with pytest.raises(sbp.BackPressureError):
            stream.try_append(b"refused")
    for thread in threads:
        thread.join(20)
    assert sorted(ack.base_offset for ack in acks) == list(range(6))
    assert stream.try_append(b"there is room").base_offset == 6


async def until(condition: object, seconds: float = 20) -> None:
    """Waits until ``condition()`` holds."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
