"""A peer between a client and a real server that does what a test's script says, and is transparent otherwise.

A script answers requests of one operation itself, changes them on their way, swallows them, or ends the connection; it
may change answers too. So a test can make a client meet every code, and make a real server refuse what no client of
ours would send. Headers are written and read by the schema compiler, which shares nothing with the code under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self, TypeVar

from vectors.make import to_bytes, to_json

PRELUDE = struct.Struct(">IBHBIB")
MAGIC = 23
RESPONSE, END, SYSTEM_ERROR = 1, 2, 4

PING, HEARTBEAT = 0x0001, 0x0003
APPEND, FETCH = 0x1001, 0x1002
LIST_RANGES, SEAL_RANGES = 0x2001, 0x2002
CREATE_STREAMS, DELETE_STREAMS, UPDATE_STREAMS, DESCRIBE_STREAMS, TRIM_STREAMS = range(0x3001, 0x3006)
DESCRIBE_CLUSTER = 0x4002


@cache
def _encoded(table: str, value: str) -> bytes:
    return to_bytes(table, json.loads(value))


def encode(table: str, value: dict[str, Any]) -> bytes:
    """The header that says `value`."""
    return _encoded(table, json.dumps(value))


@dataclass(frozen=True)
class Frame:
    """One frame, taken apart."""

    opcode: int
    flags: int
    call: int
    header: bytes = b""
    payload: bytes = b""
    form: int = 1

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Self:
        """The next frame of a connection."""
        start = await reader.readexactly(16)
        length, _, opcode, flags, call, form = PRELUDE.unpack_from(start)
        size = int.from_bytes(start[13:])
        body = await reader.readexactly(length - 12)
        return cls(opcode, flags, call, body[:size], body[size:-4], form)

    def to_bytes(self) -> bytes:
        """The frame as it travels, with a checksum that is right."""
        length = 12 + len(self.header) + len(self.payload) + 4
        start = PRELUDE.pack(length, MAGIC, self.opcode, self.flags, self.call, self.form)
        checksum = zlib.crc32(self.payload).to_bytes(4)
        return start + len(self.header).to_bytes(3) + self.header + self.payload + checksum

    def decode(self, table: str) -> Any:
        """What the header says, defaults written out."""
        return to_json(table, self.header)

    def answer(self, table: str, value: dict[str, Any], payload: bytes = b"") -> Frame:
        """The only frame of an answer to this request."""
        return Frame(self.opcode, RESPONSE | END, self.call, encode(table, value), payload)

    def refusal(self, code: int, message: str = "so the script says", **facts: Any) -> Frame:
        """The answer that the request was not understood or not started."""
        header = encode("SystemErrorResponse", {"status": {"code": code, "message": message, **facts}})
        return Frame(self.opcode, RESPONSE | END | SYSTEM_ERROR, self.call, header)


@dataclass(frozen=True)
class Act:
    """What becomes of a request: it goes on `up`, is answered with `down`, or the connection ends."""

    up: tuple[Frame, ...] = ()
    down: tuple[Frame, ...] = ()
    raw: bytes = b""
    hang_up: bool = False


#: The request is never answered.
SWALLOW = Act()
#: The connection ends instead of an answer.
HANG_UP = Act(hang_up=True)

T = TypeVar("T")
Script = Callable[[Frame], "Act | Frame"]
Rewrite = Callable[[Frame], "Frame | None"]


def refuse(code: int, message: str = "so the script says") -> Script:
    """Answers with a system error: nothing was understood or started."""
    return lambda frame: frame.refusal(code, message)


def not_leader(leader: str) -> Script:
    """Answers that another server is the leader, and where it is."""
    node = {"name": "leader", "advertise_addr": leader, "is_leader": True}
    detail = list(encode("PlacementDriverCluster", {"nodes": [node]}))
    return lambda frame: frame.refusal(1503, "not the leader", detail=detail)


def refuse_entries(code: int, message: str = "so the script says", **facts: Any) -> Script:
    """Answers an APPEND as a whole with success, and each of its entries with the code."""

    def act(frame: Frame) -> Frame:
        results = [
            {
                "stream_id": entry["stream_id"],
                "request_index": entry.get("request_index", 0),
                "base_offset": -1,
                "status": {"code": code, "message": message},
                **facts,
            }
            for entry in frame.decode("AppendRequest")["append_requests"]
        ]
        return frame.answer("AppendResponse", {"append_responses": results, "status": {"code": 0}})

    return act


class ScriptedPeer:
    """Listens on loopback; connects each client to `upstream`. A context manager."""

    def __init__(self) -> None:
        self.upstream = ""
        self.asked: list[Frame] = []
        self._scripts: dict[int, list[Script]] = {}
        self._rewrites: dict[int, Rewrite] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-peer", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._connected, "127.0.0.1", 0))
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def on(self, opcode: int, *scripts: Script) -> None:
        """The next requests of this operation meet these scripts, one each; the last one stays."""
        self._scripts[opcode] = list(scripts)

    def once(self, opcode: int, *scripts: Script) -> None:
        """The next requests of this operation meet these scripts, one each; later ones pass."""
        self.on(opcode, *scripts, lambda frame: Act(up=(frame,)))

    def rewrite(self, opcode: int, change: Rewrite) -> None:
        """Answers to this operation are changed on their way; None drops one."""
        self._rewrites[opcode] = change

    def times(self, opcode: int) -> int:
        """How many requests of this operation came since the last reset."""
        return sum(frame.opcode == opcode for frame in self.asked)

    def reset(self) -> None:
        """Forgets all scripts, and what was asked."""
        self._scripts.clear()
        self._rewrites.clear()
        self.asked.clear()

    def close(self) -> None:
        """Ends all connections."""
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        server, upstream = await asyncio.open_connection(host, int(port))
        works = [
            asyncio.ensure_future(self._from_client(reader, upstream, writer)),
            asyncio.ensure_future(self._from_server(server, writer)),
        ]
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            for end in (writer, upstream):
                end.transport.abort()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _from_client(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await Frame.read(reader)
            act = Act(up=(frame,))
            if not frame.flags & RESPONSE:
                self.asked.append(frame)
                if scripts := self._scripts.get(frame.opcode):
                    script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
                    # The schema compiler is a process: not on the loop that others wait for.
                    done = await asyncio.to_thread(script, frame)
                    act = done if isinstance(done, Act) else Act(down=(done,))
            for one in act.up:
                upstream.write(one.to_bytes())
            for one in act.down:
                writer.write(one.to_bytes())
            writer.write(act.raw)
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(upstream.drain(), writer.drain())
            if act.hang_up:
                return

    async def _from_server(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await Frame.read(server)
            change = self._rewrites.get(frame.opcode) if frame.flags & RESPONSE else None
            passed = await asyncio.to_thread(change, frame) if change else frame
            if passed is not None:
                writer.write(passed.to_bytes())
                await writer.drain()


def changed(frame: Frame, **parts: Any) -> Act:
    """The request goes on to the server with some of its parts changed."""
    return Act(up=(replace(frame, **parts),))


def restamp(known: int, other: int) -> Script:
    """An APPEND goes on with another time in its batches, in ms: one that no client of ours would send."""

    def act(frame: Frame) -> Act:
        known_bytes, other_bytes = struct.pack("<q", known), struct.pack("<q", other)
        assert known_bytes in frame.payload
        return changed(frame, payload=frame.payload.replace(known_bytes, other_bytes))

    return act
