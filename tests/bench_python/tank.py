"""TANK topics to Arrow, beside streams: the same records from a scripted broker and from a server, each a process."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sbp_native as sbp
from sbp_native import tank

BUNDLE = 1_000


@contextmanager
def broker() -> Iterator[str]:
    """The address of a scripted broker."""
    command = [sys.executable, "-m", "tests.tank.broker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def fill(address: str, server: str, name: str, rows: int, size: int = 100) -> None:
    """The same records, which cannot be compressed, into a topic and into a stream, in pieces of `BUNDLE`."""
    chance = random.Random(17)
    with tank.connect(address) as to, sbp.connect(server) as client:
        to.create_topic(name)
        stream = client.create_stream(name)
        for _ in range(rows // BUNDLE):
            records = [chance.randbytes(size) for _ in range(BUNDLE)]
            to.produce(name, 0, records)
            stream.append(records)


def fetch(address: str, name: str, rows: int) -> float:
    """Rows a second of a topic as Arrow."""
    with tank.connect(address) as client:
        started = time.perf_counter()
        seen = sum(batch.to_arrow().num_rows for batch in client.read(name, end="latest"))
        elapsed = time.perf_counter() - started
    if seen != rows:
        raise RuntimeError(f"{seen} rows came back, {rows} were produced")
    return seen / elapsed
