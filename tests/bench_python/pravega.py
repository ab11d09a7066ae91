"""Pravega's clients and a server of ours: this one and the Python package `pravega`, beside streams of our own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from sbp_native import pravega
from tests.bench import native

from .seastar import last_word

SCOPE = "bench"


@contextmanager
def serve() -> Iterator[tuple[str, str]]:
    """`sbp serve` without durability: the addresses for its own clients and for those of Pravega."""
    with native.serve_process("none", options=("--pravega-listen", "127.0.0.1:0")) as (address, child):
        place = last_word(child)
        with pravega.connect(place) as client:
            client.create_scope(SCOPE)
        yield address, place


def awaited(address: str, name: str, in_flight: int, total: int, size: int = 64) -> float:
    """Events a second, each awaited until it is acknowledged, from so many tasks."""
    event = bytes(size)

    async def main() -> float:
        async with pravega.aio.connect(address) as client:
            await client.create_stream(f"{SCOPE}/{name}", 1)
            async with client.writer(f"{SCOPE}/{name}") as writer:

                async def worker() -> None:
                    for _ in range(total // in_flight):
                        await writer.append(event)

                started = time.perf_counter()
                await asyncio.gather(*(worker() for _ in range(in_flight)))
                return total // in_flight * in_flight / (time.perf_counter() - started)

    return asyncio.run(main())


def awaited_by_package(address: str, name: str, in_flight: int, total: int, size: int = 64) -> float:
    """The same with the package `pravega`, a writer for each thread: a flush waits for all events of its writer."""
    import pravega_client

    manager = pravega_client.StreamManager(f"tcp://{address}", False, False)
    manager.create_stream(SCOPE, name, 1)
    event = bytes(size)
    writers = [manager.create_writer(SCOPE, name) for _ in range(in_flight)]

    def work(number: int) -> None:
        for _ in range(total // in_flight):
            writers[number].write_event_bytes(event)
            writers[number].flush()

    with ThreadPoolExecutor(in_flight) as threads:
        started = time.perf_counter()
        list(threads.map(work, range(in_flight)))
        return total // in_flight * in_flight / (time.perf_counter() - started)


def written(address: str, name: str, rows: int) -> float:
    """Events of 100 bytes a second, handed over as lists of which sixteen are under way, until all are acknowledged."""
    events = [native.ROW] * native.ROWS_PER_BATCH

    async def main() -> float:
        async with pravega.aio.connect(address) as client:
            await client.create_stream(f"{SCOPE}/{name}", 1)
            async with client.writer(f"{SCOPE}/{name}") as writer:
                window = asyncio.Semaphore(16)

                async def one() -> None:
                    async with window:
                        await writer.append_many(events)

                started = time.perf_counter()
                await asyncio.gather(*(one() for _ in range(rows // native.ROWS_PER_BATCH)))
                return rows / (time.perf_counter() - started)

    return asyncio.run(main())


def written_by_package(address: str, name: str, rows: int) -> float:
    """Events of 100 bytes a second through the package `pravega`, one by one, until all are flushed."""
    import pravega_client

    manager = pravega_client.StreamManager(f"tcp://{address}", False, False)
    manager.create_stream(SCOPE, name, 1)
    writer = manager.create_writer(SCOPE, name)
    started = time.perf_counter()
    for _ in range(rows):
        writer.write_event_bytes(native.ROW)
    writer.flush()
    return rows / (time.perf_counter() - started)


def fetch(address: str, name: str, rows: int) -> float:
    """Events a second as Arrow."""
    with pravega.connect(address) as client:
        started = time.perf_counter()
        seen = sum(batch.to_arrow().num_rows for batch in client.read(f"{SCOPE}/{name}", end="latest"))
        elapsed = time.perf_counter() - started
    if seen != rows:
        raise RuntimeError(f"{seen} events came back, {rows} were written")
    return seen / elapsed
