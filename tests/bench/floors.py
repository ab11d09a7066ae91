"""What the machine itself allows: loopback, disk and event loop, measured without any of our code."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from pathlib import Path


def loopback_round_trip_us(rounds: int = 5_000) -> float:
    """Median microseconds of a 64-byte ping-pong over TCP on loopback, one in flight, two threads."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := peer.recv(4096):
                peer.sendall(data)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    samples = []
    with socket.create_connection(listener.getsockname()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = bytes(64)
        for _ in range(rounds):
            started = time.perf_counter_ns()
            client.sendall(message)
            client.recv(4096)
            samples.append(time.perf_counter_ns() - started)
    thread.join(timeout=5)
    listener.close()
    samples.sort()
    return samples[len(samples) // 2] / 1000


def loopback_stream_mb_s(total: int = 1 << 30) -> float:
    """Megabytes a second through one loopback connection, 256 KiB writes, two threads."""
    listener = socket.create_server(("127.0.0.1", 0))

    def drain() -> None:
        peer, _ = listener.accept()
        buffer = bytearray(1 << 18)
        with peer:
            while peer.recv_into(buffer):
                pass

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    block = bytes(1 << 18)
    started = time.perf_counter()
    with socket.create_connection(listener.getsockname()) as client:
        for _ in range(total // len(block)):
            client.sendall(block)
    thread.join(timeout=60)
    elapsed = time.perf_counter() - started
    listener.close()
    return total / elapsed / 1e6


def fdatasync_mb_s(directory: Path | None = None, block: int = 1 << 20, total: int = 256 << 20) -> float:
    """Megabytes a second of sequential writes, each followed by fdatasync, into a preallocated file."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, total)
        os.fsync(descriptor)
        data = os.urandom(block)
        started = time.perf_counter()
        for position in range(0, total, block):
            os.pwrite(descriptor, data, position)
            os.fdatasync(descriptor)
        return total / (time.perf_counter() - started) / 1e6


def event_loop_ops_s(tasks: int = 256, rounds: int = 400) -> float:
    """Awaited futures a second: each created, awaited, set by a batch callback and resumed by asyncio."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []

        def complete() -> None:
            batch = waiting.copy()
            waiting.clear()
            for future in batch:
                future.set_result(None)

        async def worker() -> None:
            for _ in range(rounds):
                future: asyncio.Future[None] = loop.create_future()
                if not waiting:
                    loop.call_soon(complete)
                waiting.append(future)
                await future

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(tasks)))
        return tasks * rounds / (time.perf_counter() - started)

    return asyncio.run(main())
