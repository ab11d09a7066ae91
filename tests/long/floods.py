"""Ways to ask for too much, each from one process with one connection after the other; also by strangers, over TLS."""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from . import wire
from .server import Latency, Server

SECONDS = 6.0


@dataclass
class Flooded:
    """What one kind of flood did."""

    name: str
    about: str
    connections: int
    sent_bytes: int
    longest: float
    idle_bytes: int
    peak_bytes: int
    during: Latency
    must_be_cut: bool


Address = tuple[str, int]

#: Speaks TLS with whoever it is, when the server does.
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE
TLS.set_alpn_protocols(["sbp/0.1"])
#: Whether the floods of this process do.
over_tls = False

# Sends until it is cut or the time is over. (seconds from the first bad byte to the cut, or none; bytes sent)
Flood = Callable[[Address, float], tuple[float | None, int]]


def _connect(address: Address) -> socket.socket:
    peer = socket.create_connection(address, timeout=30)
    return TLS.wrap_socket(peer) if over_tls else peer


def _dial(address: Address) -> socket.socket:
    peer = _connect(address)
    peer.sendall(wire.frame(wire.PING, 1))
    assert peer.recv(20)
    peer.setblocking(False)
    return peer


def _pour(address: Address, pieces: Iterator[bytes], end: float, *, listens: bool = True) -> tuple[float | None, int]:
    """Sends as fast as the server takes it; reads what comes back, or does not."""
    peer = _dial(address)
    started, sent, rest = time.monotonic(), 0, memoryview(b"")
    poll = select.poll()
    poll.register(peer, select.POLLOUT | (select.POLLIN if listens else 0))
    with peer:
        while time.monotonic() < end:
            for _, events in poll.poll(100):
                try:
                    # Errors are told whether asked for or not; an end of the stream is only read.
                    if events & (select.POLLERR | select.POLLHUP):
                        return time.monotonic() - started, sent
                    if events & select.POLLIN and not peer.recv(1 << 20):
                        return time.monotonic() - started, sent
                    if events & select.POLLOUT:
                        rest = rest or memoryview(next(pieces))
                        count = peer.send(rest)
                        sent, rest = sent + count, rest[count:]
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    return time.monotonic() - started, sent
    return None, sent


def _forever(make: Callable[[int], bytes], first: int = 2) -> Iterator[bytes]:
    call = first
    while True:
        yield make(call)
        call += 1


def _batches(make: Callable[[int], bytes], count: int) -> Iterator[bytes]:
    """Small frames, many to a write."""
    call = 2
    while True:
        yield b"".join(make(n) for n in range(call, call + count))
        call += count


def large_frames(address: Address, end: float) -> tuple[float | None, int]:
    """APPENDs of 16 MiB whose headers are no FlatBuffers."""
    body = b"\xff" * 64
    payload = bytes(wire.LARGEST - 16 - len(body))
    largest = wire.frame(wire.APPEND, 0, body, payload)
    return _pour(address, _forever(lambda call: largest[:8] + call.to_bytes(4, "big") + largest[12:]), end)


def pings(address: Address, end: float) -> tuple[float | None, int]:
    """PINGs as fast as they go."""
    return _pour(address, _batches(lambda call: wire.frame(wire.PING, call), 1000), end)


def tiny_unknown(address: Address, end: float) -> tuple[float | None, int]:
    """Frames of 20 bytes with an unknown opcode."""
    return _pour(address, _batches(lambda call: wire.frame(wire.UNKNOWN, call), 1000), end)


def tiny_refused(address: Address, end: float) -> tuple[float | None, int]:
    """Frames of 20 bytes that are refused one by one, which costs nothing: APPEND without a header."""
    return _pour(address, _batches(lambda call: wire.frame(wire.APPEND, call), 1000), end)


def bombs(address: Address, end: float) -> tuple[float | None, int]:
    """Headers of 240 KB that name one table 60,000 times."""
    header = wire.bomb(60_000)
    return _pour(address, _forever(lambda call: wire.frame(wire.APPEND, call, header)), end)


def never_reads(address: Address, end: float) -> tuple[float | None, int]:
    """FETCHes of a megabyte each, whose answers nobody takes: while there is memory, for 30 seconds."""
    header = wire.fetch(1, 0, 1 << 20)
    return _pour(address, _batches(lambda call: wire.frame(wire.FETCH, call, header), 10), end, listens=False)


def connects(address: Address, end: float) -> tuple[float | None, int]:
    """Connections that ask for something and leave before they are answered."""
    request = wire.frame(wire.FETCH, 2, wire.fetch(1, 0, 1 << 20))
    started = time.monotonic()
    with _connect(address) as peer:
        peer.sendall(request)
    return (time.monotonic() - started, len(request)) if time.monotonic() < end else (None, len(request))


def guesses(address: Address, end: float) -> tuple[float | None, int]:
    """HEARTBEATs with tokens that nobody has: the connection is closed after three."""
    guess = _batches(lambda call: wire.frame(wire.HEARTBEAT, call, wire.heartbeat(f"sbp_{call}")), 10)
    return _pour(address, guess, end)


def long_tokens(address: Address, end: float) -> tuple[float | None, int]:
    """HEARTBEATs of a megabyte, which are too long before anything of them is kept."""
    header = wire.heartbeat("x" * 1_000_000)
    return _pour(address, _forever(lambda call: wire.frame(wire.HEARTBEAT, call, header)), end)


def half_handshakes(address: Address, end: float) -> tuple[float | None, int]:
    """Connections that say the first word of TLS, and leave after its answer."""
    hello = client_hello()
    started = time.monotonic()
    with socket.create_connection(address, timeout=30) as peer:
        peer.sendall(hello)
        peer.recv(1 << 16)
    return (time.monotonic() - started, len(hello)) if time.monotonic() < end else (None, len(hello))


def no_handshakes(address: Address, end: float) -> tuple[float | None, int]:
    """A handshake without end: a message that claims to be long, in records of 16 KiB."""
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + bytes(0x4000 - 4)
    peer = socket.create_connection(address, timeout=30)
    started, sent = time.monotonic(), 0
    with peer:
        while time.monotonic() < end:
            try:
                sent += peer.send(record)
            except OSError:
                return time.monotonic() - started, sent
    return None, sent


def client_hello() -> bytes:
    """What a client that speaks TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


# (what, whether the protocol says that its connection is closed)
FLOODS: dict[str, tuple[Flood, bool]] = {
    "16 MiB frames": (large_frames, True),
    "PING": (pings, True),
    "20-byte frames, unknown": (tiny_unknown, True),
    "20-byte frames, refused": (tiny_refused, False),
    "verifier bombs": (bombs, True),
    "never reads": (never_reads, False),
    "connect and leave": (connects, False),
}


#: The same by somebody who has not said who he is, and what only he does. He is cut after a few frames of any kind.
STRANGERS: dict[str, tuple[Flood, bool]] = {
    **{name: (flood, flood is not connects) for name, (flood, _) in FLOODS.items()},
    "guessed tokens": (guesses, True),
    "tokens of a megabyte": (long_tokens, True),
}

#: What only strangers do where TLS is spoken.
HANDSHAKES: dict[str, tuple[Flood, bool]] = {
    "half handshakes": (half_handshakes, False),
    "handshakes without end": (no_handshakes, True),
}


def _abuse(name: str, floods: dict[str, tuple[Flood, bool]], tls: bool, address: Address, out: Connection) -> None:
    global over_tls
    over_tls = tls
    flood, _ = floods[name]
    seconds = SECONDS
    end = time.monotonic() + seconds
    connections, sent, longest = 0, 0, 0.0
    while time.monotonic() < end:
        lasted, count = flood(address, end)
        connections += 1
        sent += count
        # The last one is stopped by us; it counts if it should have been cut long ago.
        longest = max(longest, lasted or 0.0)
        if lasted is None and connections == 1:
            longest = float("inf")
    out.send((connections, sent, longest))


def run(server: Server, name: str, floods: dict[str, tuple[Flood, bool]] = FLOODS) -> Flooded:
    """One kind of flood for a few seconds, with a healthy client beside it."""
    flood, must_be_cut = floods[name]
    time.sleep(1)
    idle_bytes, _ = server.memory()
    server.reset_peak()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    abuser = multiprocessing.Process(target=_abuse, args=(name, floods, server.speaks_tls, server.address, theirs))
    with server.healthy_client(SECONDS - 1) as seen:
        abuser.start()
        try:
            connections, sent, longest = ours.recv()
            abuser.join(timeout=30)
        finally:
            abuser.kill()
    _, peak_bytes = server.memory()
    about = (flood.__doc__ or "").strip()
    return Flooded(name, about, connections, sent, longest, idle_bytes, peak_bytes, seen[0], must_be_cut)
