"""One tenant that wants ten times its quota, and how long another's appends take beside it.

All of it runs with real-time priority, where that is allowed, so that other work on the machine is not measured. The
loud tenant's program runs on the same processors as the server and the other tenant: once as they do, and once as an
ordinary program, which does not compete for processors, as one on another machine would not: what is left is the
server's doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import sbp_native as sbp

from . import native, protocol
from .report import Figure

MEMORY = Path("/dev/shm")
#: Bytes a second that the loud tenant may append, and how many it wants.
QUOTA = 1_000_000
WANTED = 10 * QUOTA
#: Its connections, and the bytes of each of its records.
CONNECTIONS = 8
RECORD = 10_000
#: How long each figure is measured, and each floor beside it.
SECONDS = 2.0
FLOOR_SECONDS = 1.0
#: What a second without any appends allows at once is used up after this long.
BURST_SECONDS = 2.0
#: How the loud tenant's program runs: whether as the others do.
PROGRAMS = {"": True, ", its program an ordinary one": False}


def seconds(runs: int) -> float:
    """About how long it takes: the starts of programs included."""
    each = SECONDS + FLOOR_SECONDS
    return 2 * (3 + runs * (each + len(PROGRAMS) * (each + BURST_SECONDS + 1)))


def _token(names: Path, name: str, *options: str) -> str:
    command = [protocol.SBP, "token", "create", name, "--auth", str(names), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


async def _loud(address: str, token: str, told: Connection) -> None:
    """Wants to append at ten times the quota, whatever becomes of it, until this process is ended."""
    pause = CONNECTIONS * RECORD / WANTED

    async def one(number: int) -> None:
        async with sbp.aio.connect(address, token=token) as client:
            name = f"loud/{number}"
            await client.create_stream(name, exist_ok=True)
            told.send(number)
            under_way: set[asyncio.Future[object]] = set()
            due = time.perf_counter()
            while True:
                due += pause
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                # More than that is what a program would give up, too.
                if len(under_way) < 256:
                    appending = asyncio.ensure_future(_kept(client, name))
                    under_way.add(appending)
                    appending.add_done_callback(under_way.discard)

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))


async def _kept(client: sbp.AsyncClient, name: str) -> object:
    with contextlib.suppress(sbp.SbpError):
        return await client.append(name, bytes(RECORD), timeout=2)
    return None


def _run_loud(address: str, token: str, told: Connection, is_urgent: bool) -> None:
    if not is_urgent:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    asyncio.run(_loud(address, token, told))


@contextlib.contextmanager
def _beside_the_loud(address: str, token: str, is_urgent: bool) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    told, tells = context.Pipe(duplex=False)
    child = context.Process(target=_run_loud, args=(address, token, tells, is_urgent), daemon=True)
    child.start()
    try:
        for _ in range(CONNECTIONS):
            if not told.poll(60):
                raise RuntimeError("the loud tenant did not begin")
            told.recv()
        time.sleep(BURST_SECONDS)
        yield
    finally:
        child.terminate()
        child.join(timeout=30)


def _p99_ms(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=100)[98] * 1e3


async def _appends(address: str, token: str) -> list[float]:
    """How long appends of 64 B take, one after the other."""
    samples = []
    async with sbp.aio.connect(address, token=token) as client:
        stream = await client.create_stream("quiet/s", exist_ok=True)
        end = time.perf_counter() + SECONDS
        while (began := time.perf_counter()) < end:
            await stream.append(bytes(64))
            samples.append(time.perf_counter() - began)
    return samples


async def _echoes(port: int) -> list[float]:
    """How long 64 B to an echo in another process and back take: what machine and event loop allow."""
    samples = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = time.perf_counter() + FLOOR_SECONDS
    while (began := time.perf_counter()) < end:
        writer.write(bytes(64))
        await reader.readexactly(64)
        samples.append(time.perf_counter() - began)
    writer.close()
    return samples


def _run_echo(told: Connection) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                writer.write(await reader.readexactly(64))

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


@contextlib.contextmanager
def _echo() -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    told, tells = context.Pipe(duplex=False)
    child = context.Process(target=_run_echo, args=(tells,), daemon=True)
    child.start()
    try:
        if not told.poll(60):
            raise RuntimeError("the echo did not begin")
        yield told.recv()
    finally:
        child.terminate()
        child.join(timeout=30)


def tenants(runs: int) -> list[Figure]:
    """The 99th percentile of one tenant's appends: alone, and beside one that wants ten times its quota, in turns."""
    with _urgent():
        return [*_beside(runs, "fsync", None), *_beside(runs, "none", MEMORY)]


@contextlib.contextmanager
def _urgent() -> Iterator[None]:
    """Real-time priority for this process and those that it starts, where that is allowed."""
    before, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, priority)


class _Runs:
    """What was measured again and again under one condition."""

    def __init__(self) -> None:
        self.appends: list[float] = []
        self.floor: list[float] = []

    def of_pairs(self, alone: _Runs) -> tuple[float, float]:
        """The middle of the ratios to the runs alone: of the appends, and of the floor."""
        appends = zip(self.appends, alone.appends, strict=True)
        floor = zip(self.floor, alone.floor, strict=True)
        return statistics.median(a / b for a, b in appends), statistics.median(a / b for a, b in floor)


def _beside(runs: int, durability: str, where: Path | None) -> list[Figure]:
    alone = _Runs()
    beside = {name: _Runs() for name in PROGRAMS}
    stored: list[float] = []
    with tempfile.TemporaryDirectory() as directory, _echo() as port:
        names = Path(directory) / "names.jsonl"
        quiet = _token(names, "quiet", "--allow", "admin:quiet/*", "--allow", "write:quiet/*")
        quota = ("--quota", f"bytes-in={QUOTA}")
        grants = ("--allow", "admin:loud/*", "--allow", "write:loud/*", "--allow", "read:loud/*")
        loud = _token(names, "loud", *grants, *quota)
        options = ("--auth", str(names), "--log", "warn")
        with native.serve_process(durability, where, options=options) as (address, _child):

            def measure(under: _Runs) -> None:
                under.appends.append(_p99_ms(asyncio.run(_appends(address, quiet))))
                under.floor.append(_p99_ms(asyncio.run(_echoes(port))))

            for turn in range(runs):
                # Each is the first in every other turn.
                if turn % 2 == 0:
                    measure(alone)
                for name, is_urgent in PROGRAMS.items():
                    with _beside_the_loud(address, loud, is_urgent):
                        began, before = time.perf_counter(), _stored(address, loud)
                        measure(beside[name])
                        stored.append((_stored(address, loud) - before) * RECORD / (time.perf_counter() - began) / 1e6)
                if turn % 2:
                    measure(alone)
    wants = f"beside a tenant that wants {WANTED / 1e6:.0f} MB/s of its {QUOTA / 1e6:.0f}"
    figures = [
        Figure("p99 of a tenant's 64 B appends, one by one", "ms", alone.appends, note=f"durability {durability}")
    ]
    figures.append(Figure("p99 of an asyncio echo of 64 B", "ms", alone.floor))
    for name, runs_of_it in beside.items():
        ratio, floor = runs_of_it.of_pairs(alone)
        note = f"ratio of pairs {ratio:.2f}; of the echo {floor:.2f}"
        middle = statistics.median(alone.appends)
        figures.append(Figure(f"the appends {wants}{name}", "ms", runs_of_it.appends, "alone", middle, note))
        figures.append(Figure(f"the echo {wants}{name}", "ms", runs_of_it.floor))
    return [*figures, Figure("what that tenant got stored", "MB/s", stored, "quota", QUOTA / 1e6)]


def _stored(address: str, token: str) -> int:
    """Records in the streams of the loud tenant."""
    with sbp.connect(address, token=token) as client:
        streams = [f"loud/{number}" for number in range(CONNECTIONS)]
        return sum(places.latest for places in client.positions(streams).values())
