"""The embedded server under asyncio, and the fault proxy as users have it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

import sbp_native as sbp
from sbp_native import testing


@pytest.mark.asyncio
async def test_a_server_under_asyncio(tmp_path: Path) -> None:
    server = sbp.Server(tmp_path)
    assert "not started" in repr(server)
    assert not list(tmp_path.iterdir()), "nothing happens on the loop's thread"
    async with server as entered:
        assert entered is server
        assert "running" in repr(server)
        async with sbp.aio.connect(server.address) as client:
            stream = await client.create_stream("s")
            assert (await stream.append(b"x")).base_offset == 0
        assert server.error is None
    with pytest.raises(sbp.ClosedError):
        server.stats()
    async with sbp.Server(tmp_path) as again, sbp.aio.connect(again.address) as client:
        assert (await (await client.stream("s")).append(b"y")).base_offset == 1


@pytest.mark.asyncio
async def test_starting_and_closing_leave_the_loop_free(tmp_path: Path) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    before = turns
    async with sbp.Server(tmp_path):
        during = turns
    # Both wait for the disk; a loop that is not blocked turns many times meanwhile.
    assert during > before + 5
    assert turns > during + 5
    counting.cancel()


@pytest.mark.asyncio
async def test_a_server_in_a_loop_is_started_by_its_first_use(tmp_path: Path) -> None:
    server = sbp.Server(tmp_path)
    async with sbp.aio.connect(server.address) as client:
        assert await client.ping() > 0
    server.close()
    with sbp.Server(tmp_path) as other:
        assert "running" in repr(other)


@pytest.mark.asyncio
async def test_a_server_that_cannot_start_says_so_where_it_is_entered(tmp_path: Path) -> None:
    async with sbp.Server(tmp_path) as server:
        other = sbp.Server(listen=server.address)
        with pytest.raises(sbp.PortTakenError):
            async with other:
                pass
    # What was in the way is gone.
    async with other:
        assert other.address == server_address(other)


def server_address(server: sbp.Server) -> str:
    """What the server listens on."""
    return server.listening


@pytest.mark.asyncio
async def test_a_server_that_was_never_started_is_closed() -> None:
    server = sbp.Server()
    server.close()
    with pytest.raises(sbp.ClosedError):
        await server.__aenter__()


def test_a_server_advertises_another_address() -> None:
    with sbp.Proxy() as proxy, sbp.Server(advertise=proxy.address) as server:
        assert server.address == proxy.address
        assert server.listening != proxy.address
        proxy.target = server.listening
        with sbp.connect(server.address) as client:
            client.create_stream("s").append(b"x")
        assert proxy.stats()["connections"] >= 1


def test_rules(server: sbp.Server, name: str) -> None:
    with sbp.Proxy(server) as proxy, sbp.connect(proxy.address, timeout=20) as client:
        assert proxy.target == server.address
        stream = client.create_stream(name)
        lost = proxy.add("drop answer APPEND times=1")
        with pytest.raises(sbp.OutcomeUnknownTimeoutError):
            stream.append(b"a", timeout=0.3)
        (rule,) = proxy.rules
        assert (rule.id, rule.text, rule.fired) == (lost, "drop answer APPEND times=1", 1)
        assert proxy.remove(lost).fired == 1
        with pytest.raises(KeyError):
            proxy.remove(lost)
        proxy.add("cut answer APPEND times=1")
        with pytest.raises(sbp.ConnectionLostError) as cut:
            stream.append(b"b")
        assert cut.value.indeterminate
        proxy.add("delay=20ms")
        assert stream.append(b"c").base_offset == 2
        proxy.clear()
        assert proxy.rules == []
        figures = proxy.stats()
        assert figures["dropped"] == figures["cut"] == 1
        assert figures["delayed"] >= 1
        assert [r.value for batch in stream.read() for r in batch.records()] == [b"a", b"b", b"c"]


def test_a_rule_that_makes_no_sense_is_explained(server: sbp.Server) -> None:
    with sbp.Proxy(server) as proxy:
        for rule, says in (("dorp", "is no fault"), ("drop NOTHING", "is no condition"), ("drop nth=0", "above 0")):
            with pytest.raises(ValueError, match=says):
                proxy.add(rule)
        with pytest.raises(ValueError, match="is no condition"):
            proxy.hold("whatever")
    with pytest.raises(ValueError, match="is no fault"):
        sbp.Proxy(server, rules=["dorp"])


def test_a_frame_is_held_until_somebody_decides(server: sbp.Server, name: str) -> None:
    with sbp.Proxy(server) as proxy, sbp.connect(proxy.address, timeout=20) as client:
        stream = client.create_stream(name)
        outcomes: list[object] = []

        def append(value: bytes) -> threading.Thread:
            def work() -> None:
                try:
                    outcomes.append(stream.append(value, timeout=5).base_offset)
                except sbp.SbpError as error:
                    outcomes.append(type(error))

            thread = threading.Thread(target=work)
            thread.start()
            return thread

        with proxy.hold("answer APPEND") as frames:
            thread = append(b"a")
            frame = frames.wait()
            assert "answer APPEND" in repr(frame)
            assert frame.data
            with sbp.connect(server.address) as direct:
                assert direct.stream(name).positions().latest == 1, "stored, and the client does not know"
            assert outcomes == []
            frame.forward()
            thread.join()
            assert outcomes == [0]
            decided: bytes | None = frame.data
            assert decided is None
            with pytest.raises(RuntimeError, match="before"):
                frame.cut()
            thread = append(b"b")
            frames.wait().cut()
            thread.join()
            assert outcomes == [0, sbp.ConnectionLostError]
            with pytest.raises(TimeoutError):
                frames.wait(0.01)
            thread = append(b"c")
            kept = frames.wait()
        # What is still in our hands is not released with the others.
        assert outcomes == [0, sbp.ConnectionLostError]
        del kept
        thread.join()
        assert outcomes == [0, sbp.ConnectionLostError, 2]
        assert proxy.rules == []


def test_a_frame_is_held_when_nobody_keeps_it(server: sbp.Server, name: str) -> None:
    with sbp.Proxy(server) as proxy, sbp.connect(proxy.address) as client:
        stream = client.create_stream(name)
        offsets: list[int] = []
        thread = threading.Thread(target=lambda: offsets.append(stream.append(b"x").base_offset))
        with proxy.hold("answer APPEND") as frames:
            thread.start()
            frames.wait()
            thread.join(0.5)
            assert offsets == []
        thread.join()
        assert offsets == [0]


def test_connections_are_cut_and_targets_change(server: sbp.Server, name: str) -> None:
    with sbp.Proxy() as proxy:
        assert proxy.target is None
        with pytest.raises(sbp.RejectedError), sbp.connect(proxy.address, timeout=0.3) as nowhere:
            nowhere.ping()
        proxy.target = server
        with sbp.connect(proxy.address, timeout=20) as client:
            stream = client.create_stream(name)
            before = proxy.stats()["connections"]
            proxy.cut()
            # A question is asked again on the next connection; an append that the cut met would be in doubt.
            assert stream.positions().latest == 0
            assert stream.append(b"x").base_offset == 0
            testing.eventually(lambda: proxy.stats()["connections"] > before)
        proxy.target = None
        assert proxy.target is None


def test_closing_a_proxy_frees_its_port(server: sbp.Server) -> None:
    proxy = sbp.Proxy(server)
    host, _, port = proxy.address.rpartition(":")
    proxy.close()
    proxy.close()
    assert "closed" in repr(proxy)
    with pytest.raises(sbp.ClosedError):
        proxy.stats()
    with socket.create_server((host, int(port))):
        pass
    with sbp.Proxy(server) as other, pytest.raises(sbp.PortTakenError):
        sbp.Proxy(server, listen=other.address)
    with pytest.raises(sbp.ServerConfigError):
        sbp.Proxy(server, listen="0.0.0.0:0")


@pytest.mark.asyncio
async def test_a_proxy_under_asyncio(server: sbp.Server, name: str) -> None:
    async with sbp.Proxy(server) as proxy, sbp.aio.connect(proxy.address) as client:
        stream = await client.create_stream(name)
        with proxy.hold("answer APPEND") as frames:
            appending = stream.append(b"x")
            frame = await asyncio.to_thread(frames.wait)
            assert not appending.done()
            frame.forward()
            assert (await appending).base_offset == 0


def test_the_same_seed_meets_the_same_faults() -> None:
    def fired(seed: int) -> list[int]:
        figures = []
        rule = "duplicate request PING probability=0.5"
        with testing.proxied(rule, seed=seed) as proxy, sbp.connect(proxy.address, timeout=20) as client:
            for _ in range(20):
                client.ping()
                figures.append(proxy.rules[0].fired)
        return figures

    assert fired(7) == fired(7)
    assert fired(7) != fired(8)


def test_names_are_unique_and_conditions_are_waited_for() -> None:
    assert len({testing.unique_name("s") for _ in range(100)}) == 100
    assert str(os.getpid()) in testing.unique_name()
    seen: list[int] = []
    testing.eventually(lambda: seen.append(1) or len(seen) > 3)
    with pytest.raises(TimeoutError):
        testing.eventually(lambda: False, timeout=0.01)
