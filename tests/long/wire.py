"""Frames as raw as they come, with as little of FlatBuffers as the requests of these tests need."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

PING, GOAWAY, HEARTBEAT, APPEND, FETCH = 0x0001, 0x0002, 0x0003, 0x1001, 0x1002
UNKNOWN = 0x7777
LARGEST = 16 * 1024 * 1024


def frame(opcode: int, call: int, header: bytes = b"", payload: bytes = b"") -> bytes:
    """A request that is right in every field of its prelude."""
    length = 16 + len(header) + len(payload)
    prelude = struct.pack(">IBHBIB", length, 23, opcode, 0, call, 1) + struct.pack(">I", len(header))[1:]
    return prelude + header + payload + struct.pack(">I", zlib.crc32(payload))


def head(opcode: int, call: int, header_length: int, payload_length: int) -> bytes:
    """The first 16 bytes of a frame whose rest is sent by somebody else, or never."""
    length = 16 + header_length + payload_length
    return struct.pack(">IBHBIB", length, 23, opcode, 0, call, 1) + struct.pack(">I", header_length)[1:]


@dataclass(frozen=True)
class Int:
    """A field of four bytes."""

    id: int
    value: int


@dataclass(frozen=True)
class Long:
    """A field of eight bytes."""

    id: int
    value: int


@dataclass(frozen=True)
class Text:
    """A field that is a text."""

    id: int
    value: str


@dataclass(frozen=True)
class Tables:
    """A field that is a vector of tables; `shared` makes it name its only table so many times."""

    id: int
    tables: list[list[Field]]
    shared: int = 1


Field = Int | Long | Text | Tables


def root(fields: list[Field]) -> bytes:
    """A FlatBuffers root table."""
    out = bytearray(4)
    struct.pack_into("<I", out, 0, _table(out, fields))
    return bytes(out)


def _table(out: bytearray, fields: list[Field]) -> int:
    # Long fields first: the table starts at 4 modulo 8, so that they lie on multiples of 8.
    ordered = sorted(fields, key=lambda field: not isinstance(field, Long))
    slots, size = {}, 4
    for field in ordered:
        slots[field.id] = size
        size += 8 if isinstance(field, Long) else 4
    last = max(slots, default=-1)
    out += bytes(-len(out) % 4)
    vtable = len(out)
    out += struct.pack("<HH", 4 + 2 * (last + 1), size)
    out += b"".join(struct.pack("<H", slots.get(id_, 0)) for id_ in range(last + 1))
    out += bytes((4 - len(out)) % 8)
    start = len(out)
    out += bytes(size)
    struct.pack_into("<i", out, start, start - vtable)
    for field in ordered:
        place = start + slots[field.id]
        match field:
            case Int():
                struct.pack_into("<i", out, place, field.value)
            case Long():
                struct.pack_into("<q", out, place, field.value)
            case Text():
                struct.pack_into("<I", out, place, _text(out, field.value) - place)
            case Tables():
                struct.pack_into("<I", out, place, _vector(out, field) - place)
    return start


def _text(out: bytearray, text: str) -> int:
    out += bytes(-len(out) % 4)
    start = len(out)
    said = text.encode()
    out += struct.pack("<I", len(said)) + said + b"\0"
    return start


def _vector(out: bytearray, field: Tables) -> int:
    out += bytes(-len(out) % 4)
    start = len(out)
    count = len(field.tables) * field.shared
    out += struct.pack("<I", count) + bytes(4 * count)
    targets = [_table(out, table) for table in field.tables for _ in range(1)]
    for n in range(count):
        place = start + 4 + 4 * n
        struct.pack_into("<I", out, place, targets[n % len(targets)] - place)
    return start


def fetch(stream: int, offset: int, batch_max_bytes: int) -> bytes:
    """A FETCH of one stream that does not wait."""
    entry: list[Field] = [Long(0, stream), Int(1, 0), Long(2, offset), Int(3, batch_max_bytes)]
    return root([Int(0, 0), Int(1, 0), Tables(2, [entry])])


def heartbeat(token: str) -> bytes:
    """A HEARTBEAT that says who asks."""
    return root([Text(6, token)])


def bomb(tables: int) -> bytes:
    """An APPEND header that is small, and large to whoever visits each of its tables."""
    entry: list[Field] = [Long(0, 1), Int(1, 0), Int(2, 0)]
    return root([Int(0, 0), Tables(1, [entry], shared=tables)])
