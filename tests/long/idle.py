"""What an idle connection costs the server, and one that does not even say who it is."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from . import floods, wire
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


#: Places of connections whose peers are not known, as `sbp serve` has them by itself.
PLACES = 1_024


@dataclass
class Strangers:
    """How many of the silent connections were open at once, the bytes of each, those left by others that were pushed
    out, and how long the last one lived.
    """

    open: int
    each: float
    passed: int
    gone: float


def strangers(server: Server, connections: int) -> Strangers:
    """Connections that say nothing; where TLS is spoken, that leave its handshake half done.

    As many come first as have places: they are what a connection costs. The others push the oldest out, and what those
    that have passed leave over is counted apart.
    """
    words = floods.client_hello() if server.speaks_tls else b""
    before, _ = server.memory()
    sockets, peers = _sockets(server), []

    def come(numbers: range) -> int:
        for number in numbers:
            peer = socket.create_connection(
                server.address, timeout=60, source_address=(f"127.0.2.{number % 40 + 1}", 0)
            )
            peer.sendall(words)
            peers.append(peer)
        time.sleep(1)
        return server.memory()[0] - before

    first = min(connections, PLACES)
    grown = come(range(first))
    each = grown / max(1, _sockets(server) - sockets)
    passed = come(range(first, connections)) - grown
    opened = time.monotonic() - 1
    held, last = _sockets(server) - sockets, 0.0
    while _sockets(server) > sockets and last < 60:
        time.sleep(0.1)
        last = time.monotonic() - opened
    for peer in peers:
        peer.close()
    return Strangers(held, each, passed, last)


def _sockets(server: Server) -> int:
    return sum(link.startswith("socket:") for link in server.descriptors())


def _greeted(server: Server, number: int) -> socket.socket:
    peer = socket.create_connection(server.address, timeout=60, source_address=(f"127.0.2.{number % 40 + 1}", 0))
    peer.sendall(wire.frame(wire.HEARTBEAT, 1, wire.root([])))
    length = int.from_bytes(receive(peer, 4), "big")
    answer = receive(peer, length)
    assert answer[3] == 3, "the HEARTBEAT is answered"
    return peer
