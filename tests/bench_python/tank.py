"""TANK topics, beside streams: the same records from a scripted broker and from a server, each a process; and bundles
to a server of ours."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import sbp_native as sbp
from sbp_native import tank
from tests.bench import native
from tests.tank.broker import varint

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


def read(address: str, name: str, rows: int) -> float:
    """Rows a second of a topic, of which nobody looks at more than their number: what an import reads."""
    with tank.connect(address) as client:
        started = time.perf_counter()
        seen = sum(len(batch) for batch in client.read(name, end="latest"))
        elapsed = time.perf_counter() - started
    if seen != rows:
        raise RuntimeError(f"{seen} rows came back, {rows} were produced")
    return seen / elapsed


def imported(address: str, server: str, name: str, stream: str, rows: int) -> float:
    """Rows a second of `sbp import tank`, from the start of the command to its end."""
    command = [str(Path(sys.executable).parent / "sbp"), "import", "tank", name, "--from", address]
    started = time.perf_counter()
    subprocess.run([*command, "--stream", stream, "--servers", server], check=True, capture_output=True, timeout=300)
    elapsed = time.perf_counter() - started
    with sbp.connect(server) as client:
        there = client.stream(stream).positions().latest
    if there != rows:
        raise RuntimeError(f"{there} rows are there, {rows} were produced")
    return rows / elapsed


@contextmanager
def serve() -> Iterator[tuple[str, str]]:
    """`sbp serve` without durability: the addresses for its own clients and for those of TANK."""
    with native.serve_process("none", options=("--tank-listen", "127.0.0.1:0")) as (address, child):
        assert child.stdout is not None
        yield address, child.stdout.readline().rsplit(" ", 1)[1].strip()


def produce_prebuilt(address: str, name: str, rows: int, in_flight: int = 16) -> float:
    """Rows a second of bundles that were made before, each acknowledged, so many at once: what the broker takes."""
    host, port = address.rsplit(":", 1)
    bundle = bytes([0]) + varint(BUNDLE) + b"\0" + struct.pack("<Q", 1_700_000_000_000)
    bundle += varint(len(native.ROW)) + native.ROW
    bundle += (b"\2" + varint(len(native.ROW)) + native.ROW) * (BUNDLE - 1)
    topic = bytes([len(name)]) + name.encode()
    body = (
        b"\0\1" + struct.pack("<I", 1_000) + b"\1" + topic + b"\1" + struct.pack("<H", 0) + varint(len(bundle)) + bundle
    )
    # Version 2, the request's number, no name of the client.
    payload = struct.pack("<HI", 2, 7) + body
    request = struct.pack("<BI", 1, len(payload)) + payload
    with tank.connect(address) as client:
        client.create_topic(name)
    count = rows // BUNDLE
    free = threading.Semaphore(in_flight)

    def acknowledge(stream: BinaryIO) -> None:
        left = count
        while left:
            message, length = struct.unpack("<BI", stream.read(5))
            answer = stream.read(length)
            if message == 1:
                if answer != struct.pack("<I", 7) + b"\0":
                    raise RuntimeError(f"the broker answers {answer!r}")
                left -= 1
                free.release()

    with socket.create_connection((host, int(port))) as connection, ThreadPoolExecutor(1) as pool:
        started = time.perf_counter()
        acknowledged = pool.submit(acknowledge, connection.makefile("rb"))
        for _ in range(count):
            if not free.acquire(timeout=30):
                raise RuntimeError("the broker acknowledges nothing any more")
            connection.sendall(request)
        acknowledged.result(60)
        return rows / (time.perf_counter() - started)


class InSpark:
    """A session with two task slots that reads all rows of a topic or of a stream, and drops them."""

    def __init__(self, place: str) -> None:
        from pyspark.sql import SparkSession

        import sbp_native.spark

        builder = sbp_native.spark.configure(SparkSession.builder.master("local[2]").appName("bench"))
        for name, value in {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": place,
            "spark.sql.warehouse.dir": place,
            "spark.log.level": "ERROR",
        }.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def rate(self, form: str, option: str, address: str, name: str, rows: int) -> float:
        """Rows a second."""
        frame = self._spark.read.format(form).option(option, address).load(name)
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return rows / (time.perf_counter() - started)

    def stop(self) -> None:
        """Ends the session."""
        self._spark.stop()
