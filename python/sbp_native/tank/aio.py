"""The client of TANK brokers for asyncio: the calls of the blocking one, awaitable.

    async with sbp_native.tank.aio.connect("127.0.0.1:11011") as broker:
        await broker.produce("orders", 0, [b"a"])
        async for batch in broker.read("orders"):
            ...

Every call returns an :class:`~sbp_native.Operation`, as those of :mod:`sbp_native.aio` do.
"""

from __future__ import annotations

from .._native import AsyncBatches, AsyncBroker, Operation, tank_aio_connect

__all__ = ["AsyncBatches", "AsyncBroker", "Operation", "connect"]

connect = tank_aio_connect
