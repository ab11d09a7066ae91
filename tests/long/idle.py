"""What an idle connection costs the server."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from . import wire
from .server import Server, receive


@dataclass
class Idle:
    """Bytes of each of so many connections that were greeted and then left alone."""

    connections: int
    at_once: float
    later: float


def run(server: Server, connections: int, rests: float) -> Idle:
    """Greets with a HEARTBEAT, which is what every client does; `rests` is longer than a heartbeat's interval."""
    # Whatever the server keeps once for all of them is there before.
    warm = [_greeted(server, n) for n in range(100)]
    before, _ = server.memory()
    peers = [_greeted(server, n) for n in range(connections)]
    at_once, _ = server.memory()
    time.sleep(rests)
    later, _ = server.memory()
    for peer in [*warm, *peers]:
        peer.close()
    per = [(now - before) / connections for now in (at_once, later)]
    return Idle(connections, per[0], per[1])


def _greeted(server: Server, number: int) -> socket.socket:
    peer = socket.create_connection(server.address, timeout=60, source_address=(f"127.0.2.{number % 40 + 1}", 0))
    peer.sendall(wire.frame(wire.HEARTBEAT, 1, wire.root([])))
    length = int.from_bytes(receive(peer, 4), "big")
    answer = receive(peer, length)
    assert answer[3] == 3, "the HEARTBEAT is answered"
    return peer
