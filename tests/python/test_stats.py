"""What ``stats()`` tells, and what it costs to count."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sbp_native as sbp

COUNTERS = {
    "calls", "answers", "in_flight", "bytes_in_flight", "bytes_out", "bytes_in", "bytes_copied", "bytes_pinned",
    "connections", "reads", "writes", "io_wakeups",
    "round_trips", "rtt_p50", "rtt_p90", "rtt_p99", "rtt_max",
}  # fmt: skip


def test_the_blocking_client_counts(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        stream = client.create_stream(name)
        before = client.stats()
        assert set(before) == COUNTERS
        for _ in range(20):
            stream.append(b"x" * 1_000)
        after = client.stats()
    assert after["calls"] - before["calls"] == 20
    assert after["answers"] - before["answers"] == 20
    assert after["round_trips"] - before["round_trips"] == 20
    assert 20_000 < after["bytes_out"] - before["bytes_out"] < 40_000
    assert after["writes"] - before["writes"] <= 20
    assert (after["in_flight"], after["bytes_in_flight"], after["connections"]) == (0, 0, 1)


def test_round_trips_are_in_order_and_in_seconds(server: sbp.Server) -> None:
    with sbp.connect(server.address) as client:
        measured = [client.ping() for _ in range(50)]
        stats = client.stats()
    assert stats["round_trips"] >= 50
    assert 0 < stats["rtt_p50"] <= stats["rtt_p90"] <= stats["rtt_p99"] <= stats["rtt_max"]
    # Kept in whole microseconds.
    assert stats["rtt_max"] >= max(measured) * 0.999 - 1e-6
    # HEARTBEAT, DESCRIBE and the like are measured too, so the median of the pings is only near the one of all.
    assert sorted(measured)[5] * 0.9 <= stats["rtt_p50"] <= max(measured) * 1.1


@pytest.mark.asyncio
async def test_the_asynchronous_client_counts_its_loop_too(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as client:
        stream = await client.create_stream(name)
        before = client.stats()
        assert set(before) == COUNTERS | {"wakeups", "completions", "operations"}
        waiting = anext(stream.tail())
        operations = [stream.append(b"x" * 1_000) for _ in range(10)]
        assert client.stats()["operations"] == 11
        await asyncio.gather(*operations)
        after = client.stats()
        assert after["completions"] - before["completions"] >= 10
        assert after["wakeups"] > before["wakeups"]
        assert (await waiting).base_offset == 0


@pytest.mark.asyncio
async def test_what_is_on_its_way_is_seen(server: sbp.Server, name: str) -> None:
    with sbp.Proxy(server.address) as proxy:
        async with sbp.aio.connect(proxy.address) as client:
            stream = await client.create_stream(name)
            with proxy.hold("answer") as held:
                operations = [stream.append(b"x" * 1_000) for _ in range(10)]
                ping = stream.positions()
                await asyncio.to_thread(held.wait)
                stats = client.stats()
                assert stats["in_flight"] >= 11
                assert 10_000 < stats["bytes_in_flight"] < 20_000
                proxy.cut()
            everything: list[sbp.Operation[Any]] = [*operations, ping]
            await asyncio.gather(*everything, return_exceptions=True)


def test_a_server_counts_what_it_stores_syncs_and_refuses(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        stream = client.create_stream(name)
        before = server.stats()
        stream.append(b"x")
        with pytest.raises(sbp.errors.SbpError):
            stream.append(b"y", expected_offset=7)
        after = server.stats()
    grown = {key: after[key] - before[key] for key in ("appends", "records_appended", "refusals")}  # type: ignore[operator]
    assert grown == {"appends": 1, "records_appended": 1, "refusals": 1}
    assert after["damaged_ranges"] == 0
    with sbp.Server(durability="fsync") as durable, sbp.connect(durable.address) as client:
        client.create_stream(name).append(b"x")
        stats = durable.stats()
    assert isinstance(stats["syncs"], int)
    assert stats["syncs"] >= 1
    assert isinstance(stats["sync_seconds"], float)
    assert stats["sync_seconds"] > 0
