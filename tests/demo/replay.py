"""Appends events from asyncio: many streams in a frame, many frames in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from . import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

#: Frames under way at a time.
IN_FLIGHT = 64

WEATHER = "weather"


class CopyOptions(TypedDict):
    """Options of `create_stream` and of Spark's sink."""

    replicas: int
    acks: int


@dataclass(frozen=True)
class Copies:
    """How many servers hold a stream, and how many of them acknowledge."""

    replicas: int
    acks: int

    def options(self) -> CopyOptions:
        """As `create_stream` and Spark's sink want it."""
        return {"replicas": self.replicas, "acks": self.acks}


ONE = Copies(1, 1)


@dataclass
class Ledger:
    """What was acknowledged, by stream: (first offset, the rows), in the order of the offsets."""

    acknowledged: dict[str, list[tuple[int, pa.Table]]] = field(default_factory=dict)
    frames: int = 0
    records: int = 0
    columns_bytes: int = 0

    def enter(self, stream: str, base_offset: int, last_offset: int, rows: pa.Table) -> None:
        """Notes one acknowledgement.

        Raises `AssertionError` if it claims another number of records than were sent.
        """
        assert last_offset - base_offset + 1 == rows.num_rows, f"{stream}: {rows.num_rows} sent, {last_offset} claimed"
        self.acknowledged.setdefault(stream, []).append((base_offset, rows))
        self.records += rows.num_rows
        self.columns_bytes += rows.nbytes


async def create_streams(client: Any, carriers: Iterable[str], copies: Copies = ONE) -> list[str]:
    """One stream per carrier, and one for the weather; returns the names of the former."""
    names = sorted(events.stream_name(carrier) for carrier in set(carriers))
    for name in names:
        await client.create_stream(name, schema=events.EVENT_SCHEMA, **copies.options())
    await client.create_stream(WEATHER, schema=events.WEATHER_SCHEMA, **copies.options())
    return names


async def replay(
    client: Any,
    slots: Iterable[events.Slot],
    ledger: Ledger,
    advance: Callable[[int], None] = lambda _: None,
    in_flight: int = IN_FLIGHT,
) -> None:
    """Appends each slot as one frame, in order, and enters every acknowledgement into `ledger`."""
    under_way: deque[tuple[events.Slot, Any]] = deque()

    async def settle() -> None:
        slot, operation = under_way.popleft()
        acks = await operation
        for stream, rows in slot.streams.items():
            ledger.enter(stream, acks[stream].base_offset, acks[stream].last_offset, rows)
        ledger.frames += 1
        advance(slot.rows)

    try:
        for slot in slots:
            # It is under way from here on: awaiting it only asks for the outcome.
            under_way.append((slot, client.append_all(slot.streams, timestamp=slot.timestamp)))
            if len(under_way) >= in_flight:
                await settle()
        while under_way:
            await settle()
    finally:
        for _, operation in under_way:
            operation.cancel()
