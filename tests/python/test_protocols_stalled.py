"""Clients of TANK and Seastar RPC while the server is stopped, and while its disk takes longer than every deadline."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from python.failing_syncs import FailingSyncs
from python.pauses import pause
from sbp_native import seastar, tank
from sbp_native.errors import IndeterminateError, SeastarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

APPEND, CREATE = 1001, 1005
#: Longer than anything here takes.
LIMIT = 60.0


class Running:
    """A server in a process of its own, which serves three protocols."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        # Its own address comes first, then a line for each listener.
        self.address, self.tank, self.seastar = (process.stdout.readline().split()[-1] for _ in range(3))

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def values(self, stream: str) -> list[bytes]:
        with sbp.connect(self.address, timeout=LIMIT) as client:
            read = client.stream(stream).read(start="earliest", end="latest")
            return [record.value or b"" for batch in read for record in batch.records()]


@contextmanager
def serving(directory: Path, within: Sequence[str] = ()) -> Iterator[Running]:
    command = [*within, str(Path(sys.executable).parent / "sbp"), "serve", "--data-dir", str(directory)]
    listeners = [word for name in ("", "tank-", "seastar-") for word in (f"--{name}listen", "127.0.0.1:0")]
    process = subprocess.Popen([*command, *listeners], stdout=subprocess.PIPE, text=True)
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


class Numbered:
    """A client of Seastar RPC that numbers its records, each a batch of its own."""

    def __init__(self, rpc: seastar.Rpc, stream: str) -> None:
        self.rpc, self.sequence = rpc, 0
        self.name = struct.pack("<I", len(stream)) + stream.encode()
        rpc.call(CREATE, self.name)

    def append(self, value: bytes, timeout: float = LIMIT) -> bool:
        """Whether it was stored before."""
        record = struct.pack("<IqII", 1, -1, 0xFFFF_FFFF, len(value)) + value
        number = b"a writer of test" + struct.pack("<qq", 0, self.sequence)
        _, _, was_there = struct.unpack("<qq?", self.rpc.call(APPEND, self.name + record + number, timeout=timeout))
        self.sequence += 1
        return bool(was_there)

    def append_again(self, value: bytes) -> None:
        """Until it is answered."""
        limit = time.monotonic() + LIMIT
        while True:
            try:
                self.append(value, timeout=5)
                return
            except (SeastarError, IndeterminateError):
                if time.monotonic() > limit:
                    raise


def test_a_server_that_is_stopped_for_longer_than_clients_wait(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data") as server,
        tank.connect(server.tank) as broker,
        seastar.connect(server.seastar) as rpc,
    ):
        broker.create_topic("orders")
        numbered = Numbered(rpc, "calls")
        broker.produce("orders", 0, [b"before"])
        numbered.append(b"before")
        pause(server.process)
        try:
            with pytest.raises(IndeterminateError):
                broker.produce("orders", 0, [b"doubtful"], timeout=0.5)
            with pytest.raises(IndeterminateError):
                numbered.append(b"doubtful", timeout=0.5)
        finally:
            server.resume()
        broker.produce("orders", 0, [b"after"], timeout=LIMIT)
        numbered.append_again(b"doubtful")
        numbered.append_again(b"after")
        assert server.values("calls") == [b"before", b"doubtful", b"after"]
        stored = server.values("orders/0")
        assert stored in ([b"before", b"after"], [b"before", b"doubtful", b"after"])
        assert [value for batch in broker.read("orders", 0, end="latest") for value in batch.values] == stored


def test_readers_go_on_when_a_stopped_server_does(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data") as server,
        tank.connect(server.tank) as broker,
        tank.connect(server.tank) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        broker.create_topic("orders")
        broker.produce("orders", 0, [b"a"])
        batches = iter(other.read("orders", 0))
        assert next(batches).values == [b"a"]
        waiting = threads.submit(next, batches)
        pause(server.process)
        try:
            with pytest.raises(IndeterminateError):
                broker.produce("orders", 0, [b"doubtful"], timeout=0.5)
        finally:
            server.resume()
        broker.produce("orders", 0, [b"b"], timeout=LIMIT)
        seen = list(waiting.result(LIMIT).values)
        while seen[-1] != b"b":
            seen += next(batches).values
        assert seen in ([b"b"], [b"doubtful", b"b"])


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_is_stopped_for_longer_than_a_silent_peer_is_waited_for(tmp_path: Path) -> None:
    """A broker pings every 10 s, a client counts one as gone after 16: it dials again, and nothing is lost or twice."""
    with (
        serving(tmp_path / "data") as server,
        tank.connect(server.tank) as broker,
        seastar.connect(server.seastar) as rpc,
        ThreadPoolExecutor(1) as threads,
    ):
        broker.create_topic("orders")
        numbered = Numbered(rpc, "calls")
        numbered.append(b"before")
        batches = iter(broker.read("orders", 0))
        waiting = threads.submit(next, batches)
        pause(server.process)
        try:
            # The call's deadline is the time for which the server stands still.
            with pytest.raises(IndeterminateError):
                numbered.append(b"doubtful", timeout=20)
        finally:
            server.resume()
        with tank.connect(server.tank) as another:
            another.produce("orders", 0, [b"a"], timeout=LIMIT)
        assert waiting.result(LIMIT).values == [b"a"]
        numbered.append_again(b"doubtful")
        assert server.values("calls") == [b"before", b"doubtful"]
        broker.produce("orders", 0, [b"b"], timeout=LIMIT)
        assert next(batches).values == [b"b"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_sync_that_takes_longer_than_every_deadline(tmp_path: Path) -> None:
    """What was under way is in doubt, nothing is acknowledged that is not on the disk, and all goes on after it."""
    with (
        FailingSyncs(tmp_path / "syncs") as syncs,
        serving(tmp_path / "data", syncs.within) as server,
        tank.connect(server.tank) as broker,
        seastar.connect(server.seastar) as rpc,
        ThreadPoolExecutor(2) as threads,
    ):
        broker.create_topic("orders")
        numbered = Numbered(rpc, "calls")
        broker.produce("orders", 0, [b"before"])
        numbered.append(b"before")
        syncs.passing.clear()
        try:
            produced = threads.submit(broker.produce, "orders", 0, [b"doubtful"], timeout=LIMIT)
            appended = threads.submit(numbered.append, b"doubtful", LIMIT)
            assert syncs.waits.wait(LIMIT)
            with pytest.raises(IndeterminateError):
                produced.result(LIMIT)
            # Its text is the service's own error, with the number of an outcome that is not known.
            with pytest.raises(IndeterminateError, match=r"SBP-9004 .* it may have been done"):
                appended.result(LIMIT)
        finally:
            syncs.passing.set()
        broker.produce("orders", 0, [b"after"], timeout=LIMIT)
        numbered.append_again(b"doubtful")
        numbered.append_again(b"after")
        assert server.values("calls") == [b"before", b"doubtful", b"after"]
        assert server.values("orders/0") in ([b"before", b"after"], [b"before", b"doubtful", b"after"])
