"""Servers that are paused, away for longer than every deadline, or not there yet; and what clients do meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from python.pauses import pause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVE = """
import sys
import sbp_native as sbp

with sbp.Server(data_dir=sys.argv[1], listen=sys.argv[2]) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Outside:
    """A server in a process of its own, which can be paused and killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", SERVE, str(self.directory), self.address]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        # It ends with its standard input, which is this process's end too.
        said = self.process.stdout.readline().strip()
        if said != self.address:
            self.kill()
        assert said == self.address, f"the server did not start: it said {said!r}"

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    server = Outside(tmp_path / "data")
    yield server
    server.signal(signal.SIGCONT)
    server.kill()


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_writer_and_close_outlast_a_server_that_is_silent_for_longer_than_an_attempt_and_a_greeting(
    outside: Outside,
) -> None:
    with sbp.connect(outside.address, timeout=60) as client:
        stream = client.create_stream("orders")
        with stream.writer(timeout=60) as writer:
            writer.append(b"one")
            writer.flush()
            pause(outside.process)
            # An attempt of a writer takes at most 10 s, and so does the answer to HEARTBEAT on the next connection.
            threading.Timer(25, outside.signal, [signal.SIGCONT]).start()
            for number in range(100):
                writer.append(b"%d" % number)
            writer.flush()
        values = [record.value for record in records(stream)]
        began = time.monotonic()
    assert time.monotonic() - began < 5, "the connections that were given up do not hold it up"
    assert values == [b"one", *(b"%d" % number for number in range(100))]


def records(stream: sbp.Stream) -> list[sbp.Record]:
    return [record for batch in stream.read() for record in batch.records()]


def test_a_tail_outlasts_an_outage_that_is_longer_than_the_clients_timeout(outside: Outside) -> None:
    with sbp.connect(outside.address, timeout=1) as client, client.create_stream("orders").tail() as tail:
        client.stream("orders").append(b"one")
        assert next(tail).base_offset == 0
        outside.kill()
        back = threading.Timer(3, outside.start)
        back.start()
        seen: list[int] = []
        follower = threading.Thread(target=lambda: seen.append(next(tail).base_offset))
        follower.start()
        back.join()
        with sbp.connect(outside.address) as other:
            other.stream("orders").append(b"two")
        follower.join(30)
        assert seen == [1]


def test_a_tail_goes_on_after_a_step_that_failed(outside: Outside) -> None:
    with sbp.connect(outside.address) as client:
        orders = client.create_stream("orders")
        with orders.tail(timeout=0.2) as tail:
            for _ in range(2):
                with pytest.raises(sbp.DeadlineExceededError):
                    next(tail)
            orders.append([b"one", b"two", b"three"])
            assert next(tail).base_offset == 0
            client.trim("orders", 3)
            orders.append(b"four")
        with orders.tail("earliest", timeout=10) as tail:
            assert next(tail).base_offset == 3
            client.delete_stream("orders")
            for _ in range(3):
                with pytest.raises(sbp.StreamNotFoundError):
                    next(tail)


def test_a_tail_goes_on_after_a_step_that_failed_in_asyncio(outside: Outside) -> None:
    async def main() -> list[int]:
        async with sbp.aio.connect(outside.address) as client:
            orders = await client.create_stream("orders")
            async with orders.tail("earliest", timeout=0.2) as tail:
                for _ in range(2):
                    with pytest.raises(sbp.DeadlineExceededError):
                        await anext(tail)
                await orders.append(b"one")
                return [(await anext(tail)).base_offset]

    assert asyncio.run(main()) == [0]


def test_connect_waits_for_a_server_that_is_being_started(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    servers: list[sbp.Server] = []
    starting = threading.Timer(1, lambda: servers.append(sbp.Server(data_dir=str(tmp_path / "data"), listen=address)))
    starting.start()
    with sbp.connect(address, wait=30) as client:
        assert client.ping() > 0
    starting.join()
    servers[0].close()


def test_connect_need_not_wait() -> None:
    began = time.monotonic()
    with pytest.raises(sbp.ConnectionFailedError):
        sbp.connect(f"127.0.0.1:{free_port()}", wait=0)
    assert time.monotonic() - began < 2
    with pytest.raises(ValueError, match="wait is seconds"):
        sbp.connect("127.0.0.1:1", wait=-1)
