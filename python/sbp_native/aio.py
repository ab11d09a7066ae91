"""The client for asyncio: the calls of the blocking one, awaitable.

    async with sbp_native.aio.connect("127.0.0.1:12378") as client:
        orders = await client.create_stream("orders")
        await orders.append(b"first")
        async for batch in client.tail(["orders"]):
            ...

Every call returns an :class:`~sbp_native.Operation`: it starts at once, and ``await``, ``asyncio.gather``,
``asyncio.wait`` and ``asyncio.wait_for`` take it without a task around it. Calls made in one turn of the loop leave
together. ``timeout=`` is how to bound a call and learn its outcome; cancelling one gives up on the answer only.
"""

from __future__ import annotations

from ._native import AsyncBatches, AsyncClient, AsyncStream, Operation, aio_connect

__all__ = ["AsyncBatches", "AsyncClient", "AsyncStream", "Operation", "connect"]

connect = aio_connect
