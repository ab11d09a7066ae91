"""Record batches, laid out by hand: `struct` and flatc; compressed bodies by the rules of their formats."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from .text import Vector

Encode = Callable[..., bytes]

TIME = 1_700_000_000_123
WRITER = {"high": 0x0102030405060708, "low": 0x090A0B0C0D0E0F10}
TEXT = b"sbpsbpsbpsbpsbpsbpsbpsbpsbpsbp"


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def aligned(data: bytes) -> bytes:
    """The bytes, with zeros up to a multiple of 16."""
    return data + bytes(-len(data) % 16)


def batch(encode: Encode, meta: dict[str, Any], body: bytes, base_offset: int) -> bytes:
    """A batch whose head ends at a multiple of 16, and whose end does."""
    table = encode("RecordBatchMeta", meta)
    table += bytes(-(13 + len(table)) % 16)
    return aligned(struct.pack(">bqi", 0x22, base_offset, len(table)) + table + body)


def records_body() -> bytes:
    """Three records: times in microseconds, a key, a null value, two headers of which one is null."""
    buffers = [
        struct.pack("<3q", 1_000_001, 2_000_002, 3_000_003),
        b"\x05",
        struct.pack("<4i", 0, 2, 2, 3),
        b"k1k",
        b"\x03",
        struct.pack("<4i", 0, 3, 3, 3),
        b"one",
        struct.pack("<4i", 0, 0, 2, 2),
        struct.pack("<3i", 0, 1, 3),
        b"abc",
        b"\x01",
        struct.pack("<3i", 0, 2, 2),
        b"xy",
    ]
    index, data, at = b"", b"", 8 + 8 * len(buffers)
    at = -(-at // 16) * 16
    start = at
    for content in buffers:
        index += struct.pack("<II", at, len(content))
        data += aligned(content)
        at += len(aligned(content))
    head = struct.pack("<II", 3, 0) + index
    body = head + bytes(start - len(head)) + data
    return body[: len(body) - len(aligned(buffers[-1])) + len(buffers[-1])]


def lz4() -> bytes:
    """`TEXT` as one LZ4 block: three literals, a match of 22 three bytes back, five literals."""
    match = len(TEXT) - 3 - 5
    return bytes([3 << 4 | 15]) + TEXT[:3] + struct.pack("<H", 3) + bytes([match - 4 - 15, 5 << 4]) + TEXT[-5:]


def zstd() -> bytes:
    """`TEXT` as one Zstandard frame with one raw block."""
    raw = (len(TEXT) << 3 | 1).to_bytes(3, "little")
    return bytes.fromhex("28b52ffd") + bytes([0x20, len(TEXT)]) + raw + TEXT


def listed(encode: Encode) -> bytes:
    """A batch of plain v0.1: a list of two records, no lengths in the head, no padding."""
    properties = [{"key": "k", "value": "v"}]
    meta = {
        "stream_id": 3,
        "base_offset": 999,
        "last_offset_delta": 1,
        "base_timestamp": TIME,
        "properties": properties,
    }
    table = encode("RecordBatchMeta", meta)
    out = struct.pack(">bqi", 0x22, 40, len(table)) + table
    for delta, body in enumerate([b"one", b"second"]):
        header = [{"key": "Tag", "value": "t"}]
        record = encode("RecordMeta", {"offset_delta": delta, "timestamp_delta": 10 * delta, "headers": header})
        out += struct.pack(">ii", len(record), len(body)) + record + body
    return out


def files(encode: Encode) -> dict[str, list[Vector]]:
    """The vectors by the file they are in."""

    def vector(name: str, about: str, changes: dict[str, Any], body: bytes, base_offset: int = 40) -> Vector:
        meta = {"stream_id": 3, "base_timestamp": TIME, "max_timestamp": TIME, "body_length": len(body)}
        meta |= {"uncompressed_length": len(body), "body_crc32c": crc32c(body)} | changes
        return Vector(name, about, json.dumps(meta), {"python": batch(encode, meta, body, base_offset)})

    raw = {"body_encoding": "RAW"}
    writer = {"writer_id": WRITER, "writer_epoch": 5, "base_sequence": 77}
    empty = {"last_offset_delta": -1, **raw, **writer}
    many = {"body_encoding": "RECORDS", "last_offset_delta": 2, "base_timestamp": 1_000, "max_timestamp": 3_000}
    packed = {"uncompressed_length": len(TEXT), **raw}
    written = [
        vector("raw", "one opaque record", raw, b"hello"),
        vector("raw-writer", "the same from an idempotent writer", raw | writer, b"hello", 2**40),
        vector("empty", "no record: a writer asks where it stands", empty, b""),
        vector("fence", "no record: a writer's epoch becomes current", {"flags": 1, **empty}, b""),
        vector("records", "three records with times, keys, a null and headers", many, records_body()),
        vector("lz4", "an LZ4 block", packed | {"compression": "LZ4"}, lz4()),
        vector("zstd", "a Zstandard frame", packed | {"compression": "ZSTD"}, zstd()),
    ]
    plain = Vector("list", "two records of a peer without extensions", "{}", {"python": listed(encode)})
    return {"written": written, "plain": [plain]}
