"""A TANK broker, as the source asks it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

from sbp_native import tank
from sbp_native._native import tank_bounds, tank_numbers_at, tank_spans
from sbp_native.errors import TankRefusedError

from .. import peers
from ..errors import NOT_FOUND, SbpOptionError, explained, nearest
from ..streams import StreamHead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ..naming import StreamKey
    from ..offsets import Span
    from ..options import Columns
    from .options import TankOptions

_T = TypeVar("_T")


class TankService:
    """The broker that the options name; see `Service`. A stream is a partition, its key ``topic/partition``."""

    grows = True
    has_times = False
    is_dense = False
    comes_back = True
    sealed: frozenset[StreamKey] = frozenset()

    def __init__(self, options: TankOptions) -> None:
        self._options = options

    def listed(self, place: bytes) -> tuple[list[StreamHead], bytes]:  # noqa: ARG002 - all of them, at once
        """All partitions of all topics that the broker serves."""
        topics = self._patiently(lambda broker, left: broker.topics(timeout=left))
        heads = [_head(topic.name, number) for topic in topics if topic.enabled for number in range(topic.partitions)]
        return heads, b""

    def named(self, names: Iterable[str]) -> tuple[StreamHead, ...]:
        """The partitions of these topics, and these partitions. The error names the nearest topic that exists."""
        with explained("listing the topics", self._options.servers):
            listed, _ = self.listed(b"")
        found: dict[StreamKey, StreamHead] = {}
        for name in names:
            of_name = [head for head in listed if name in head.words]
            if not of_name:
                raise SbpOptionError(NOT_FOUND, self._nothing_is_called(name, listed))
            found.update((head.id, head) for head in of_name)
        return tuple(found.values())

    def _nothing_is_called(self, name: str, listed: Sequence[StreamHead]) -> str:
        topic, slash, _ = name.partition("/")
        count = sum(head.topic == topic for head in listed)
        if slash and count:
            return f"topic {topic!r} at {self._options.servers} has no partition {name!r}: it has {count}, from 0 on"
        hint = nearest(topic, sorted({str(head.topic) for head in listed})) or "the broker has no topic yet"
        return f"there is no topic {topic!r} at {self._options.servers}: {hint}"

    def described(self, key: StreamKey) -> StreamHead | None:
        """The partition, whose key is its name: nothing tells it from another one that had it before."""
        topic, number = _parts(key)
        return _head(topic, number)

    def bounds(self, keys: Iterable[StreamKey]) -> tuple[dict[StreamKey, int], dict[StreamKey, int]]:
        """A question for each topic, several at once. One that nobody serves at the moment is asked for again."""
        wanted = _by_topic(keys)
        told = self._patiently(lambda broker, left: self._served(broker, wanted, left))
        earliest: dict[StreamKey, int] = {}
        latest: dict[StreamKey, int] = {}
        for topic, partitions in told.items():
            for number in wanted[topic]:
                if number < len(partitions) and (found := partitions[number]) is not None:
                    first, high_water = found
                    # Partitions begin with message 1, and both are 0 before there is one.
                    key = _key(topic, number)
                    earliest[key], latest[key] = max(first, 1), high_water + 1
        return earliest, latest

    def _served(
        self, broker: tank.Broker, wanted: Mapping[str, Sequence[int]], left: float
    ) -> Mapping[str, Sequence[tuple[int, int] | None]]:
        """The bounds of topics; `TankRefusedError` if nobody serves one of the partitions wanted."""
        topics = list(wanted)
        told = {
            topic: partitions
            for topic, partitions in zip(topics, tank_bounds(broker, topics, left), strict=True)
            if partitions is not None
        }
        for topic, partitions in told.items():
            for number in wanted[topic]:
                if number < len(partitions) and partitions[number] is None:
                    raise _unserved(topic, number)
        return told

    def offsets_at(self, keys: Sequence[StreamKey], time_ms: int) -> Mapping[StreamKey, int]:
        """Exact to the message, found by halves: too many questions to ask them for each micro-batch."""
        found: dict[StreamKey, int] = {}
        for topic, numbers in _by_topic(keys).items():
            # No message is older than 1970.
            asked = functools.partial(_numbers_at, topic, numbers, max(time_ms, 0))
            found.update(self._patiently(asked))
        return found

    def records_at(self, heads: Sequence[StreamHead], time_ms: int) -> Mapping[StreamKey, int]:
        """Exact to the message."""
        return self.offsets_at([head.id for head in heads], time_ms)

    def aligned(
        self,
        starts: Mapping[StreamKey, int],  # noqa: ARG002
        ends: Mapping[StreamKey, int],
    ) -> Mapping[StreamKey, int]:
        """Where they are: a span can end anywhere."""
        return ends

    def read(
        self,
        spans: Sequence[Span],
        kind: Columns,  # noqa: ARG002 - there is one
        projection: Sequence[str],
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """One partition after the other."""
        broker = self._patiently(lambda broker, _: broker)
        asked = [(*_parts(key), start, end) for key, start, end in spans]
        reader = tank_spans(
            broker, asked, projection, include_headers="headers" in projection, timeout=self._options.timeout
        )
        return peers.rows(reader)

    def _patiently(self, call: Callable[[tank.Broker, float], _T]) -> _T:
        options = self._options

        def connect() -> tank.Broker:
            return tank.connect(options.servers, timeout=options.timeout)

        return peers.patiently((options.servers, options.timeout), connect, options.timeout, call)


def _numbers_at(
    topic: str, numbers: Sequence[int], time_ms: int, broker: tank.Broker, left: float
) -> dict[StreamKey, int]:
    """The number of the first message of that time or later, of partitions by their keys."""
    found: dict[StreamKey, int] = {}
    for number, place in zip(numbers, tank_numbers_at(broker, topic, numbers, time_ms, left), strict=True):
        if place is None:
            raise _unserved(topic, number)
        found[_key(topic, number)] = place
    return found


def _unserved(topic: str, number: int) -> TankRefusedError:
    key = _key(topic, number)
    return TankRefusedError(f"nobody serves {key} at the moment", code=9305, retriable=True, stream=key)


def _key(topic: str, number: int) -> str:
    return f"{topic}/{number}"


def _parts(key: StreamKey) -> tuple[str, int]:
    topic, _, number = str(key).rpartition("/")
    return topic, int(number)


def _by_topic(keys: Iterable[StreamKey]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    found: dict[str, list[int]] = {}
    for topic, number in map(_parts, keys):
        found.setdefault(topic, []).append(number)
    return found


def _head(topic: str, number: int) -> StreamHead:
    return StreamHead(_key(topic, number), _key(topic, number), topic=topic)
