"""A proxy in front of a server that counts frames and sends PINGs of its own. Run as a process of its own.

It prints the address it listens on; for each line on its standard input it prints its counters as JSON.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections import Counter

PRELUDE = struct.Struct(">IBHBI")
PING, HEARTBEAT, APPEND = 0x0001, 0x0003, 0x1001
RESPONSE = 0x01
#: CallIds of the proxy's own PINGs: far from those of the server it speaks for.
FIRST_PING = 1_000_000

seen: Counter[str] = Counter()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))


async def from_client(reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
    while True:
        frame = await read_frame(reader)
        _, _, opcode, flags, call_id = PRELUDE.unpack_from(frame)
        if opcode == PING and flags & RESPONSE and call_id >= FIRST_PING:
            seen["pongs"] += 1
            continue
        if opcode == HEARTBEAT:
            seen["heartbeats"] += 1
        seen["frames"] += 1
        upstream.write(frame)
        await upstream.drain()


async def to_client(upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(await read_frame(upstream))
        await writer.drain()


async def ping(writer: asyncio.StreamWriter) -> None:
    for call_id in range(FIRST_PING, FIRST_PING + 10_000):
        await asyncio.sleep(0.2)
        # 16 bytes behind the length: prelude without header and payload, and the checksum of nothing.
        writer.write(PRELUDE.pack(16, 23, PING, 0, call_id) + bytes([1, 0, 0, 0]) + bytes(4))
        seen["pings"] += 1


async def serve(target: str) -> None:
    host, _, port = target.rpartition(":")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        works = [
            asyncio.ensure_future(work)
            for work in (from_client(reader, upstream_writer), to_client(upstream_reader, writer), ping(writer))
        ]
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        writer.close()
        upstream_writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    own = server.sockets[0].getsockname()
    print(f"{own[0]}:{own[1]}", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
