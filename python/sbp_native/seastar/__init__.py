"""Seastar RPC: services called from Python, and services written in it.

    from sbp_native import seastar

    with seastar.connect("127.0.0.1:10000") as rpc:
        add = rpc.verb(2, "i32 i32", "i32")
        assert add(3, 4) == 7

:mod:`sbp_native.seastar.aio` has the same for asyncio; :class:`Server` answers calls with handlers.
``import sbp_native`` imports none of this.
"""

from __future__ import annotations

from .._native import AsyncRpc, AsyncRpcStream, AsyncVerb, Rpc, RpcStream, Verb, seastar_connect
from ..errors import (
    SeastarCompressionError,
    SeastarError,
    SeastarFramingError,
    SeastarLimitError,
    SeastarLostError,
    SeastarOutOfRangeError,
    SeastarPeerError,
    SeastarRefusedError,
    SeastarUnknownVerbError,
)
from . import aio
from ._server import Caller, Server, caller

__all__ = [
    "connect",
    "aio",
    "Rpc",
    "AsyncRpc",
    "Verb",
    "AsyncVerb",
    "RpcStream",
    "AsyncRpcStream",
    "Server",
    "Caller",
    "caller",
    "SeastarError",
    "SeastarFramingError",
    "SeastarLimitError",
    "SeastarCompressionError",
    "SeastarPeerError",
    "SeastarRefusedError",
    "SeastarLostError",
    "SeastarUnknownVerbError",
    "SeastarOutOfRangeError",
]

connect = seastar_connect
