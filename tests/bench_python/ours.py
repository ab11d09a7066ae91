"""The Python client: what it does a second, and what it costs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import sbp_native as sbp
from tests.bench.native import ROW, ROWS_PER_BATCH

from . import paced


def _row_batches(rows: int) -> int:
    return max(1, rows // ROWS_PER_BATCH)


def produce(address: str, name: str, rows: int, replicas: int | None = None, acks: int | None = None) -> float:
    """Records a second, lists of them appended until all are acknowledged; every append returns its offsets. The stream
    has so many copies, or one."""

    async def main() -> float:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(name, replicas=replicas, acks=acks, exist_ok=True)
            records = [ROW] * ROWS_PER_BATCH
            await stream.append(records)
            window = asyncio.Semaphore(16)

            async def one() -> None:
                async with window:
                    await stream.append(records)

            count = _row_batches(rows)
            started = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(count)))
            return count * ROWS_PER_BATCH / (time.perf_counter() - started)

    return asyncio.run(main())


def write(address: str, name: str, rows: int, *, lists: bool) -> float:
    """Records a second through an idempotent writer, one by one or as lists, until all are acknowledged."""
    with sbp.connect(address) as client:
        client.create_stream(name, exist_ok=True)
        records = [ROW] * ROWS_PER_BATCH
        count = _row_batches(rows)
        started = time.perf_counter()
        with client.writer(name) as writer:
            for _ in range(count):
                if lists:
                    writer.append(records)
                else:
                    for record in records:
                        writer.append(record)
        return count * ROWS_PER_BATCH / (time.perf_counter() - started)


def produce_arrow(address: str, name: str, rows: int) -> float:
    """Rows a second from Arrow tables of one binary column `value`, 100 bytes each."""
    import pyarrow as pa

    async def main() -> float:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(name, exist_ok=True)
            table = pa.table({"value": pa.array([ROW] * ROWS_PER_BATCH, pa.binary())})
            await stream.append(table)
            window = asyncio.Semaphore(16)

            async def one() -> None:
                async with window:
                    await stream.append(table)

            count = _row_batches(rows)
            started = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(count)))
            return count * ROWS_PER_BATCH / (time.perf_counter() - started)

    return asyncio.run(main())


def hand_over_ns(address: str, name: str, rows: int = 2_000_000) -> tuple[float, float]:
    """CPU per 100-byte record of a list, nanoseconds: of the loop's thread, which encodes and hands over; and of the
    whole client, which also writes to the socket."""

    async def main() -> tuple[float, float]:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(name, exist_ok=True)
            records = [ROW] * ROWS_PER_BATCH
            await stream.append(records)
            count = _row_batches(rows)
            thread, process = time.thread_time(), time.process_time()
            for start in range(0, count, 16):
                await asyncio.gather(*(stream.append(records) for _ in range(min(16, count - start))))
            taken = (time.thread_time() - thread, time.process_time() - process)
            return taken[0] / (count * ROWS_PER_BATCH) * 1e9, taken[1] / (count * ROWS_PER_BATCH) * 1e9

    return asyncio.run(main())


def fetch(address: str, name: str, rows: int, how: str) -> float:
    """Rows a second as `arrow`, `bytes` (a list of them) or `records` (objects)."""
    with sbp.connect(address) as client:
        seen = 0
        started = time.perf_counter()
        for batch in client.stream(name).read():
            match how:
                case "arrow":
                    seen += batch.to_arrow().num_rows
                case "bytes":
                    seen += len(batch.values)
                case "records":
                    seen += len(batch.records())
        elapsed = time.perf_counter() - started
    if seen < rows:
        raise RuntimeError(f"{seen} rows came back, {rows} were appended")
    return seen / elapsed


def fill_large(address: str, name: str, total: int, size: int = 1 << 20) -> None:
    """Appends single records of `size` bytes."""
    with sbp.connect(address) as client:
        stream = client.create_stream(name, exist_ok=True)
        body = bytes(size - 1_024)
        for _ in range(total // size):
            stream.append(body)


def fetch_large(address: str, name: str) -> float:
    """Gigabytes a second of batches of 1 MiB, their payloads looked at."""
    with sbp.connect(address) as client:
        seen = 0
        started = time.perf_counter()
        for batch in client.stream(name).read():
            seen += sum(len(payload) for payload in batch.payloads if payload is not None)
        return seen / (time.perf_counter() - started) / 1e9


@dataclass(frozen=True)
class Awaited:
    """Awaited single appends: how many a second, loop wake-ups and process CPU (us) for each."""

    per_second: float
    wakeups: float
    cpu_us: float


def awaited(address: str, in_flight: int, total: int, size: int = 64) -> Awaited:
    """Single appends, each awaited, from so many asyncio tasks."""

    async def main() -> Awaited:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream("awaited", exist_ok=True)
            body = bytes(size)
            await stream.append(body)
            calls = total // in_flight * in_flight

            async def worker() -> None:
                for _ in range(total // in_flight):
                    await stream.append(body)

            wakeups = client.stats()["wakeups"]
            cpu = time.process_time()
            started = time.perf_counter()
            await asyncio.gather(*(worker() for _ in range(in_flight)))
            elapsed = time.perf_counter() - started
            return Awaited(
                calls / elapsed,
                (client.stats()["wakeups"] - wakeups) / calls,
                (time.process_time() - cpu) / calls * 1e6,
            )

    return asyncio.run(main())


def awaited_rate(address: str, in_flight: int, total: int) -> float:
    """Only the rate of :func:`awaited`."""
    return awaited(address, in_flight, total).per_second


def blocking_us(address: str, calls: int = 5_000) -> tuple[float, float]:
    """Microseconds of one blocking append of 64 bytes: median of the wall clock, mean of the process's CPU."""
    with sbp.connect(address) as client:
        stream = client.create_stream("blocking", exist_ok=True)
        body = bytes(64)
        stream.append(body)
        samples = []
        cpu = time.process_time()
        for _ in range(calls):
            started = time.perf_counter_ns()
            stream.append(body)
            samples.append((time.perf_counter_ns() - started) / 1_000)
        spent = (time.process_time() - cpu) / calls * 1e6
        samples.sort()
        return samples[calls // 2], spent


def end_to_end(address: str) -> paced.Latency:
    """Latency at a steady rate: blocking appends, and a blocking tail on another thread."""
    with sbp.connect(address) as client, sbp.connect(address) as reader:
        stream = client.create_stream("paced", exist_ok=True)
        stream.append(paced.stamped())

        def values(stop: threading.Event) -> Iterator[bytes]:
            with reader.stream("paced").tail("earliest", timeout=0.2) as tail:
                while not stop.is_set():
                    try:
                        batch = next(tail)
                    except TimeoutError:
                        continue
                    for payload in batch.payloads:
                        if payload is not None:
                            yield bytes(payload)

        return paced.measure(stream.append, values)
