"""How events reach a server through clients of other protocols: TANK, Seastar RPC and Pravega.

Each way takes the events of a stretch of time, in order, and returns when the server has acknowledged them.
"""

from __future__ import annotations

import json
import struct
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sbp_native import seastar, tank
from sbp_native.errors import IndeterminateError, SeastarError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A carrier, and one of its events as JSON.
Event = tuple[bytes, bytes]

#: Seconds that a way waits for a server that is away.
PATIENCE = 60.0
_ROOT = Path(__file__).resolve().parents[2]


class Way(Protocol):
    """One way into the server."""

    def send(self, events: Sequence[Event]) -> None:
        """Has the server store these events behind those before, each once, and returns when it has."""

    def close(self) -> None:
        """Ends the client."""


class Tank:
    """A producer of a TANK topic: the events of a carrier are in one partition."""

    def __init__(self, broker: str, topic: str, partitions: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._broker = tank.connect(broker)
        self._broker.create_topic(topic, partitions)

    def send(self, events: Sequence[Event]) -> None:
        """Produces a bundle for each partition. TANK knows no repeats: an answer that is lost ends the demo."""
        bundles: list[list[Event]] = [[] for _ in range(self._partitions)]
        for carrier, event in events:
            bundles[sum(carrier) % self._partitions].append((carrier, event))
        for partition, records in enumerate(bundles):
            if records:
                self._broker.produce(self._topic, partition, records, timeout=PATIENCE)

    def close(self) -> None:
        """Ends the client."""
        self._broker.close()


class Seastar:
    """A service that calls verb 1001. It numbers its records, so that it can send a batch again."""

    _APPEND, _CREATE = 1001, 1005
    _WRITER = b"flights of 2013!"

    def __init__(self, address: str, stream: str) -> None:
        self._stream = stream
        self._rpc = seastar.connect(address)
        self._rpc.verb(self._CREATE, "str", "i64")(stream)
        self._sequence = 0
        #: Batches that had to be sent again.
        self.again = 0

    def send(self, events: Sequence[Event]) -> None:
        """Appends the events as one batch, and sends it again until a server has answered."""
        name = self._stream.encode()
        parts = [struct.pack("<I", len(name)), name, struct.pack("<I", len(events))]
        for carrier, event in events:
            parts += [struct.pack("<qI", -1, len(carrier)), carrier, struct.pack("<I", len(event)), event]
        parts.append(self._WRITER + struct.pack("<qq", 0, self._sequence))
        arguments, limit = b"".join(parts), time.monotonic() + PATIENCE
        while True:
            try:
                _, _, was_there = struct.unpack("<qq?", self._rpc.call(self._APPEND, arguments, timeout=5.0))
            except (SeastarError, IndeterminateError):
                if time.monotonic() > limit:
                    raise
                self.again += 1
                # The service says nothing of when it is back.
                time.sleep(0.05)
                continue
            assert self.again or not was_there, "a batch that was sent once was there before"
            self._sequence += len(events)
            return

    def close(self) -> None:
        """Ends the client."""
        self._rpc.close()


class Pravega:
    """The Python package `pravega`, whose writer is in a process of its own: ``tests.demo.pravega_writer``."""

    def __init__(self, controller: str, stream: str, python: Path) -> None:
        scope, name = stream.split("/")
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("pravega_writer.py")), controller, scope, name],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Its stream is there, and so is its connection, when it has answered.
        self.send([])

    def send(self, events: Sequence[Event]) -> None:
        """Has it write the events and flush."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pairs = [(carrier.decode(), event.decode()) for carrier, event in events]
        self._process.stdin.write(json.dumps(pairs) + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != str(len(events)):
            raise RuntimeError(f"the writer of Pravega ended with {self._process.wait(10)}")

    def close(self) -> None:
        """Ends its process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
