"""Whole frames, laid out by hand: `struct` for the first sixteen bytes, `zlib` for the checksum, flatc for headers."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

from .text import Vector

Encode = Callable[..., bytes]


def frame(opcode: int, flags: int, call: int, header: bytes, payload: bytes = b"", form: int = 1) -> bytes:
    """A frame as the specification's picture shows it."""
    length = 12 + len(header) + len(payload) + 4
    prelude = struct.pack(">IBHBIB", length, 23, opcode, flags, call, form) + len(header).to_bytes(3, "big")
    return prelude + header + payload + struct.pack(">I", zlib.crc32(payload))


def _vector(name: str, about: str, opcode: int, flags: int, call: int, header: bytes, payload: bytes = b"") -> Vector:
    value = {"opcode": opcode, "flags": flags, "call": call, "header": len(header), "payload": len(payload)}
    return Vector(name, about, json.dumps(value), {"python": frame(opcode, flags, call, header, payload)})


def files(encode: Encode) -> dict[str, list[Vector]]:
    """The vectors by the file they are in."""

    def header(table: str, value: dict[str, Any]) -> bytes:
        return encode(table, value)

    status = {"code": "INVALID_REQUEST", "message": "no"}
    criteria = {"timeout_ms": 500, "streams": [{"name": "flights", "replica_nums": 1}]}
    append = {"append_requests": [{"stream_id": 1, "batch_length": 5}]}
    fetch = {"fetch_responses": [{"stream_id": 1, "batch_length": 5, "record_count": 1}], "status": {"code": "NONE"}}
    result = {"append_responses": [{"stream_id": 1, "base_offset": 40, "status": {}}], "status": {}}
    heartbeat = {"client_id": "c", "client_role": "CLIENT", "protocol_revision": 1}
    notices = [
        _vector("ping", "neither header nor payload", 0x0001, 0, 1, b""),
        _vector("ping-full", "whatever header and payload", 0x0001, 0, 2, b"\xff", b"ping"),
        _vector("pong", "the same, as an answer", 0x0001, 3, 2, b"\xff", b"ping"),
        _vector("goaway-bare", "nothing was started", 0x0002, 0, 0, b""),
        _vector("goaway", "call 9 was the last", 0x0002, 0, 9, header("GoAway", {"grace_ms": 10_000})),
        _vector("heartbeat", "what a client says first", 0x0003, 0, 1, header("HeartbeatRequest", heartbeat)),
    ]
    calls = [
        _vector("create", "a stream by name", 0x3001, 0, 3, header("CreateStreamsRequest", criteria)),
        _vector(
            "append", "five bytes for stream 1", 0x1001, 0, 2**31 - 2**16, header("AppendRequest", append), b"batch"
        ),
        _vector("appended", "the last frame of an answer", 0x1001, 3, 4, header("AppendResponse", result)),
        _vector("fetched", "a frame of an answer, more follow", 0x1002, 1, 5, header("FetchResponse", fetch), b"batch"),
        _vector("refused", "a system error", 0x2001, 7, 6, header("SystemErrorResponse", {"status": status})),
    ]
    return {"notices": notices, "calls": calls}
