"""End to end: how long a record takes from its append until a waiting reader has it, at a steady rate."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SIZE = 100
RATE = 1_000
SECONDS = 6.0
WARM_UP = 1.0


@dataclass(frozen=True)
class Latency:
    """Microseconds: median and 99th percentile."""

    p50: float
    p99: float


def stamped() -> bytes:
    """A record of 100 bytes that carries the time it was made."""
    return struct.pack("<q", time.perf_counter_ns()) + bytes(SIZE - 8)


def measure(send: Callable[[bytes], object], values: Callable[[threading.Event], Iterable[bytes]]) -> Latency:
    """Sends `RATE` records a second, and takes them from `values` on a thread of its own until that is told to stop."""
    stop = threading.Event()
    ready = threading.Event()
    waits: list[tuple[int, float]] = []

    def receive() -> None:
        for value in values(stop):
            now = time.perf_counter_ns()
            ready.set()
            sent = struct.unpack_from("<q", value)[0]
            waits.append((sent, (now - sent) / 1_000))

    reader = threading.Thread(target=receive)
    reader.start()
    try:
        # The reader is there when the first record has come through.
        deadline = time.monotonic() + 60
        while not ready.is_set():
            if time.monotonic() > deadline:
                raise RuntimeError("no record came through within a minute")
            send(stamped())
            ready.wait(0.05)
        begun = time.perf_counter()
        for index in range(int(RATE * SECONDS)):
            pause = begun + index / RATE - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            send(stamped())
        time.sleep(0.5)
    finally:
        stop.set()
        reader.join(timeout=30)
    since = (begun + WARM_UP) * 1e9
    taken = sorted(wait for sent, wait in waits if sent >= since)
    if len(taken) < int(RATE * (SECONDS - WARM_UP) * 0.9):
        raise RuntimeError(f"only {len(taken)} records came through")
    return Latency(taken[len(taken) // 2], taken[len(taken) * 99 // 100])
