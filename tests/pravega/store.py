"""A Pravega segment store for tests, in memory, from the page of the protocol: `python3 -m tests.pravega.store`.

It knows what a client that writes and reads events asks of it. Its first line on stdout is its port.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

HELLO, KEEP_ALIVE = -127, 100
SETUP, BLOCK_END, READ, INFO, CREATE, SEAL, DELETE, TRUNCATE = 1, 4, 9, 11, 20, 28, 30, 38
NEW = -(2**63)


def text(name: str) -> bytes:
    """A name behind its length; names here are ASCII."""
    return struct.pack(">H", len(name)) + name.encode()


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">ii", kind, len(payload)) + payload


class Reader:
    """Takes values off the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, length: int) -> bytes:
        self.at += length
        if self.at > len(self.data):
            raise ValueError("a frame ends early")
        return self.data[self.at - length : self.at]

    def number(self, form: str) -> int:
        (value,) = struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))
        return int(value)

    def text(self) -> str:
        return self.take(self.number("H")).decode()


@dataclass
class Segment:
    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    sealed: bool = False
    writers: dict[bytes, int] = field(default_factory=dict)


class Running:
    """A running store."""

    def __init__(self, port: int = 0) -> None:
        self.segments: dict[str, Segment] = {}
        self.grown = threading.Condition()
        #: What makes the next reply, a whole frame, of the id of its request.
        self.instead: Callable[[bytes], bytes] | None = None
        #: How many appends are stored and not acknowledged: the connection is closed instead.
        self.lose = 0
        self.appends = 0
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets: set[socket.socket] = set()
        self.over = False
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Closes all connections, and ends; again means nothing."""
        with self.grown:
            if self.over:
                return
            self.over = True
            self.grown.notify_all()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.hang_up()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()

    def hang_up(self) -> None:
        """Closes all connections."""
        with self.grown:
            sockets = list(self.sockets)
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.grown:
                self.sockets.add(connection)
            thread = threading.Thread(target=self.serve, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def serve(self, connection: socket.socket) -> None:
        sending = threading.Lock()
        names: dict[bytes, str] = {}
        stream = connection.makefile("rb")
        waiting = []
        try:
            while head := stream.read(8):
                kind, length = struct.unpack(">ii", head)
                reader = Reader(stream.read(length))
                if kind == READ:
                    waiting.append(threading.Thread(target=self.read, args=(connection, sending, reader)))
                    waiting[-1].start()
                    continue
                with self.grown:
                    reply = self.answer(kind, reader, names)
                    self.grown.notify_all()
                if reply is None:
                    return
                with sending:
                    connection.sendall(reply)
        except (OSError, struct.error):
            pass
        finally:
            with self.grown:
                self.sockets.discard(connection)
                names.clear()
                self.grown.notify_all()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            for thread in waiting:
                thread.join(20)
            connection.close()

    def read(self, connection: socket.socket, sending: threading.Lock, reader: Reader) -> None:
        name, offset, length = reader.text(), reader.number("q"), reader.number("i")
        reader.text()
        request = reader.number("q")
        with self.grown:

            def settled() -> bool:
                segment = self.segments.get(name)
                gone = self.over or connection not in self.sockets
                return gone or segment is None or segment.sealed or offset < max(len(segment.data), segment.start)

            self.grown.wait_for(settled, 60)
            segment = self.segments.get(name)
            if segment is None:
                reply = frame(53, struct.pack(">q", request) + text(name) + text("") + struct.pack(">q", offset))
            elif offset < segment.start:
                gone = text(name) + struct.pack(">q", segment.start) + text("") + struct.pack(">q", offset)
                reply = frame(56, struct.pack(">q", request) + gone)
            else:
                data = bytes(segment.data[offset : offset + max(length, 8)])
                head = text(name) + struct.pack(">q??i", offset, False, not data, len(data))
                reply = frame(10, head + data + struct.pack(">q", request))
        with suppress(OSError), sending:
            connection.sendall(reply)

    def answer(self, kind: int, reader: Reader, names: dict[bytes, str]) -> bytes | None:
        """The reply; `None`: the connection is closed."""
        if kind == HELLO:
            return frame(HELLO, struct.pack(">ii", 16, 5))
        if kind == KEEP_ALIVE:
            return frame(KEEP_ALIVE, b"")
        if kind == BLOCK_END:
            return self.append(reader, names)
        request = struct.pack(">q", reader.number("q"))
        if self.instead is not None:
            made, self.instead = self.instead, None
            return made(request)
        if kind == SETUP:
            writer, name = reader.take(16), reader.text()
            if name in self.segments:
                names[writer] = name
                last = self.segments[name].writers.get(writer, NEW)
                return frame(2, request + text(name) + writer + struct.pack(">q", last))
            return frame(53, request + text(name) + text("") + struct.pack(">q", -1))
        name = reader.text()
        segment = self.segments.get(name)
        if kind == INFO:
            known = segment or Segment()
            told = struct.pack(">???qqq", segment is not None, known.sealed, False, 0, len(known.data), known.start)
            return frame(12, request + text(name) + told)
        if kind == CREATE:
            if segment is not None:
                return frame(52, request + text(name) + text(""))
            self.segments[name] = Segment()
            return frame(21, request + text(name))
        if segment is None:
            return frame(53, request + text(name) + text("") + struct.pack(">q", -1))
        if kind == SEAL:
            segment.sealed = True
        elif kind == TRUNCATE:
            segment.start = reader.number("q")
        elif kind == DELETE:
            del self.segments[name]
        return frame(kind + 1, request + text(name))

    def append(self, reader: Reader, names: dict[bytes, str]) -> bytes | None:
        writer = reader.take(16)
        reader.number("i")
        data = reader.take(reader.number("i"))
        events, last, request = reader.number("i"), reader.number("q"), reader.number("q")
        self.appends += 1
        name = names[writer]
        segment = self.segments[name]
        if segment.sealed:
            return frame(51, struct.pack(">q", request) + text(name) + text("") + struct.pack(">q", -1))
        previous = segment.writers.get(writer, NEW)
        assert previous in (NEW, last - events), "an event is sent twice"
        segment.writers[writer] = last
        segment.data += data
        if self.lose > 0:
            self.lose -= 1
            return None
        return frame(7, writer + struct.pack(">qqqq", last, previous, request, len(segment.data)))


if __name__ == "__main__":
    with Running() as store:
        print(store.address.rpartition(":")[2], flush=True)
        threading.Event().wait()
