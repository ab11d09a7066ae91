"""How streams are told apart, and what messages call them.

A service tells its streams apart by numbers, which names do not outlive, or by names alone. So a key is the id of an
SBP stream, the text ``topic/partition`` of a partition of a TANK topic, or the name ``scope/stream/0.#epoch.0`` of a
segment of a Pravega stream. Those of one query are of one kind, and have an order.
"""

from __future__ import annotations

from typing import Any, TypeAlias

#: An `int` or a `str`; see the module's text.
StreamKey: TypeAlias = Any


def called(key: StreamKey, name: str | None = None) -> str:
    """A stream for a message: its name, if it is known, and its key, if that is another thing."""
    return f"stream {key}" if name is None or name == key else f"stream {name} ({key})"


def number_of(key: StreamKey) -> int:
    """What the column ``stream_id`` shows: the id, or the number of the partition or segment."""
    if isinstance(key, int):
        return key
    number, _, epoch = str(key).rpartition("/")[2].partition(".#epoch.")
    return int(number) + (int(epoch or 0) << 32)
