"""How a streaming query stands to its streams: what can be read, what is new, what is gone. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from operator import le, lt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from .naming import StreamKey
    from .offsets import OffsetMap, Span


@dataclass
class Standing:
    """What lies between a query's place and the ends of its streams, by stream id.

    `starts` and `ends` enclose what is there to read. Up to `before` the next batch goes in any case: what it takes
    with it is gone. `discovered` are the streams that begin elsewhere than the query's place says, `gone` those that
    were deleted, `done` those that are sealed and read to their ends. `lost` are the records that should have been read
    and never can be; `unknown` the places in deleted streams behind which there may have been more. `replaced` are the
    streams that are not the ones of the query's place, though they have their ids; what those held is unknown.
    """

    starts: dict[StreamKey, int] = field(default_factory=dict)
    ends: dict[StreamKey, int] = field(default_factory=dict)
    discovered: dict[StreamKey, int] = field(default_factory=dict)
    before: dict[StreamKey, int] = field(default_factory=dict)
    gone: set[StreamKey] = field(default_factory=set)
    done: set[StreamKey] = field(default_factory=set)
    lost: list[Span] = field(default_factory=list)
    unknown: dict[StreamKey, int] = field(default_factory=dict)
    replaced: frozenset[StreamKey] = frozenset()

    @property
    def records(self) -> int:
        """How many there are to read."""
        return sum(self.ends.values()) - sum(self.starts.values())

    def end(
        self, begin: OffsetMap, moved: Mapping[StreamKey, int], tags: Mapping[StreamKey, str] | None = None
    ) -> OffsetMap | None:
        """The end of a batch that reads up to `moved`, None if it is where it begins. `tags` are of what is read."""
        ends = {**self.before, **moved}
        if not ends and not self.discovered and not self.gone and not self.done:
            return None
        return begin.advanced(ends, self.discovered, frozenset(self.gone | self.done), tags)


def stand(
    begin: OffsetMap,
    read: AbstractSet[StreamKey],
    earliest: Mapping[StreamKey, int],
    latest: Mapping[StreamKey, int],
    seen: Mapping[StreamKey, int],
    target: Mapping[StreamKey, int] | None = None,
    replaced: AbstractSet[StreamKey] = frozenset(),
) -> Standing:
    """How a query at `begin` stands to the streams that it is to `read`.

    `earliest` and `latest` are the bounds of the streams that exist; `seen` are the ends that this process saw before,
    and so what is known of those that do not. With `target` nothing behind it is read. `replaced` are the ids that
    belong to other streams than when `begin` was made.
    """
    found = Standing(replaced=frozenset(replaced))
    if target is None and not replaced and not begin.gone and _plain(found, begin.next, read, earliest, latest):
        return found
    starts, ends = found.starts, found.ends
    for stream, first in begin.next.items():
        end = latest.get(stream)
        if stream in replaced:
            if stream not in begin.gone:
                found.unknown[stream] = first
            if stream in read and end is not None:
                _begin(found, stream, earliest[stream], end if target is None else min(end, target.get(stream, end)))
            elif stream not in begin.gone:
                found.gone.add(stream)
            continue
        if end is None:
            if stream not in begin.gone:
                _deleted(found, stream, first, seen.get(stream), target)
            continue
        if stream not in read:
            continue
        if stream in begin.gone:
            # A name that came back: read on, and told again should it go.
            found.discovered[stream] = first
        if first > end:
            # It is shorter than it was: other records will get these offsets, or have them by now.
            found.lost.append((stream, end, first))
            found.discovered[stream] = first = end
        if target is not None:
            end = min(end, target.get(stream, first))
        if end <= first:
            continue
        there = min(earliest[stream], end)
        if first < there:
            found.lost.append((stream, first, there))
            found.before[stream] = there
            first = there
        if end > first:
            starts[stream] = first
            ends[stream] = end
    for stream in read:
        if stream not in begin.next and stream in latest and (target is None or stream in target):
            end = latest[stream]
            _begin(found, stream, earliest[stream], end if target is None else min(end, target[stream]))
    return found


def _begin(found: Standing, stream: StreamKey, first: int, end: int) -> None:
    """A stream that is read from its first record."""
    found.discovered[stream] = first
    if end > first:
        found.starts[stream] = first
        found.ends[stream] = end


def _plain(
    found: Standing,
    places: Mapping[StreamKey, int],
    read: AbstractSet[StreamKey],
    earliest: Mapping[StreamKey, int],
    latest: Mapping[StreamKey, int],
) -> bool:
    """Settles the usual case, in which nothing came or went: there may be ten thousand streams at every micro-batch."""
    if places.keys() != read or latest.keys() != read:
        return False
    firsts = list(places.values())
    behind = list(map(latest.__getitem__, places))
    if not all(map(le, map(earliest.__getitem__, places), firsts)) or not all(map(le, firsts, behind)):
        return False
    if firsts != behind:
        new = list(map(lt, firsts, behind))
        found.starts.update(places if all(new) else compress(places.items(), new))
        found.ends.update(latest if all(new) else compress(zip(places, behind, strict=True), new))
    return True


def _deleted(
    found: Standing, stream: StreamKey, first: int, seen: int | None, target: Mapping[StreamKey, int] | None
) -> None:
    if target is not None and seen is not None:
        seen = min(seen, target.get(stream, first))
    found.gone.add(stream)
    if seen is None:
        found.unknown[stream] = first
    elif seen > first:
        found.lost.append((stream, first, seen))
        found.before[stream] = seen
