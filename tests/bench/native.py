"""Appends and fetches from Python against a server in another process."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sbp_native as sbp

ROW = bytes(range(100))
ROWS_PER_BATCH = 10_000


@dataclass(frozen=True)
class Rate:
    """Operations (or rows, or megabytes) a second, and the client's counters over the run."""

    per_second: float
    counts: dict[str, float]


@contextlib.contextmanager
def serve(durability: str, directory: Path | None = None) -> Iterator[str]:
    """`sbp serve` as a child process on a directory that is gone afterwards; yields its address."""
    with serve_process(durability, directory) as (address, _child):
        yield address


@contextlib.contextmanager
def serve_process(
    durability: str, directory: Path | None = None, options: tuple[str, ...] = ()
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """As :func:`serve`, with further options of `sbp serve`, and yields the process too."""
    with tempfile.TemporaryDirectory(dir=directory) as data:
        child = subprocess.Popen(
            [
                str(Path(sys.executable).parent / "sbp"),
                "serve",
                "--data-dir",
                data,
                "--listen",
                "127.0.0.1:0",
                "--durability",
                durability,
                *options,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if "listening on " not in line:
                raise RuntimeError(f"sbp serve did not start: {line!r}")
            yield line.rsplit(" ", 1)[1].strip(), child
        finally:
            child.terminate()
            child.wait(timeout=30)


def _difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before.get(name, 0) for name in after}


def awaited_appends(address: str, size: int, in_flight: int, total: int) -> Rate:
    """Single appends of `size` bytes, each awaited, from `in_flight` asyncio tasks."""

    async def main() -> Rate:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream("bench", exist_ok=True)
            body = bytes(size)
            await stream.append(body)
            per_task = total // in_flight

            async def worker() -> None:
                for _ in range(per_task):
                    await stream.append(body)

            before = client.stats()
            started = time.perf_counter()
            await asyncio.gather(*(worker() for _ in range(in_flight)))
            elapsed = time.perf_counter() - started
            return Rate(per_task * in_flight / elapsed, _difference(before, client.stats()))

    return asyncio.run(main())


def fill(address: str, name: str, rows: int) -> None:
    """Append `rows` records of 100 bytes to the stream `name`."""

    async def main() -> None:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(name, exist_ok=True)
            batch = [ROW] * ROWS_PER_BATCH
            waiting = asyncio.Semaphore(16)

            async def one() -> None:
                async with waiting:
                    await stream.append(batch)

            await asyncio.gather(*(one() for _ in range(rows // ROWS_PER_BATCH)))

    asyncio.run(main())


def fetch_to_arrow(address: str, name: str, rows: int) -> Rate:
    """Rows a second from the server into Arrow columns."""
    with sbp.connect(address) as client:
        before = client.stats()
        started = time.perf_counter()
        seen = 0
        for batch in client.stream(name).read(start="earliest", end="latest"):
            seen += batch.to_arrow().num_rows
        elapsed = time.perf_counter() - started
        if seen != rows:
            raise RuntimeError(f"{seen} rows came back, {rows} were appended")
        return Rate(seen / elapsed, _difference(before, client.stats()))
