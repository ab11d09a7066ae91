"""Appends a record to each of some streams many times a second, and notes when each was acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import sbp_native as sbp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .replay import Copies

#: Seconds from one append of a stream to its next one while nothing stands still.
INTERVAL = 0.05
#: A writer gives an append up after so many seconds.
_PATIENCE = 60.0
_ENDED_WITHIN = 2 * _PATIENCE


class Pulses:
    """The appenders of some streams, in a thread of their own. Each waits for its acknowledgement before it goes on."""

    def __init__(self, servers: str, names: Iterable[str], copies: Copies, interval: float = INTERVAL) -> None:
        """Creates the streams. Nothing is appended before `start`; then an append follows `interval` seconds after the
        one before it was acknowledged."""
        self._servers = servers
        self._interval = interval
        #: By stream, when each of its appends was acknowledged, by `time.monotonic`.
        self.acknowledged: dict[str, list[float]] = {name: [] for name in names}
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        with sbp.connect(servers) as client:
            for name in self.acknowledged:
                client.create_stream(name, **copies.options())

    def start(self) -> None:
        """Begins to append."""
        self._thread.start()

    def goes_on(self, within: float = 60.0) -> None:
        """Waits until each stream has an append acknowledged that began from now on.

        Raises `TimeoutError` with the streams that have none in time.
        """
        # The first acknowledgement may be of an append that was under way.
        wanted = {name: len(times) + 2 for name, times in self.acknowledged.items()}
        deadline = time.monotonic() + within
        while late := [name for name, count in wanted.items() if len(self.acknowledged[name]) < count]:
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                raise TimeoutError(f"these stood still for {within:.0f} s: {', '.join(late)}")
            time.sleep(INTERVAL / 2)

    def stop(self) -> None:
        """Appends no more. Raises what an append failed with."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_ENDED_WITHIN)
        if self._error is not None:
            raise self._error

    def longest(self, since: float, until: float) -> dict[str, float]:
        """By stream, the longest time between two acknowledgements of which the second one is in the period."""
        return {
            name: max((b - a for a, b in itertools.pairwise(times) if since < b <= until), default=0.0)
            for name, times in self.acknowledged.items()
        }

    def check(self) -> list[str]:
        """Reads the streams back: each acknowledged record once, in order, and nothing else. Returns what is wrong."""
        wrong: list[str] = []
        with sbp.connect(self._servers) as client:
            for name, times in self.acknowledged.items():
                records = [
                    (record.offset, bytes(record.value))
                    for batch in client.stream(name).read(start="earliest", end="latest")
                    for record in batch.records()
                ]
                if records != [(number, b"%d" % number) for number in range(len(times))]:
                    wrong.append(f"{name}: {len(times)} appends acknowledged, others or {len(records)} read back")
        return wrong

    def _run(self) -> None:
        try:
            asyncio.run(self._append_to_all())
        except BaseException as error:
            self._error = error

    async def _append_to_all(self) -> None:
        async with sbp.aio.connect(self._servers, timeout=_PATIENCE) as client:
            await asyncio.gather(*(self._append(client, name) for name in self.acknowledged))

    async def _append(self, client: Any, name: str) -> None:
        times = self.acknowledged[name]
        async with client.writer(name, linger=0, timeout=_PATIENCE) as writer:
            while not self._over.is_set():
                await writer.append(b"%d" % len(times))
                await writer.flush()
                times.append(time.monotonic())
                await asyncio.sleep(self._interval)
