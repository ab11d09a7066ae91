"""Nothing grows with use: memory, descriptors, threads, objects of the collector, entries of the bridge.

The short form measures over 40,000 operations after 8,000 others. With ``SBP_SOAK`` set to a number, that many
are made altogether, and growth counts after the first fifth: ``make test-long`` makes a million.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sbp_native as sbp

TOTAL = int(os.environ.get("SBP_SOAK", "48000"))
WARM = TOTAL // 5
GROWTH = 8 << 20
IN_FLIGHT = 64


def resident() -> int:
    """Bytes of memory of this process that are in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def held(client: sbp.AsyncClient) -> dict[str, float]:
    gc.collect()
    stats = client.stats()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count() + len(os.listdir("/proc/self/task")),
        "objects": len(gc.get_objects()),
        "operations": stats["operations"],
        "in_flight": stats["in_flight"],
        "bytes_pinned": stats["bytes_pinned"],
    }


async def mixture(client: sbp.AsyncClient, stream: sbp.AsyncStream, operations: int) -> None:
    """Appends of several kinds, reads, look-ups, failures and cancellations, as services make them."""
    left = operations
    large = b"x" * 20_000

    async def worker(number: int) -> None:
        nonlocal left
        step = number
        while left > 0:
            step += 1
            left -= 1
            if step % 500 == 0:
                await client.ping()
            match step % 50:
                case 5:
                    assert stream.id in [info.id for info in await client.list_streams()]
                case 10:
                    await stream.append([b"a", b"b", b"c"])
                case 20:
                    await stream.append(large)
                case 30:
                    with pytest.raises(sbp.NotFoundError):
                        await client.stream("no such stream")
                case 40:
                    stream.append(b"cancelled").cancel()
                    await asyncio.sleep(0)
                case 45:
                    end = (await stream.positions()).latest
                    async for batch in stream.read(start=max(0, end - 2), end=end):
                        assert len(batch.payloads) > 0
                case _:
                    await stream.append(b"x" * 64)

    await asyncio.gather(*(worker(number) for number in range(IN_FLIGHT)))


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of a server in a process of its own, so that what it keeps of the streams is not measured."""
    script = """
        import sys
        import sbp_native as sbp

        with sbp.Server(durability="none") as server:
            print(server.address, flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate(timeout=30)


@pytest.mark.alone
@pytest.mark.timeout(3_600)
def test_nothing_grows(elsewhere: str) -> None:
    async def main() -> tuple[dict[str, float], dict[str, float], int]:
        async with sbp.aio.connect(elsewhere) as client:
            stream = await client.create_stream("soak")
            await mixture(client, stream, WARM)
            await settled(client)
            before, memory = held(client), resident()
            await mixture(client, stream, TOTAL - WARM)
            await settled(client)
            return before, held(client), resident() - memory

    before, after, growth = asyncio.run(main())
    print(f"{TOTAL} operations: {growth / 2**20:.1f} MiB more after the first {WARM}; {before} -> {after}")
    assert after["operations"] == after["in_flight"] == after["bytes_pinned"] == 0
    assert after["descriptors"] <= before["descriptors"]
    assert after["threads"] <= before["threads"]
    # Caches of the interpreter and of asyncio move by a few objects; one for each thousandth operation would show.
    assert after["objects"] - before["objects"] < min(100, (TOTAL - WARM) // 1_000)
    assert growth < GROWTH


async def settled(client: sbp.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while client.stats()["operations"] or client.stats()["in_flight"]:
            await asyncio.sleep(0.01)
    await client.ping()
