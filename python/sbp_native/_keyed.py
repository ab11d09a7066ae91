"""Streams by key: the function, and writers to all streams of one name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self, overload

if TYPE_CHECKING:
    from collections.abc import Generator

    from typing_extensions import Buffer

    from ._native import AsyncClient, AsyncKeyed, AsyncWriter, Client, Keyed, Operation, Writer, _Headers, _Time


@overload
def keyed(
    client: Client,
    name: str,
    streams: int | None = None,
    *,
    replicas: int | None = None,
    acks: int | None = None,
    timeout: float | None = None,
) -> Keyed: ...
@overload
def keyed(
    client: AsyncClient,
    name: str,
    streams: int | None = None,
    *,
    replicas: int | None = None,
    acks: int | None = None,
    timeout: float | None = None,
) -> Operation[AsyncKeyed]: ...
def keyed(
    client: Client | AsyncClient,
    name: str,
    streams: int | None = None,
    *,
    replicas: int | None = None,
    acks: int | None = None,
    timeout: float | None = None,
) -> Keyed | Operation[AsyncKeyed]:
    """The streams ``name-0`` to ``name-<n-1>`` with records placed by key; see :meth:`Client.keyed`."""
    return client.keyed(name, streams, replicas=replicas, acks=acks, timeout=timeout)


def _bytes(key: Buffer | str) -> Buffer:
    return key.encode() if isinstance(key, str) else key


class KeyedWriter:
    """Gathers records into batches, for each stream of a name, and stores those of a key in order.

    Made by :meth:`Keyed.writer`. Close it, or use it in a ``with`` statement.
    """

    __module__ = "sbp_native"

    def __init__(self, owner: Keyed, writers: dict[str, Writer]) -> None:
        self._owner = owner
        self._writers = writers

    @property
    def next_sequence(self) -> dict[str, int]:
        """For each stream, by name, the number of its next record: how many came before it.

        With a ``writer_id``, in all lives of the writer. A job that is started again with the same input passes over so
        many of the records whose :meth:`Keyed.stream_of` is that stream, and gives the rest.
        """
        return {name: writer.next_sequence for name, writer in self._writers.items()}

    @property
    def unflushed(self) -> int:
        """Records that were appended and whose fate is not known yet."""
        return sum(writer.unflushed for writer in self._writers.values())

    def append(
        self,
        key: Buffer | str,
        value: Buffer | None,
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
    ) -> int:
        """Takes one record; returns its number among those for the stream of its key.

        Waits only while as many batches for that stream are on their way as may be.
        """
        key = _bytes(key)
        writer = self._writers[self._owner.stream_of(key)]
        return writer.append(value, key=key, headers=headers, timestamp=timestamp)

    def flush(self, *, timeout: float | None = None) -> None:
        """Sends what is gathered and waits until everything appended so far is stored or has failed.

        Raises the first failure, or a ``TimeoutError`` if it takes longer than ``timeout`` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        failed: Exception | None = None
        for writer in self._writers.values():
            try:
                writer.flush(timeout=None if end is None else max(end - time.monotonic(), 0.001))
            except Exception as error:  # the others are flushed all the same
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Takes no more records, and flushes. Again: does nothing. Raises the first failure."""
        failed: Exception | None = None
        for writer in self._writers.values():
            try:
                writer.close()
            except Exception as error:  # the others are closed all the same
                failed = failed or error
        if failed is not None:
            raise failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sbp_native.KeyedWriter of {self._owner.name!r}, {self.unflushed} records unflushed>"


class AsyncKeyedWriter:
    """The same for asyncio: ``async with keyed.writer() as writer``, or ``writer = await keyed.writer()``."""

    __module__ = "sbp_native"

    def __init__(self, owner: AsyncKeyed, writers: dict[str, AsyncWriter]) -> None:
        self._owner = owner
        self._writers = writers

    @property
    def next_sequence(self) -> dict[str, int]:
        """For each stream, by name, the number of its next record: how many came before it.

        With a ``writer_id``, in all lives of the writer. A job that is started again with the same input passes over so
        many of the records whose :meth:`Keyed.stream_of` is that stream, and gives the rest.
        """
        return {name: writer.next_sequence for name, writer in self._writers.items()}

    @property
    def unflushed(self) -> int:
        """Records that were appended and whose fate is not known yet."""
        return sum(writer.unflushed for writer in self._writers.values())

    def append(
        self,
        key: Buffer | str,
        value: Buffer | None,
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
    ) -> Operation[int]:
        """Takes one record at once; done when there is room for more in the stream of its key."""
        key = _bytes(key)
        writer = self._writers[self._owner.stream_of(key)]
        return writer.append(value, key=key, headers=headers, timestamp=timestamp)

    async def flush(self, *, timeout: float | None = None) -> None:
        """Sends what is gathered; done when everything appended so far is stored or has failed."""
        flushes = [writer.flush(timeout=timeout) for writer in self._writers.values()]
        await _all(flushes)

    async def close(self) -> None:
        """Takes no more records, and flushes. Raises the first failure."""
        closes = [writer.close() for writer in self._writers.values()]
        await _all(closes)

    async def _open(self) -> Self:
        opened = [writer.__aenter__() for writer in self._writers.values()]
        await _all(opened)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<sbp_native.AsyncKeyedWriter of {self._owner.name!r}, {self.unflushed} records unflushed>"


async def _all(awaitables: list[Any]) -> None:
    """Waits for all of them; raises the first failure."""
    # Not at the top: it takes longer than all the rest, and who does not use asyncio need not wait for it.
    import asyncio

    for outcome in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
