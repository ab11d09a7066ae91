"""What the Rust side has to say arrives in ``logging``, told by threads that are Python's."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

import sbp_native as sbp

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.threads: set[threading.Thread] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.threads.add(threading.current_thread())


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logger = logging.getLogger("sbp_native.client")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def lose_a_connection(proxy: sbp.Proxy, client: sbp.Client) -> None:
    client.ping()
    proxy.cut()
    client.ping()


def test_events_arrive_in_the_logger_of_their_module(server: sbp.Server, run_python: Run) -> None:
    """In a process of its own, whose levels are there from the start."""
    script = """
        import logging, sys, threading, time
        import sbp_native as sbp

        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout,
                            format="%(name)s|%(levelname)s|%(threadName)s|%(message)s")
        with sbp.Proxy(sys.argv[1]) as proxy, sbp.connect(proxy.address) as client:
            client.ping()
            proxy.cut()
            deadline = time.monotonic() + 20
            while client.stats()["connections"] < 2 and time.monotonic() < deadline:
                client.ping()
            client.ping()
    """
    lines = run_python(script, server.address).stdout.splitlines()
    ended = [line for line in lines if "connection ended" in line]
    assert ended, lines
    name, level, thread, message = ended[0].split("|")
    assert name == "sbp_native.client.channel.connection"
    assert level == "DEBUG"
    assert thread == "sbp-io"
    assert "endpoint=127.0.0.1:" in message


def test_levels_are_those_of_logging(server: sbp.Server, kept: Kept) -> None:
    """Levels are looked up about once a second; until then the old ones hold."""
    with sbp.Proxy(server.address) as proxy, sbp.connect(proxy.address) as client:
        lose_a_connection(proxy, client)
        assert kept.records == [], "nobody asked for details"
        logging.getLogger("sbp_native.client").setLevel(logging.DEBUG)
        for _ in range(2_000):
            lose_a_connection(proxy, client)
            if kept.records:
                break
            threading.Event().wait(0.01)
        assert kept.records
    assert {record.levelno for record in kept.records} == {logging.DEBUG}
    assert all(record.name.startswith("sbp_native.client.") for record in kept.records)
    assert kept.threads == {threading.current_thread()}, "no thread of ours runs Python"


def test_without_a_handler_nothing_is_printed(server: sbp.Server, run_python: Run) -> None:
    script = """
        import sys
        import sbp_native as sbp

        with sbp.Server() as server, sbp.connect(server.address) as client:
            stream = client.create_stream("x")
            stream.append(b"x")
    """
    assert run_python(script).stderr == ""


@pytest.mark.asyncio
async def test_an_idle_loop_is_woken(server: sbp.Server, kept: Kept) -> None:
    logging.getLogger("sbp_native.client").setLevel(logging.DEBUG)
    with sbp.Proxy(server.address) as proxy:
        async with sbp.aio.connect(proxy.address) as client, asyncio.timeout(20):
            while not kept.records:
                await client.ping()
                proxy.cut()
                await asyncio.sleep(0.05)
            # Levels are known now: the next event has to arrive although this loop makes no call.
            await client.ping()
            kept.records.clear()
            proxy.cut()
            while not kept.records:
                await asyncio.sleep(0.01)


def test_what_nobody_takes_is_counted(server: sbp.Server, run_python: Run) -> None:
    """Some events more than the queue holds, in a process that makes no call meanwhile."""
    script = """
        import logging, socket, sys, time
        import sbp_native as sbp

        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s|%(message)s")
        with sbp.Server() as server, sbp.connect(server.address) as client:
            client.ping()
            host, port = server.address.split(":")
            for opened in range(2, 1_502):
                with socket.create_connection((host, int(port))):
                    pass
            deadline = time.monotonic() + 30
            while server.stats()["connections_accepted"] < opened and time.monotonic() < deadline:
                time.sleep(0.01)
            while server.stats()["connections_open"] > 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            client.ping()
    """
    lines = run_python(script).stdout.splitlines()
    assert any("messages were lost" in line for line in lines), lines[-3:]
    assert len(lines) < 1_500
