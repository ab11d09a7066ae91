"""What many streams, waiting fetches and idempotent writers cost, with the server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import sbp_native as sbp

from . import native

SBP = str(Path(sys.executable).parent / "sbp")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def bench(what: str, address: str, *arguments: str) -> dict[str, float]:
    """`sbp bench append` or `fetch` against a server, its report as a dictionary."""
    command = [SBP, "bench", what, "--servers", address, "--json", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    report: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return report


def rust_appends(in_flight: int = 256, size: int = 64, *options: str) -> float:
    """Thousand appends a second from Rust, server in the same process, durability none unless an option says."""
    if "--durability" not in options:
        options = ("--durability", "none", *options)
    command = [SBP, "bench", "append", "--embedded", "--json", "--seconds", "3"]
    command += ["--size", str(size), "--concurrency", str(in_flight), *options]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    return float(json.loads(output.strip().splitlines()[-1])["appends_per_s"]) / 1000


def api_appends(api: str, *options: str) -> float:
    """The same with 64 in flight: plain ones each awaited (`await`), or by one idempotent writer (`writer`)."""
    return rust_appends(64, 64, "--api", api, *options)


def server_cpu_per_gb(streams: int, batch_bytes: int = 16 << 10, total: int = 1 << 30) -> float:
    """CPU seconds that the server spends on a gigabyte of appends spread evenly over so many streams."""
    with native.serve_process("none") as (address, child):
        # The streams exist before the clock starts.
        bench("append", address, "--streams", str(streams), "--size", str(batch_bytes), "--records", str(streams))
        before = cpu_seconds(child.pid)
        records = str(total // batch_bytes)
        arguments = ("--streams", str(streams), "--size", str(batch_bytes), "--concurrency", "64")
        bench("append", address, *arguments, "--records", records)
        return (cpu_seconds(child.pid) - before) / (total / 1e9)


@dataclass(frozen=True)
class Waits:
    """Milliseconds from sending an append until a waiting tail has its batch: median, and the 99th percentile."""

    median: float
    p99: float


def one_hot(streams: int, rounds: int = 300) -> Waits:
    """How long a batch takes to a tail that follows so many streams, of which one is written to."""

    async def main() -> Waits:
        with sbp.Server(durability="none") as server:
            async with sbp.aio.connect(server.address) as client:
                names = [f"quiet/{index}" for index in range(streams)]
                for start in range(0, streams, 64):
                    await asyncio.gather(*(client.create_stream(name) for name in names[start : start + 64]))
                hot = await client.stream(names[streams // 2])
                waits: list[float] = []
                tail = client.tail(names, start="earliest")
                async with asyncio.timeout(120):
                    for _ in range(rounds):
                        started = time.perf_counter()
                        await hot.append(b"x")
                        await anext(tail)
                        waits.append((time.perf_counter() - started) * 1000)
                waits.sort()
                return Waits(waits[len(waits) // 2], waits[len(waits) * 99 // 100])

    return asyncio.run(main())
