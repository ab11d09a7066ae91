"""Thousands of connections that send a byte a second, and come back when they are closed."""

from __future__ import annotations

import errno
import heapq
import multiprocessing
import os
import selectors
import socket
import struct
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from . import wire
from .server import Latency, Server

# Every dribbler begins with some bytes at once, then sends a byte of something valid each second: (at once, dribbled).
Beginning = tuple[bytes, bytes]


def _cut(whole: bytes, *places: int) -> tuple[Beginning, ...]:
    return tuple((whole[:place], whole[place:]) for place in places)


_FRAME = wire.frame(wire.APPEND, 1, b"h" * 1000, b"p" * 100_000)
#: By the protocol that is spoken.
BEGINNINGS: dict[str, tuple[Beginning, ...]] = {
    # From the connection's first byte on; from the first byte of the frame behind a valid one on; from the 17th byte of
    # its first frame on.
    "SBP": ((b"", _FRAME), (wire.frame(wire.PING, 1), _FRAME), *_cut(_FRAME, 16)),
    # The same with a request to produce behind a ping.
    "TANK": _cut(struct.pack("<BIBI", 3, 0, 1, 100_000) + bytes(100_000), 0, 5, 10),
    # The same with a request behind the negotiation.
    "Seastar RPC": _cut(b"SSTARRPC" + struct.pack("<IQqI", 0, 1001, 1, 100_000) + bytes(100_000), 0, 12, 32),
    # The same with an append behind the greeting.
    "Pravega": _cut(struct.pack(">iiiiii", -127, 8, 16, 5, 4, 100_000) + bytes(100_000), 0, 16, 24),
}
_SOURCES = 40


@dataclass
class Dribbled:
    """What the dribblers saw."""

    opened: int = 0
    closed: int = 0
    longest: float = 0.0
    most_open: int = 0
    unclosed: float = 0.0
    lifetimes: list[float] = field(default_factory=list)

    @property
    def typical(self) -> float:
        """The middle lifetime."""
        return sorted(self.lifetimes)[len(self.lifetimes) // 2] if self.lifetimes else 0.0


class _Dribbler:
    __slots__ = ("begun", "dribbled", "due", "number", "sent", "socket")

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket: socket.socket | None = None
        self.begun = 0.0
        self.dribbled = b""
        self.sent = 0
        self.due = 0.0


class _Crowd:
    def __init__(self, address: tuple[str, int], count: int, beginnings: tuple[Beginning, ...]) -> None:
        self.address, self.beginnings = address, beginnings
        self.selector = selectors.EpollSelector()
        self.seen = Dribbled()
        self.open = 0
        # (when, tie-breaker, who): the next byte, or the next connection. Stale where `who` says another time.
        self.queue: list[tuple[float, int, _Dribbler]] = []
        now = time.monotonic()
        for n in range(count):
            self.plan(_Dribbler(n), now + 2.0 * n / count)

    def plan(self, who: _Dribbler, at: float) -> None:
        who.due = at
        heapq.heappush(self.queue, (at, who.number, who))

    def run(self, seconds: float) -> Dribbled:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            while self.queue and self.queue[0][0] <= now:
                at, _, who = heapq.heappop(self.queue)
                if at == who.due:
                    self.plan(who, now + 1.0)
                    self.step(who, now)
            wait = self.queue[0][0] - time.monotonic()
            for key, _ in self.selector.select(min(max(wait, 0.0), 0.05)):
                self.hear(key.data)
        waiting = [end - who.begun for _, _, who in self.queue if who.socket is not None]
        self.seen.unclosed = max(waiting, default=0.0)
        return self.seen

    def step(self, who: _Dribbler, now: float) -> None:
        """Opens, or sends the next byte."""
        try:
            if who.socket is None:
                self.dial(who, now)
                return
            who.socket.send(who.dribbled[who.sent : who.sent + 1])
            who.sent += 1
        except BlockingIOError:
            pass
        except OSError:
            self.close(who)

    def dial(self, who: _Dribbler, now: float) -> None:
        # Over many addresses: one of them has too few ports for what is being closed.
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        peer.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        peer.bind((f"127.0.1.{who.number % _SOURCES + 1}", 0))
        failed = peer.connect_ex(self.address)
        if failed not in (0, errno.EINPROGRESS):
            peer.close()
            return
        who.socket, who.begun = peer, now
        beginning, who.dribbled = self.beginnings[who.number % len(self.beginnings)]
        who.sent = 0
        self.seen.opened += 1
        self.open += 1
        self.seen.most_open = max(self.seen.most_open, self.open)
        self.selector.register(peer, selectors.EVENT_READ, who)
        try:
            peer.send(beginning)
        except BlockingIOError:
            # It is not connected yet: all of it is dribbled.
            who.dribbled = beginning + who.dribbled

    def hear(self, who: _Dribbler) -> None:
        """A PONG, a GOAWAY, or the end."""
        if who.socket is None:
            return
        try:
            if who.socket.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close(who)

    def close(self, who: _Dribbler) -> None:
        if who.socket is None:
            return
        lived = time.monotonic() - who.begun
        self.selector.unregister(who.socket)
        who.socket.close()
        who.socket = None
        self.open -= 1
        self.seen.closed += 1
        self.seen.longest = max(self.seen.longest, lived)
        if len(self.seen.lifetimes) < 200_000:
            self.seen.lifetimes.append(lived)
        self.plan(who, time.monotonic())


def _crowd(address: tuple[str, int], protocol: str, count: int, seconds: float, out: Connection) -> None:
    # It stands for ten thousand other machines, so it takes what the server and its healthy client leave of this one.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    out.send(_Crowd(address, count, BEGINNINGS[protocol]).run(seconds))


@dataclass
class Run:
    """One run, with what the server used and what a healthy client saw."""

    dribbled: Dribbled
    idle_bytes: int
    peak_bytes: int
    cpu_share: float
    serving_share: float
    before: Latency
    during: Latency


def _serving_share(server: Server, seconds: float) -> float:
    """What the thread that serves spends on connections that ask for nothing: its share of a core."""
    started, cpu = time.monotonic(), server.thread_seconds("sbp-server-io")
    time.sleep(seconds)
    return (server.thread_seconds("sbp-server-io") - cpu) / (time.monotonic() - started)


def run(server: Server, connections: int, seconds: float, protocol: str = "SBP") -> Run:
    """Dribblers for so long, where that protocol is spoken, and a healthy client of SBP in the middle of it."""
    address = server.address if protocol == "SBP" else server.other_listener()
    before = server.latency(10)
    idle_bytes, _ = server.memory()
    server.reset_peak()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    crowd = multiprocessing.Process(target=_crowd, args=(address, protocol, connections, seconds, theirs))
    crowd.start()
    try:
        time.sleep(min(5.0, seconds / 4))
        serving_share = _serving_share(server, min(5.0, seconds / 4))
        started, cpu = time.monotonic(), server.cpu_seconds()
        during = server.latency(max(5.0, seconds - 20.0))
        cpu_share = (server.cpu_seconds() - cpu) / (time.monotonic() - started)
        dribbled: Dribbled = ours.recv()
        crowd.join(timeout=30)
    finally:
        crowd.kill()
    _, peak_bytes = server.memory()
    return Run(dribbled, idle_bytes, peak_bytes, cpu_share, serving_share, before, during)
