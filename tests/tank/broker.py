"""A TANK broker for tests, in memory: `python3 -m tests.tank.broker`. Its first line on stdout is its port.

It keeps bundles as they come, and looks into them as far as it has to: at how many messages there are.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import socket
import struct
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

PRODUCE, CONSUME, PING, PARTITIONS, CREATE, STATUS, TOPICS = 1, 2, 3, 6, 7, 10, 11
GREETING = struct.pack("<BI", PING, 0)
LATEST = 2**64 - 1
OTHER_LEADER = 252

_T = TypeVar("_T")


class Reader:
    """Takes numbers off the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, length: int) -> bytes:
        self.at += length
        if self.at > len(self.data):
            raise ValueError("a message ends early")
        return self.data[self.at - length : self.at]

    def number(self, form: str) -> int:
        (value,) = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))
        return int(value)

    def name(self) -> bytes:
        return self.take(self.number("B"))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def name(text: bytes) -> bytes:
    """A name behind its length."""
    return bytes([len(text)]) + text


def varint(value: int) -> bytes:
    """A number of variable length."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def frame(message: int, payload: bytes) -> bytes:
    """A whole frame."""
    return struct.pack("<BI", message, len(payload)) + payload


def span(bundle: bytes, following: int) -> tuple[int, int]:
    """The numbers of a bundle's first and last message; `following`: what comes next."""
    reader = Reader(bundle)
    flags = reader.number("B")
    count = flags >> 2 & 15 or reader.varint()
    if not flags & 64:
        return following, following + count - 1
    first = reader.number("Q")
    return first, first if count == 1 else first + 1 + reader.varint()


@dataclass
class Partition:
    """Bundles in their order, each with its first and last number."""

    bundles: list[tuple[int, int, bytes]] = field(default_factory=list)
    #: Who leads it, where another broker does.
    leader: tuple[str, int] | None = None
    #: The last number that was given, where the messages with the last numbers are gone.
    compacted_to: int = 0

    def end(self) -> int:
        return max(self.compacted_to, self.bundles[-1][1] if self.bundles else 0)

    def first(self) -> int:
        return self.bundles[0][0] if self.bundles else 0

    def add(self, bundle: bytes) -> None:
        self.bundles.append((*span(bundle, self.end() + 1), bundle))

    def trim(self, sequence: int) -> None:
        """Drops the bundles that end before this message."""
        self.bundles = [entry for entry in self.bundles if entry[1] >= sequence]

    def compact(self, sequence: int) -> None:
        """Drops the bundles that begin at this message or behind it, as compaction may: their numbers stay given."""
        self.compacted_to = self.end()
        self.bundles = [entry for entry in self.bundles if entry[0] < sequence]

    def elsewhere(self) -> bytes:
        """The code for a partition that another broker leads."""
        assert self.leader is not None
        host, port = self.leader
        return bytes([OTHER_LEADER]) + socket.inet_aton(host) + struct.pack("<H", port)


class Broker:
    """All topics, and how odd it is."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.topics: dict[bytes, list[Partition]] = {}
        if options.keep and options.keep.exists():
            self.topics = pickle.loads(options.keep.read_bytes())
        self.grown = asyncio.Condition()
        #: Makes something else of an answer's frame; without a result the broker hangs up.
        self.spoil: Callable[[int, bytes], bytes | None] | None = None
        #: Whether it waits for messages before it answers that there is none.
        self.waits = True
        #: The connections there are.
        self.connections: set[asyncio.StreamWriter] = set()
        #: Released once for each connection that was closed.
        self.closed = threading.Semaphore(0)
        #: What was asked: the messages of all requests.
        self.asked: list[int] = []

    def keep(self) -> None:
        if self.options.keep:
            self.options.keep.write_bytes(pickle.dumps(self.topics))

    def partition(self, topic: bytes, number: int) -> Partition | None:
        partitions = self.topics.get(topic, [])
        return partitions[number] if number < len(partitions) else None

    async def serve(self, incoming: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        self.connections.add(out)
        if not self.options.silent:
            out.write(GREETING)
        tasks = set()
        try:
            while True:
                wait = incoming.readexactly(5)
                message, length = struct.unpack("<BI", await asyncio.wait_for(wait, self.options.idle))
                request = Reader(await incoming.readexactly(length))
                self.asked.append(message)
                task = asyncio.create_task(self.answer(message, request, out))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            out.close()
            self.connections.discard(out)
            self.closed.release()

    async def answer(self, message: int, request: Reader, out: asyncio.StreamWriter) -> None:
        if message in (PRODUCE, CONSUME):
            request.number("H")
            identity = request.number("I")
            request.name()
            answer = self.produce if message == PRODUCE else self.consume
            payload = await answer(identity, request)
        elif message != PING:
            payload = self.describe(message, request)
        else:
            return
        whole = frame(message, payload)
        spoiled = self.spoil(message, whole) if self.spoil else whole
        if spoiled is None:
            out.close()
        else:
            out.write(spoiled)

    async def produce(self, identity: int, request: Reader) -> bytes:
        request.take(5)
        codes = bytearray()
        for _ in range(request.number("B")):
            topic = request.name()
            mine = bytearray()
            for _ in range(request.number("B")):
                partition = self.partition(topic, request.number("H"))
                bundle = request.take(request.varint())
                if partition is None:
                    mine.append(1)
                elif partition.leader:
                    mine += partition.elsewhere()
                else:
                    partition.add(bundle)
                    mine.append(0)
            codes += mine if topic in self.topics else b"\xff"
        self.keep()
        async with self.grown:
            self.grown.notify_all()
        return struct.pack("<I", identity) + bytes(codes)

    async def consume(self, identity: int, request: Reader) -> bytes:
        wait, _least = request.number("Q"), request.number("I")
        topics = []
        for _ in range(request.number("B")):
            topic, count = request.name(), request.number("B")
            topics.append((topic, [struct.unpack("<HQI", request.take(14)) for _ in range(count)]))
        deadline = asyncio.get_running_loop().time() + wait / 1000
        async with self.grown:
            every = [(topic, *asked) for topic, all_asked in topics for asked in all_asked]
            while self.waits and not any(self.is_ready(*asked) for asked in every):
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                try:
                    await asyncio.wait_for(self.grown.wait(), left)
                except TimeoutError:
                    break
        header, chunks = struct.pack("<IB", identity, len(topics)), b""
        for topic, all_asked in topics:
            known = topic in self.topics
            header += name(topic) + bytes([len(all_asked) if known else 1])
            if not known:
                header += b"\xff\xff"
                continue
            for asked in all_asked:
                told, chunk = self.read(topic, *asked)
                header, chunks = header + told, chunks + chunk
        return struct.pack("<I", len(header)) + header + chunks

    def is_ready(self, topic: bytes, number: int, sequence: int, _size: int) -> bool:
        partition = self.partition(topic, number)
        if partition is None or partition.leader:
            return True
        return sequence not in (LATEST, partition.end() + 1)

    def read(self, topic: bytes, number: int, sequence: int, size: int) -> tuple[bytes, bytes]:
        partition = self.partition(topic, number)
        if partition is None:
            return struct.pack("<HB", number, 255), b""
        if partition.leader:
            return struct.pack("<H", number) + partition.elsewhere(), b""
        end = partition.end()
        sequence = (
            partition.first() or 1 if sequence == 0 else min(sequence, end + 1) if sequence == LATEST else sequence
        )
        if sequence > end + 1 or sequence < partition.first():
            return struct.pack("<HBQQIQ", number, 1, 0, end, 0, partition.first()), b""
        wanted = partition.bundles[bisect_left(partition.bundles, sequence, key=lambda entry: entry[1]) :]
        pieces, left = [], size
        for _, _, bundle in wanted:
            if left <= 0:
                break
            pieces.append(varint(len(bundle)) + bundle)
            left -= len(pieces[-1])
        # As the page says: the last bundle is cut where the size is reached.
        chunk = b"".join(pieces)[:size]
        if wanted and wanted[0][2][0] & 64:
            return struct.pack("<HBQI", number, 254, end, len(chunk)), chunk
        base = wanted[0][0] if wanted else 0
        return struct.pack("<HBQQI", number, 0, base, end, len(chunk)), chunk

    def describe(self, message: int, request: Reader) -> bytes:
        identity = request.take(4)
        if message == STATUS:
            count = sum(map(len, self.topics.values()))
            return identity + struct.pack("<BBIIIIII", 0, 0, len(self.topics), count, 0, 0, 0, 400)
        if message == TOPICS:
            rows = (name(topic) + struct.pack("<BH", 1, len(all_of)) for topic, all_of in self.topics.items())
            return identity + struct.pack("<IB", len(self.topics), 0) + b"".join(rows)
        topic = request.name()
        if message == CREATE:
            is_new = topic not in self.topics
            self.topics.setdefault(topic, [Partition() for _ in range(request.number("H"))])
            self.keep()
            return identity + name(topic) + bytes([0 if is_new else 1])
        if message != PARTITIONS:
            raise ValueError(f"message {message}")
        bounds = (
            b"\xff" * 16 + one.elsewhere() if one.leader else struct.pack("<QQ", one.first(), one.end())
            for one in self.topics.get(topic, [])
        )
        return identity + name(topic) + struct.pack("<H", len(self.topics.get(topic, []))) + b"".join(bounds)


class Running:
    """A broker in a thread of this process, for tests that look into it."""

    def __init__(self, idle: float | None = None, silent: bool = False) -> None:
        self.broker = Broker(argparse.Namespace(idle=idle, silent=silent, keep=None))
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    def partition(self, topic: bytes, number: int) -> Partition:
        """A partition that there is; to be changed within `do`."""
        found = self.broker.partition(topic, number)
        assert found is not None
        return found

    def do(self, change: Callable[[], _T]) -> _T:
        """Calls something in the broker's thread; who waits for messages looks again."""

        async def call() -> _T:
            changed = change()
            async with self.broker.grown:
                self.broker.grown.notify_all()
            return changed

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.start_server(self.broker.serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(30)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_exception: object) -> None:
        async def end() -> None:
            self._server.close()
            for connection in self.broker.connections:
                connection.close()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
            await self._server.wait_closed()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--idle", type=float, help="closes a connection after so many seconds without a request")
    parser.add_argument("--keep", type=Path, help="has its topics in this file when it is started again")
    parser.add_argument("--silent", action="store_true", help="does not greet")
    broker = Broker(parser.parse_args())
    server = await asyncio.start_server(broker.serve, "127.0.0.1", broker.options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
