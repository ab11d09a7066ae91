"""The streams that a load or a save names, looked up on the driver."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from .errors import INVALID_VALUE, NOT_FOUND, SbpOptionError, explained, nearest
from .naming import called
from .offsets import TAG
from .places import EARLIEST, LATEST
from .planning import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from .naming import StreamKey
    from .places import Place, Places
    from .read_options import ReadOptions

#: What the names of cursors' streams and of sinks' begin with.
_INTERNAL: Final = "_sbp/"


class StreamHead(NamedTuple):
    """A stream as it was when the query was planned."""

    id: StreamKey
    name: str
    schema_ipc: bytes | None = None
    #: What tells it from every other stream, also one of this id on a server that was set up anew; None if not known.
    identity: str | None = None
    #: What it is a part of, where options name parts by the name of the whole too.
    topic: str | None = None
    #: The streams that it goes on for: it is read when all of them that there are have been read to their ends.
    follows: tuple[StreamKey, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """What options may call it."""
        return (self.name, str(self.id)) if self.topic is None else (self.name, self.topic)

    @property
    def matched(self) -> str:
        """What a pattern has to match: of a part, the name of the whole."""
        return self.topic or self.name

    def arrow_schema(self) -> pa.Schema:
        """The stream's own columns; only for a stream that has a schema."""
        import pyarrow as pa

        return pa.ipc.read_schema(pa.py_buffer(self.schema_ipc))

    def __str__(self) -> str:
        return called(self.id, self.name)


class Bounds(NamedTuple):
    """What a stream holds: records from `earliest` up to but without `latest`."""

    earliest: int
    latest: int


def every_stream(options: ReadOptions) -> list[StreamHead]:
    """All streams of the service, by id."""
    with explained("listing the streams", options.servers):
        listed, _ = options.service().listed(b"")
    return listed


def tags(heads: Iterable[StreamHead]) -> dict[StreamKey, str]:
    """What an offset keeps of the streams' identities, by id; without those that have none."""
    return {head.id: head.identity[:TAG] for head in heads if head.identity is not None}


def find(options: ReadOptions) -> tuple[StreamHead, ...]:
    """The streams that a read names, or that match its pattern, the latter by id.

    A pattern that nothing matches is an error, unless `columns` says what the rows will look like: then streams may
    come later.
    """
    if options.streams_pattern is None:
        return options.service().named(options.streams)
    heads = every_stream(options)
    found = matching(options.streams_pattern, heads)
    if not found and options.columns not in ("records", "kafka"):
        hint = nearest(options.streams_pattern, [head.name for head in heads]) or "the server has no stream yet"
        raise SbpOptionError(
            NOT_FOUND,
            f"no stream matches streamsPattern {options.streams_pattern!r} at {options.servers}: {hint}; "
            "with columns=records or columns=kafka a query may begin without any",
        )
    return found


def matching(pattern: str, heads: Iterable[StreamHead]) -> tuple[StreamHead, ...]:
    """The streams whose whole name matches, by id; those that clients keep for themselves, only by their prefix."""
    matches = re.compile(pattern).fullmatch
    hidden = () if pattern.startswith(_INTERNAL) else (_INTERNAL,)
    found = (head for head in heads if matches(head.matched) and not head.name.startswith(hidden))
    return tuple(sorted(found, key=lambda head: head.id))


def bounds(options: ReadOptions, heads: Iterable[StreamHead]) -> dict[StreamKey, Bounds]:
    """What each stream holds now, by id: one question for all of them. Streams that are gone are left out."""
    ids = [head.id for head in heads]
    if not ids:
        return {}
    with explained(f"asking for the offsets of {len(ids)} streams", options.servers):
        earliest, latest = options.service().bounds(ids)
    return {stream: Bounds(first, latest[stream]) for stream, first in earliest.items()}


def settle(
    options: ReadOptions,
    places: Places,
    heads: Iterable[StreamHead],
    held: Mapping[StreamKey, Bounds],
    needed: bool = True,
    now_ms: int | None = None,
    ends: bool = False,
) -> dict[StreamKey, int]:
    """The offsets that `places` means, by stream id; `ends` says that reading ends there.

    Raises `SbpOptionError` if a place names a stream that is not read, lies outside its stream, or (when `needed`) if
    a stream is left out. A place before the first record that is kept is the caller's to judge when reads go on after
    losses.
    """
    heads = list(heads)
    gone = next((head for head in heads if head.id not in held), None)
    if gone is not None:
        raise SbpOptionError(NOT_FOUND, f"{gone} at {options.servers} was deleted just now: leave it out")
    if places.default == EARLIEST:
        return {head.id: held[head.id].earliest for head in heads}
    if places.default == LATEST:
        return {head.id: held[head.id].latest for head in heads}
    _check_named(places, heads)
    by_key = dict(places.each)
    offsets: dict[StreamKey, int] = {}
    timed: list[tuple[StreamHead, int]] = []
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    for head in heads:
        place = places.default or next((by_key[word] for word in head.words if word in by_key), None)
        if place is None:
            if needed:
                raise SbpOptionError(
                    INVALID_VALUE, f"option {places.option!r} leaves out {head}: give every stream a place"
                )
        elif place.is_time and ends:
            # Records before a time may stand anywhere up to the end.
            offsets[head.id] = held[head.id].latest
        elif place.is_time:
            timed.append((head, place.time_ms(now_ms)))
        else:
            offsets[head.id] = _inside(options, places.option, place, head, held[head.id])
    offsets.update(_by_time(options, places, timed, held))
    return offsets


def _check_named(places: Places, heads: Sequence[StreamHead]) -> None:
    known = {word for head in heads for word in head.words}
    for key, _ in places.each:
        if key not in known:
            hint = nearest(key, [head.name for head in heads])
            raise SbpOptionError(
                INVALID_VALUE, f"option {places.option!r} names {key!r}, which is not read here: {hint}"
            )


def _inside(options: ReadOptions, option: str, place: Place, head: StreamHead, held: Bounds) -> int:
    if place.kind == "earliest":
        return held.earliest
    if place.kind == "latest":
        return max(held.earliest, held.latest - place.value)
    trimmed = place.value < held.earliest
    if place.value > held.latest or (trimmed and options.fail_on_data_loss):
        advice = "set failOnDataLoss=false to go on without what is gone" if trimmed else "take one of these"
        raise SbpOptionError(
            INVALID_VALUE,
            f"option {option!r} gives {head} the offset {place}, it holds [{held.earliest}, {held.latest}): {advice}",
        )
    return place.value


def _by_time(
    options: ReadOptions, places: Places, timed: Iterable[tuple[StreamHead, int]], held: Mapping[StreamKey, Bounds]
) -> dict[StreamKey, int]:
    """For each stream the first record of its time or later."""
    by_time: dict[int, list[StreamHead]] = {}
    for head, time_ms in timed:
        by_time.setdefault(time_ms, []).append(head)
    offsets: dict[StreamKey, int] = {}
    for time_ms, heads in by_time.items():
        with explained(f"looking for the records of time {time_ms}", options.servers):
            found = options.service().records_at(heads, time_ms)
        for head in heads:
            inside = held[head.id]
            offset = min(max(found[head.id], inside.earliest), inside.latest)
            if offset == inside.latest and places.beyond == "error":
                raise SbpOptionError(
                    INVALID_VALUE,
                    f"option {places.option!r} asks for time {time_ms}, and {head} has no record of that time or "
                    "later: take an earlier one, or set startingOffsetsByTimestampStrategy=latest",
                )
            offsets[head.id] = offset
    return offsets


def windows(
    starting: Places | None, ending: Places | None, heads: Iterable[StreamHead], now_ms: int
) -> dict[StreamKey, TimeWindow]:
    """The times that are wanted of each stream that options bound by time, by id: records of others are not rows."""
    found = {}
    for head in heads:
        start, end = (
            place.time_ms(now_ms) if (place := places and places.of(*head.words)) and place.is_time else None
            for places in (starting, ending)
        )
        if start is not None and end is not None and start > end:
            raise SbpOptionError(
                INVALID_VALUE, f"{head} would be read from time {start} back to {end}: swap the options"
            )
        if start is not None or end is not None:
            found[head.id] = TimeWindow(start, end)
    return found
