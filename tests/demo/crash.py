"""Kills the server in the middle of appends, and looks whether every promise was kept."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import sbp_native as sbp

if TYPE_CHECKING:
    from collections.abc import Callable

    from .replay import Ledger
    from .service import ServerProcess

STREAMS = tuple(f"crash/{number}" for number in range(4))

#: The server is killed when this many appends are acknowledged, with up to `IN_FLIGHT` more under way.
KILL_AFTER = 1_500
IN_FLIGHT = 128


@dataclass
class Crash:
    """What became of the appends around the kill."""

    acknowledged: list[tuple[str, int, bytes]]
    sent: dict[str, set[bytes]]
    rejected: int = 0
    indeterminate: int = 0


async def kill_amid_appends(server: ServerProcess, advance: Callable[[int], None]) -> Crash:
    """Appends until `KILL_AFTER` acknowledgements are there, kills the server, and waits for every outcome.

    Raises `RuntimeError` if nothing was under way at the kill, since then nothing was tested.
    """
    seeded = random.Random(2013)
    crash = Crash([], {name: set() for name in STREAMS})
    killed = asyncio.Event()

    # An append that had not left yet is tried again until its time is up: nobody answers any more, so that is short.
    async with sbp.aio.connect(server.address, timeout=3) as client:
        for name in STREAMS:
            await client.create_stream(name)

        async def append(number: int) -> None:
            while not killed.is_set():
                name = STREAMS[number % len(STREAMS)]
                value = number.to_bytes(8, "big") + seeded.randbytes(seeded.randrange(16, 4_096))
                number += IN_FLIGHT
                crash.sent[name].add(value)
                try:
                    ack = (await client.append_all({name: value}))[name]
                except sbp.IndeterminateError:
                    crash.indeterminate += 1
                except sbp.RejectedError:
                    crash.rejected += 1
                else:
                    crash.acknowledged.append((name, ack.base_offset, value))
                    advance(1)
                    if len(crash.acknowledged) == KILL_AFTER:
                        server.kill()
                        killed.set()

        await asyncio.gather(*(append(number) for number in range(IN_FLIGHT)))
    if not crash.rejected + crash.indeterminate:
        raise RuntimeError("no append was under way when the server was killed")
    return crash


def check_records(address: str, crash: Crash) -> list[str]:
    """Compares every acknowledged record byte for byte at its offset; returns what is wrong, one line each."""
    wrong: list[str] = []
    with sbp.connect(address) as client:
        stored: dict[str, dict[int, bytes]] = {}
        for name in STREAMS:
            stored[name] = {
                record.offset: bytes(record.value)
                for batch in client.stream(name).read(start="earliest", end="latest")
                for record in batch.records()
            }
    for name, offset, value in crash.acknowledged:
        found = stored[name].get(offset)
        if found is None:
            wrong.append(f"{name} at {offset}: acknowledged, {len(value)} bytes, and gone")
        elif found != value:
            wrong.append(f"{name} at {offset}: acknowledged {value[:8].hex()}..., found {found[:8].hex()}...")
    for name, records in stored.items():
        values = list(records.values())
        if len(set(values)) != len(values):
            wrong.append(f"{name}: a record is stored at two offsets")
        if not set(values) <= crash.sent[name]:
            wrong.append(f"{name}: holds a record that nobody sent")
        if sorted(records) != list(range(len(records))):
            wrong.append(f"{name}: offsets are not 0 to {len(records) - 1}")
    return wrong


def check_events(address: str, ledger: Ledger, advance: Callable[[int], None]) -> list[str]:
    """Compares every event of the year with what was acknowledged, at its offset; returns what is wrong."""
    wrong: list[str] = []
    with sbp.connect(address) as client:
        for name, entries in sorted(ledger.acknowledged.items()):
            expected, end = [], 0
            for base_offset, rows in sorted(entries, key=lambda entry: entry[0]):
                if base_offset != end:
                    wrong.append(f"{name}: acknowledged at {base_offset}, where {end} comes next")
                end = base_offset + rows.num_rows
                expected.append(rows)
            found = _read(client.stream(name))
            if not found.equals(pa.concat_tables(expected).combine_chunks()):
                wrong.append(f"{name}: the events read back are not those acknowledged")
            advance(found.num_rows)
    return wrong


def _read(stream: Any) -> pa.Table:
    batches = [batch.to_arrow() for batch in stream.read(start="earliest", end="latest")]
    return pa.Table.from_batches(batches, stream.schema).combine_chunks()
