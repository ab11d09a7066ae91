"""A client of Pravega: write events exactly once, read streams into Python and Arrow.

    from sbp_native import pravega

    with pravega.connect("127.0.0.1:9090") as p:  # or segment_store="host:6000": no controller
        with p.writer("scope/stream") as w:
            w.append(b"event", key="k1")
        for batch in p.read("scope/stream", end="latest"):
            batch.to_arrow()

:mod:`sbp_native.pravega.aio` has the same for asyncio. ``import sbp_native`` imports none of this.
"""

from __future__ import annotations

from .._native import (
    AsyncPravega,
    AsyncPravegaWriter,
    Pravega,
    PravegaWriter,
    SegmentInfo,
    pravega_connect,
)
from ..errors import (
    PravegaError,
    PravegaFramingError,
    PravegaLimitError,
    PravegaLostError,
    PravegaOutOfRangeError,
    PravegaPeerError,
    PravegaRefusedError,
    PravegaUnknownNameError,
)
from . import aio

__all__ = [
    "connect",
    "aio",
    "Pravega",
    "AsyncPravega",
    "PravegaWriter",
    "AsyncPravegaWriter",
    "SegmentInfo",
    "PravegaError",
    "PravegaFramingError",
    "PravegaLimitError",
    "PravegaPeerError",
    "PravegaRefusedError",
    "PravegaLostError",
    "PravegaUnknownNameError",
    "PravegaOutOfRangeError",
]

connect = pravega_connect
