"""A Pravega controller for tests, before a scripted store: its streams are scaled, truncated, sealed and made anew.

It answers the calls of a client that reads and writes events: gRPC over HTTP/2 in clear text, with the fields by their
numbers.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import h2.config
import h2.connection
import h2.events

from .store import Running, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

NOT_FOUND, UNIMPLEMENTED = 5, 12


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """A message of these fields: numbers, text, bytes and other messages, doubles."""
    out = b""
    for tag, value in fields:
        if isinstance(value, float):
            out += varint(tag << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += varint(tag << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += varint(tag << 3 | 2) + varint(len(content)) + content
    return out


def fields(data: bytes) -> dict[int, Any]:
    """The fields of a message, the last of each number: integers, and bytes for the rest."""
    found: dict[int, Any] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            found[key >> 3] = number()
        else:
            length = {1: 8, 2: -1, 5: 4}[key & 7]
            length = number() if length < 0 else length
            found[key >> 3] = data[at : at + length]
            at += length
    return found


@dataclass
class Part:
    """A segment of a stream, and which keys it has."""

    number: int
    epoch: int
    low: float
    high: float
    follows: list[int] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.epoch << 32 | self.number

    @property
    def name(self) -> str:
        return f"{self.number}.#epoch.{self.epoch}"


@dataclass
class Stream:
    parts: list[Part] = field(default_factory=list)
    #: The ids of those that are open, and of those with which reading begins.
    open: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    #: How many segments there ever were, those of an earlier stream of this name too.
    made: int = 0


class RefusedError(Exception):
    """Answered with this status of gRPC."""


class Controller:
    """A running controller, whose segments are on a store of its own."""

    def __init__(self) -> None:
        self.store = Running()
        self.lock = threading.Lock()
        self.scopes: set[str] = set()
        self.streams: dict[str, Stream] = {}
        self.retired: dict[str, int] = {}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            sockets = list(self.sockets)
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        self.store.stop()

    # What tests do with streams.

    def create(self, name: str, segments: int = 1) -> None:
        """A stream with so many segments; numbers of a deleted one of this name are not given again."""
        with self.lock:
            self.scopes.add(name.partition("/")[0])
            stream = Stream(made=self.retired.get(name, 0))
            share = 1 / segments
            self._open(name, stream, [(number * share, (number + 1) * share, []) for number in range(segments)], 0)
            stream.first = list(stream.open)
            self.streams[name] = stream

    def scale(self, name: str, ranges: Iterable[tuple[float, float]]) -> None:
        """Seals the open segments and opens others with these ranges of keys, each after those that had any of them."""
        with self.lock:
            stream = self.streams[name]
            sealed = [part for part in stream.parts if part.id in stream.open]
            followed = [
                (low, high, [part.id for part in sealed if part.low < high and low < part.high]) for low, high in ranges
            ]
            stream.open = []
            self._open(name, stream, followed, max(part.epoch for part in sealed) + 1)
            self._seal(name, sealed)

    def seal(self, name: str) -> None:
        """Seals a stream."""
        with self.lock:
            stream = self.streams[name]
            self._seal(name, [part for part in stream.parts if part.id in stream.open])
            stream.open = []

    def truncate(self, name: str, places: dict[int, int]) -> None:
        """Cuts a stream off in front of these bytes of these segments; what lies before them all is deleted."""
        with self.lock:
            stream = self.streams[name]
            gone = set()
            for id_ in places:
                gone |= self._before(stream, id_)
            stream.parts = [part for part in stream.parts if part.id not in gone]
            stream.first = list(places)
        with self.store.grown:
            for id_ in gone:
                self.store.segments.pop(f"{name}/{id_ & 0xFFFFFFFF}.#epoch.{id_ >> 32}", None)
            for id_, start in places.items():
                self.store.segments[f"{name}/{id_ & 0xFFFFFFFF}.#epoch.{id_ >> 32}"].start = start
            self.store.grown.notify_all()

    def delete(self, name: str) -> None:
        """Deletes a stream with all its segments."""
        with self.lock:
            stream = self.streams.pop(name)
            self.retired[name] = stream.made
        with self.store.grown:
            for part in stream.parts:
                self.store.segments.pop(f"{name}/{part.name}", None)
            self.store.grown.notify_all()

    def _before(self, stream: Stream, id_: int) -> set[int]:
        by_id = {part.id: part for part in stream.parts}
        found: set[int] = set()
        left = list(by_id[id_].follows)
        while left:
            one = left.pop()
            if one in by_id and one not in found:
                found.add(one)
                left += by_id[one].follows
        return found

    def _open(self, name: str, stream: Stream, ranges: list[tuple[float, float, list[int]]], epoch: int) -> None:
        with self.store.grown:
            for low, high, follows in ranges:
                part = Part(stream.made, epoch, float(low), float(high), follows)
                stream.made += 1
                stream.parts.append(part)
                stream.open.append(part.id)
                self.store.segments[f"{name}/{part.name}"] = Segment()

    def _seal(self, name: str, parts: list[Part]) -> None:
        with self.store.grown:
            for part in parts:
                self.store.segments[f"{name}/{part.name}"].sealed = True
            self.store.grown.notify_all()

    # What clients ask.

    def answer(self, call: str, asked: dict[int, Any]) -> bytes:
        match call:
            case "createScope":
                self.scopes.add(asked[1].decode())
                return message((1, 0))
            case "listScopes":
                rest = sorted(self.scopes) if not fields(asked.get(1, b"")).get(1) else []
                return message(*((1, scope) for scope in rest), (2, message((1, "end"))))
            case "listStreamsInScope":
                scope = fields(asked[1])[1].decode()
                rest = sorted(self.streams) if not fields(asked.get(2, b"")).get(1) else []
                names = [name.partition("/")[2] for name in rest if name.startswith(f"{scope}/")]
                return message(*((1, self.info(f"{scope}/{name}")) for name in names), (2, message((1, "end"))))
            case "getURI":
                host, _, port = self.store.address.rpartition(":")
                return message((1, host), (2, int(port)))
            case "getCurrentSegments":
                name, stream = self.found(asked)
                return message(*((1, self.range(name, p)) for p in stream.parts if p.id in stream.open))
            case "getSegments":
                name, stream = self.found(fields(asked[1]))
                starts = [
                    (p, self.store.segments[f"{name}/{p.name}"].start) for p in stream.parts if p.id in stream.first
                ]
                return message(*((1, message((1, self.segment(name, p)), (2, start))) for p, start in starts))
            case "getSegmentsImmediatelyFollowing":
                name, stream = self.found(fields(asked[1]))
                after = [part for part in stream.parts if asked.get(2, 0) in part.follows]
                return message(
                    *((1, message((1, self.range(name, p)), *((2, before) for before in p.follows))) for p in after)
                )
        raise RefusedError(UNIMPLEMENTED)

    def found(self, asked: dict[int, Any]) -> tuple[str, Stream]:
        name = f"{asked[1].decode()}/{asked[2].decode()}"
        if name not in self.streams:
            raise RefusedError(NOT_FOUND)
        return name, self.streams[name]

    def info(self, name: str) -> bytes:
        scope, _, stream = name.partition("/")
        return message((1, scope), (2, stream))

    def segment(self, name: str, part: Part) -> bytes:
        return message((1, self.info(name)), (2, part.id))

    def range(self, name: str, part: Part) -> bytes:
        return message((1, self.segment(name, part)), (2, part.low), (3, part.high))

    # HTTP/2.

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.sockets.append(connection)
            thread = threading.Thread(target=self.serve, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def serve(self, connection: socket.socket) -> None:
        http = h2.connection.H2Connection(config=h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        http.initiate_connection()
        calls: dict[int, tuple[str, bytes]] = {}
        with suppress(OSError):
            connection.sendall(http.data_to_send())
            while data := connection.recv(1 << 16):
                for event in http.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        path = dict(event.headers)[":path"]
                        calls[event.stream_id] = (str(path).rpartition("/")[2], b"")
                    elif isinstance(event, h2.events.DataReceived):
                        call, content = calls[event.stream_id]
                        calls[event.stream_id] = (call, content + event.data)
                        http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        self.reply(http, event.stream_id, *calls.pop(event.stream_id))
                connection.sendall(http.data_to_send())
        connection.close()

    def reply(self, http: h2.connection.H2Connection, stream: int, call: str, content: bytes) -> None:
        head = [(":status", "200"), ("content-type", "application/grpc")]
        try:
            with self.lock:
                answer = self.answer(call, fields(content[5:]))
        except RefusedError as refused:
            http.send_headers(stream, [*head, ("grpc-status", str(refused.args[0]))], end_stream=True)
            return
        http.send_headers(stream, head)
        http.send_data(stream, struct.pack(">?I", False, len(answer)) + answer)
        http.send_headers(stream, [("grpc-status", "0")], end_stream=True)
