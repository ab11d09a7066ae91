"""How far a micro-batch goes when it may not take everything. Pure functions, but for the question that they are given.

A limited batch stops all streams at one record time, so that none runs ahead of another and a watermark drops nothing
it need not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from .naming import StreamKey

#: The first offset, per stream, of what is not older than a time in ms.
Locate = Callable[[int], Mapping[StreamKey, int]]

# Above every time that a record can have, and a time in the 26th century: the search begins there, to save questions.
_END_OF_TIME: Final = 2**63 - 1
_FAR_AHEAD: Final = 2**44
# A cut that uses this share of the limit is good enough: each further step of the search asks the server again.
_GOOD_ENOUGH: Final = 0.9


@dataclass(frozen=True)
class Cut:
    """Where a batch ends: per stream that moves, and the record time up to which all of them are read.

    `time` is None where the batch takes everything. `width` is how far it is from the cut before, and so, with `time`,
    where to look for the next one first.
    """

    ends: Mapping[StreamKey, int]
    time: int | None = None
    width: int = 0


def advance(
    start: Mapping[StreamKey, int],
    available: Mapping[StreamKey, int],
    limit: int,
    locate: Locate | None = None,
    last: Cut | None = None,
) -> Cut:
    """Where a batch of at most `limit` records ends.

    With `locate` all streams stop at one common record time. The cut is exact up to one stored batch, which has no time
    inside. Where a single moment holds more than the limit, and without `locate`, the streams advance in proportion to
    what each has waiting. `last` is the cut before this one.
    """
    waiting = {stream: end for stream, end in available.items() if end > start[stream]}
    if sum(waiting.values()) - sum(start[stream] for stream in waiting) <= limit:
        return Cut(waiting)
    low: Mapping[StreamKey, int] = {stream: start[stream] for stream in waiting}
    if locate is None:
        return Cut(_moved(start, proportional(low, waiting, limit)))
    began = last.time if last is not None and last.time is not None else 0
    search = _Search(start, waiting, limit, locate)
    time = search.run(began, last.width if last is not None else 0)
    low = search.low
    if search.under < limit * _GOOD_ENOUGH:
        # All between the two has one and the same time: here no share is fairer than another.
        low = proportional(low, search.high, limit - search.under)
    return Cut(_moved(start, low), time, max(time - began, 1))


class _Search:
    """The latest record time up to which a batch keeps its limit. Every step asks where a time is in each stream."""

    def __init__(
        self, start: Mapping[StreamKey, int], waiting: Mapping[StreamKey, int], limit: int, locate: Locate
    ) -> None:
        self._start, self._waiting, self._limit, self._locate = start, waiting, limit, locate
        # What is before `_earlier` fits and ends at `low`, what is before `_later` does not and ends at `high`.
        self._earlier, self._later = 0, _END_OF_TIME
        self.low: Mapping[StreamKey, int] = {stream: start[stream] for stream in waiting}
        self.high = waiting
        self.under, self._over = 0, self._count(waiting)
        self._hinted = False

    def run(self, began: int, width: int) -> int:
        """Looks near `began + width` first, if there was a cut before; returns the time found."""
        self._hinted = width > 0
        step = width if width else _FAR_AHEAD
        probe = min(began + step, _END_OF_TIME - 1)
        rounds = 0
        while self._later - self._earlier > 1:
            self._try(probe)
            if self.under >= self._limit * _GOOD_ENOUGH:
                break
            step *= 4
            rounds += 1
            probe = self._next(step, rounds)
        return self._earlier

    def _try(self, time: int) -> None:
        found = self._locate(time)
        start, waiting = self._start, self._waiting
        ends = {stream: min(max(found.get(stream, end), start[stream]), end) for stream, end in waiting.items()}
        count = self._count(ends)
        if count > self._limit:
            self._later, self.high, self._over = time, ends, count
        else:
            self._earlier, self.low, self.under = time, ends, count

    def _next(self, step: int, rounds: int) -> int:
        earlier, later = self._earlier, self._later
        middle = (earlier + later) // 2
        if later == _END_OF_TIME and earlier + step < later:
            return earlier + step
        if earlier == 0 and step < later:
            return later - step
        if self._hinted and earlier and later < _END_OF_TIME and rounds % 2:
            # As if records came evenly; every other time, because they may not.
            wanted = self._limit * (1 + _GOOD_ENOUGH) / 2 - self.under
            guess = earlier + int((later - earlier) * wanted / (self._over - self.under))
            return min(max(guess, earlier + 1), later - 1)
        return middle

    def _count(self, ends: Mapping[StreamKey, int]) -> int:
        return sum(ends.values()) - sum(map(self._start.__getitem__, ends))


def proportional(low: Mapping[StreamKey, int], high: Mapping[StreamKey, int], limit: int) -> dict[StreamKey, int]:
    """`low` moved towards `high` by `limit` records in all: one for each stream that has any, the rest by share."""
    waiting = {stream: high[stream] - low[stream] for stream in low if high[stream] > low[stream]}
    if sum(waiting.values()) <= limit:
        return dict(high)
    if limit < len(waiting):
        fullest = set(sorted(waiting, key=lambda stream: (-waiting[stream], stream))[:limit])
        return {stream: low[stream] + (stream in fullest) for stream in low}
    spare = limit - len(waiting)
    others = sum(waiting.values()) - len(waiting)
    shares = {stream: 1 + (count - 1) * spare // others for stream, count in waiting.items()}
    # What rounding left over goes, one each, to the streams that lost most by it.
    lost = sorted(waiting, key=lambda stream: (-((waiting[stream] - 1) * spare % others), stream))
    for stream in lost[: limit - sum(shares.values())]:
        shares[stream] += 1
    return {stream: low[stream] + shares.get(stream, 0) for stream in low}


class Patience:
    """Whether a batch waits for more records: until there are enough, or until the first of them has waited long."""

    def __init__(self, least: int | None, seconds: float) -> None:
        self._least = least or 1
        self._seconds = seconds
        self._since: float | None = None

    def waits(self, records: int, now: float) -> bool:
        """Whether `records` are too few yet; `now` is a clock that never goes back."""
        if records == 0:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if records >= self._least or now - self._since >= self._seconds:
            self._since = None
            return False
        return True


def _moved(start: Mapping[StreamKey, int], ends: Mapping[StreamKey, int]) -> dict[StreamKey, int]:
    return {stream: end for stream, end in ends.items() if end > start[stream]}
