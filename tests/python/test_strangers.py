"""What connections cost a server whose peers have not said who they are: every byte that was allocated, also in C."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sbp_native as sbp
from long import wire
from python.names import token

#: So many connections are measured at once; fewer, where the machine is so busy that the first are cut off, 10 s after
#: they came, before the last are there.
COUNTS = (200, 100, 50, 25)

#: What each may cost.
MOST = 15 * 1024


class _Mallinfo2(ctypes.Structure):
    """Figures of the C library's allocator, by which Rust's memory is allocated too."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def allocated() -> int:
    """Bytes allocated and not freed, in all threads."""
    assert _MALLINFO2 is not None
    figures = _MALLINFO2()
    return int(figures.uordblks) + int(figures.hblkhd)


def _mallinfo2() -> Callable[[], _Mallinfo2] | None:
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _Mallinfo2
    return function


#: Found once: to look for it allocates.
_MALLINFO2 = _mallinfo2()


#: Opens connections in a process of its own, so that nothing of them is counted but the server's side. It says when
#: they are there, and keeps them until it is told to go.
CROWD = """
import socket, ssl, sys
host, port, count, words, manner = sys.argv[1:]
words = bytes.fromhex(words)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
context.set_alpn_protocols(["sbp/0.1"])
peers = []
for _ in range(int(count)):
    peer = socket.create_connection((host, int(port)), timeout=60)
    if "inside TLS" in manner:
        peer = context.wrap_socket(peer)
    peer.sendall(words)
    if "answered" in manner:
        assert peer.recv(1)
    peers.append(peer)
print("open", flush=True)
sys.stdin.read()
"""


class CutOff(Exception):
    """The server has cut connections off before all of them were there."""


@contextlib.contextmanager
def crowd(address: str, count: int, words: bytes, manner: str) -> Iterator[None]:
    host, port = address.removeprefix("sbps://").rsplit(":", 1)
    command = [sys.executable, "-c", CROWD, host, port, str(count), words.hex(), manner]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        if process.stdout.readline() != "open\n":
            raise CutOff
        yield
        process.stdin.close()


def client_hello() -> bytes:
    """What a client that speaks TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["sbp/0.1"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@pytest.fixture
def names(tmp_path: Path) -> Path:
    file = tmp_path / "names.jsonl"
    token(file, "job", "read:*")
    return file


@pytest.fixture
def tls(tmp_path: Path) -> sbp.Tls:
    folder = tmp_path / "tls"
    command = [sys.executable, "-m", "sbp_native._cli", "tls", "dev", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return sbp.Tls(cert=folder / "server.crt", key=folder / "server.key")


def settled(server: sbp.Server, connections: int) -> int:
    """What is allocated once so many connections are open, and their last step is done."""
    deadline = time.monotonic() + 60
    last, same = -1, 0
    while same < 10:
        there = int(server.stats()["connections_open"])
        now = allocated() if there == connections else -2
        same = same + 1 if now == last and now >= 0 else 0
        last = now
        # They are accepted within a moment of each other's handshakes: those that are missing for longer are gone.
        if there < connections and time.monotonic() > deadline - 58:
            raise CutOff
        assert time.monotonic() < deadline, "it never settles"
        time.sleep(0.02)
    return last


def cost_of_each(server: sbp.Server, words: bytes, manner: str) -> float:
    """The bytes that are allocated for each connection of a crowd."""
    # What there is once for all of them is there before.
    with contextlib.suppress(CutOff), crowd(server.address, COUNTS[-1], words, manner):
        settled(server, COUNTS[-1])
    before = settled(server, 0)
    for count in COUNTS:
        with contextlib.suppress(CutOff), crowd(server.address, count, words, manner):
            return (settled(server, count) - before) / count
        before = settled(server, 0)
    raise CutOff


#: What such a connection may say and then leave it at, and how.
KINDS: dict[str, tuple[Callable[[], bytes], str]] = {
    "silent": (lambda: b"", ""),
    "refused": (lambda: wire.frame(wire.HEARTBEAT, 1, wire.heartbeat("sbp_of_nobody")), "answered"),
    "half a HEARTBEAT": (lambda: wire.frame(wire.HEARTBEAT, 1, wire.heartbeat("x" * 5_900))[:-50], ""),
    "half a handshake": (client_hello, "answered"),
}


@pytest.mark.skipif(_MALLINFO2 is None, reason="the C library tells no such figures")
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("silent", ""),
        ("refused", ""),
        ("half a HEARTBEAT", ""),
        ("half a handshake", "before TLS"),
        ("silent", "inside TLS"),
        ("refused", "inside TLS"),
    ],
)
def test_one_who_is_not_known_costs_little(names: Path, tls: sbp.Tls, kind: str, where: str) -> None:
    say, manner = KINDS[kind]
    words, manner = say(), f"{manner} {where}"
    with sbp.Server(durability="none", auth=names, tls=tls if "TLS" in where else None) as server:
        each = cost_of_each(server, words, manner)
        print(f"{kind} {where}: {each:,.0f} bytes each")
        assert 1_000 < each <= MOST, f"{each:,.0f} bytes each"


def test_the_oldest_stranger_leaves_for_the_newest(names: Path) -> None:
    known = token(names, "known", "read:*")
    with (
        sbp.Server(auth=names, max_unauthenticated_connections=2) as server,
        sbp.connect(server.address, token=known) as client,
        contextlib.ExitStack() as open_until_the_end,
    ):
        client.list_streams()
        host, port = server.address.rsplit(":", 1)
        strangers = [
            open_until_the_end.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(3)
        ]
        assert strangers[0].recv(1) == b""
        client.list_streams()
        strangers[2].sendall(wire.frame(wire.PING, 1))
        assert strangers[2].recv(1)


def test_records_of_tls_count_among_what_a_stranger_may_send(names: Path, tls: sbp.Tls) -> None:
    """A HEARTBEAT in as many records as it has bytes: a session finds no fault with it, and waits for its end."""
    words = wire.frame(wire.HEARTBEAT, 1, wire.heartbeat("x" * 55_000))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["sbp/0.1"])
    with sbp.Server(auth=names, tls=tls) as server:
        host, port = server.address.removeprefix("sbps://").rsplit(":", 1)
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain) as stranger,
            pytest.raises((ConnectionError, ssl.SSLError)),
        ):
            for byte in words[:-1]:
                stranger.sendall(bytes([byte]))
            pytest.fail("it may send all of it")
