"""Ten thousand streams with a few records each."""

from __future__ import annotations

import asyncio
from collections import Counter

import sbp_native as sbp

STREAMS = 10_000
#: Streams asked for, or appended to, at once.
_AT_ONCE = 500


def names(prefix: str) -> list[str]:
    """Their names."""
    return [f"{prefix}/{number:05}" for number in range(STREAMS)]


def records(number: int) -> list[bytes]:
    """What stream `number` holds: one to five records, all different."""
    return [b"%d/%d" % (number, offset) for offset in range(1 + number % 5)]


def make(address: str, prefix: str, filled: bool = True) -> None:
    """Creates the streams, many at once, and fills them."""
    every = names(prefix)

    async def work() -> None:
        async with sbp.aio.connect(address, timeout=60) as client:
            for start in range(0, STREAMS, _AT_ONCE):
                some = every[start : start + _AT_ONCE]
                await asyncio.gather(*(client.create_stream(name) for name in some))
                if filled:
                    await client.append_all({name: records(start + number) for number, name in enumerate(some)})

    asyncio.run(work())


def wanted(prefix: str) -> Counter[tuple[str, int, bytes]]:
    """Every (stream, offset, value)."""
    return Counter(
        (name, offset, value)
        for number, name in enumerate(names(prefix))
        for offset, value in enumerate(records(number))
    )
