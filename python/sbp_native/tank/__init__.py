"""A client of TANK message brokers: their topics in Python and Arrow.

    from sbp_native import tank

    with tank.connect("127.0.0.1:11011") as broker:
        broker.produce("orders", 0, [b"a", (b"key", b"b")])
        for batch in broker.read("orders", end="latest"):
            batch.to_arrow()

:mod:`sbp_native.tank.aio` has the same for asyncio. ``import sbp_native`` imports none of this.
"""

from __future__ import annotations

from .._native import AsyncBroker, Broker, PartitionInfo, TopicInfo, tank_connect
from ..errors import (
    TankCompressionError,
    TankError,
    TankFramingError,
    TankLimitError,
    TankLostError,
    TankOutOfRangeError,
    TankPeerError,
    TankRefusedError,
    TankUnknownNameError,
)
from . import aio

__all__ = [
    "connect",
    "aio",
    "Broker",
    "AsyncBroker",
    "TopicInfo",
    "PartitionInfo",
    "TankError",
    "TankFramingError",
    "TankLimitError",
    "TankCompressionError",
    "TankPeerError",
    "TankRefusedError",
    "TankLostError",
    "TankUnknownNameError",
    "TankOutOfRangeError",
]

connect = tank_connect
