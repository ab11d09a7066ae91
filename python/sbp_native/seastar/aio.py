"""The client of Seastar RPC services for asyncio: the calls of the blocking one, awaitable.

    async with sbp_native.seastar.aio.connect("127.0.0.1:10000", compression=["LZ4"]) as rpc:
        add = rpc.verb(2, "i32 i32", "i32")
        assert await add(3, 4, timeout=1.0) == 7

Every call returns an :class:`~sbp_native.Operation`, as those of :mod:`sbp_native.aio` do.
"""

from __future__ import annotations

from .._native import AsyncRpc, AsyncRpcStream, AsyncVerb, Operation, seastar_aio_connect

__all__ = ["AsyncRpc", "AsyncRpcStream", "AsyncVerb", "Operation", "connect"]

connect = seastar_aio_connect
