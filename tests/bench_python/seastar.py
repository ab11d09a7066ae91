"""Seastar RPC from Python: calls of a service that answers at once, and appends by verb 1001, beside native ones.

The service is a program of `crates/sbp-peers`, which is built in release mode when it is first needed.
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sbp_native import seastar
from tests.bench import native

ECHO = 1
APPEND, CREATE = 1001, 1005


@contextmanager
def serve() -> Iterator[tuple[str, str]]:
    """`sbp serve` without durability: the addresses for its own clients and for those of Seastar RPC."""
    with native.serve_process("none", options=("--seastar-listen", "127.0.0.1:0")) as (address, child):
        yield address, last_word(child)


@contextmanager
def echo() -> Iterator[str]:
    """A service in a process of its own whose verb 1 returns its arguments at once: its address."""
    command = ["cargo", "build", "--release", "--locked", "--package", "sbp-peers", "--example", "seastar_echo"]
    command += ["--message-format", "json-render-diagnostics"]
    root = Path(__file__).parents[2]
    built = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True, timeout=1_800).stdout
    [program] = [found for line in built.splitlines() if (found := json.loads(line).get("executable"))]
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        # It ends when its standard input does, with the block.
        yield last_word(child)


def last_word(child: subprocess.Popen[str]) -> str:
    """The address at the end of the next line that a server prints."""
    assert child.stdout is not None
    return child.stdout.readline().rsplit(" ", 1)[1].strip()


def _text(word: str) -> bytes:
    return struct.pack("<I", len(word)) + word.encode()


def called(address: str, in_flight: int, total: int) -> float:
    """Awaited calls a second of the echo, with four bytes, from so many tasks."""
    return asyncio.run(_rate(address, ECHO, bytes(4), in_flight, total))


def appended(address: str, in_flight: int, total: int, size: int = 64) -> float:
    """Awaited appends a second of a record each, by verb 1001, from so many tasks."""
    record = struct.pack("<qII", -1, 0xFFFF_FFFF, size) + bytes(size)
    arguments = _text("called") + struct.pack("<I", 1) + record
    with seastar.connect(address) as rpc:
        rpc.call(CREATE, _text("called"))
    return asyncio.run(_rate(address, APPEND, arguments, in_flight, total))


async def _rate(address: str, verb: int, arguments: bytes, in_flight: int, total: int) -> float:
    async with seastar.aio.connect(address) as rpc:
        await rpc.call(verb, arguments)

        async def worker() -> None:
            for _ in range(total // in_flight):
                await rpc.call(verb, arguments)

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return total // in_flight * in_flight / (time.perf_counter() - started)
