"""The client of Pravega for asyncio: the calls of the blocking one, awaitable.

    async with sbp_native.pravega.aio.connect("127.0.0.1:9090") as p:
        async with p.writer("scope/stream") as w:
            await w.append(b"event", key="k1")
        async for batch in p.read("scope/stream"):
            ...

Every call returns an :class:`~sbp_native.Operation`, as those of :mod:`sbp_native.aio` do.
"""

from __future__ import annotations

from .._native import AsyncBatches, AsyncPravega, AsyncPravegaWriter, Operation, pravega_aio_connect

__all__ = ["AsyncBatches", "AsyncPravega", "AsyncPravegaWriter", "Operation", "connect"]

connect = pravega_aio_connect
