"""The streams of a query, watched on the driver as they come and go."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from .errors import DATA_LOSS, SbpSparkError, explained
from .naming import StreamKey, called
from .schema import column_set
from .streams import every_stream, matching, tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from .offsets import OffsetMap
    from .read_options import ReadOptions
    from .streams import StreamHead

_log = logging.getLogger(__name__)

#: Seconds; streams that are new are found at once, only those that got another name wait so long.
_LIST_ALL_EVERY: Final = 30.0


class Watch:
    """Which streams a query reads now, and where they begin and end.

    A pattern is asked anew at every look, and so are names that may stand for more streams than they did: what was
    created since the last one is listed, and now and then everything, for streams that got another name. Names are
    looked up again only while one of them names nothing: a stream that was deleted, and perhaps created again,
    under another id. A stream that is renamed is read on.
    """

    def __init__(self, options: ReadOptions, heads: Iterable[StreamHead]) -> None:
        self._options = options
        self._service = options.service()
        #: As `OffsetMap.of`.
        self.of = options.of
        self._heads = {head.id: head for head in heads}
        # What all others must look like, also when it is gone.
        self._like = list(self._heads.values())[:1]
        # Where the list of all streams goes on, and until when that will do.
        self._place = b""
        self._list_all_at = 0.0
        #: The names of all streams that the query has read, those that are gone too.
        self.names: dict[StreamKey, str] = {head.id: head.name for head in self._heads.values()}
        #: The beginnings of the identities of the streams that are read, as offsets keep them.
        self.tags: dict[StreamKey, str] = tags(self._heads.values())
        # Those of streams that are not read, but stand in a checkpoint; asked for once.
        self._others: dict[StreamKey, str] = {}
        self._asked: set[StreamKey] = set()
        self._turn = 0
        #: The last ends seen, of those that are gone too.
        self.seen: dict[StreamKey, int] = {}

    @property
    def ids(self) -> AbstractSet[StreamKey]:
        """The streams that are read, by id."""
        return self._heads.keys()

    def look(
        self, others: AbstractSet[StreamKey] = frozenset()
    ) -> tuple[Mapping[StreamKey, int], Mapping[StreamKey, int]]:
        """The bounds of the streams that are read and of `others`: where each begins, and where each ends.

        Those that do not exist have none, and are not read any more.
        """
        anew = self._options.streams_pattern is not None or self._service.grows
        if anew:
            self._list()
        usual = not others or others == self._heads.keys()
        earliest, latest = self._bounds(self._heads if usual else {*self._heads, *others})
        for stream in self._heads.keys() - latest.keys():
            del self._heads[stream]
        if not anew and len(self._heads) < len(self._options.streams):
            self._list()
            fresh = self._heads.keys() - latest.keys()
            if fresh:
                more = self._bounds(fresh)
                earliest, latest = {**earliest, **more[0]}, {**latest, **more[1]}
        self.seen.update(latest)
        return earliest, latest

    def replaced(self, kept: Mapping[StreamKey, str]) -> frozenset[StreamKey]:
        """Of the streams that a checkpoint knows by these tags, the ids that belong to other streams now."""
        # As it nearly always is, and there may be ten thousand.
        if kept == self.tags:
            return frozenset()
        foreign = kept.keys() - self.tags.keys() - self._asked
        if foreign:
            self._asked |= foreign
            self._others.update(tags(head for head in every_stream(self._options) if head.id in foreign))
        now = {**self._others, **self.tags}
        return frozenset(stream for stream, tag in kept.items() if now.get(stream, tag) != tag)

    def reborn(self, begin: OffsetMap, latest: Mapping[StreamKey, int]) -> frozenset[StreamKey]:
        """The streams that are others than those of a checkpoint, of a service whose streams do not come back."""
        if self._service.comes_back:
            return frozenset()
        known = latest.keys() & begin.next.keys()
        shorter = {stream for stream in known if latest[stream] < begin.next[stream]}
        return frozenset(shorter | ((begin.gone & known) - self.done(begin.next, latest)))

    def done_at(self, places: Mapping[StreamKey, int]) -> frozenset[StreamKey]:
        """The streams that are done where a query begins, of a service that tells of sealed ones."""
        if self._service.comes_back:
            return frozenset()
        _, latest = self.look()
        return frozenset(self.done(places, latest))

    def done(self, places: Mapping[StreamKey, int], latest: Mapping[StreamKey, int]) -> set[StreamKey]:
        """The streams that are sealed, and read to their ends when these places are reached."""
        return {stream for stream in self._service.sealed & places.keys() if places[stream] == latest.get(stream)}

    def due(self, done: AbstractSet[StreamKey]) -> AbstractSet[StreamKey]:
        """The streams whose turn it is: not those that are done, nor those that follow others that are not."""
        if not done and not any(head.follows for head in self._heads.values()):
            return self.ids
        return {
            stream
            for stream, head in self._heads.items()
            if stream not in done and all(before in done or before not in self._heads for before in head.follows)
        }

    def check(self) -> None:
        """Asks for one stream whether it is the one that it was, for another one each time.

        Raises `SbpSparkError` if the server was set up anew while the query runs.
        """
        asked = list(self.tags)
        if not asked:
            return
        stream = asked[self._turn % len(asked)]
        self._turn += 1
        with explained(f"looking for stream {self.names[stream]}", self._options.servers):
            head = self._service.described(stream)
        # One that is gone has no bounds either.
        self._same([] if head is None else [head])

    def _same(self, heads: Iterable[StreamHead]) -> None:
        for stream, tag in tags(heads).items():
            known = self.tags.get(stream, tag)
            if tag != known:
                raise SbpSparkError(
                    DATA_LOSS,
                    f"{called(stream, self.names[stream])} is another one than when this query began (its identity "
                    f"begins with {tag}, not {known}), servers {self._options.servers}: the server was set up anew "
                    "while the query ran. Start the query again: it compares all streams with its checkpoint then",
                    retriable=True,
                )

    def offsets_at(self, ids: Sequence[StreamKey], time_ms: int) -> Mapping[StreamKey, int]:
        """Where a record time is in each stream; streams that do not exist are left out."""
        with explained(f"looking for the records of time {time_ms}", self._options.servers):
            return self._service.offsets_at(ids, time_ms)

    def _bounds(self, ids: Iterable[StreamKey]) -> tuple[dict[StreamKey, int], dict[StreamKey, int]]:
        ids = list(ids)
        if not ids:
            return {}, {}
        with explained(f"asking for the offsets of {len(ids)} streams", self._options.servers):
            return self._service.bounds(ids)

    def _list(self) -> None:
        now = time.monotonic()
        if now >= self._list_all_at:
            self._place, self._list_all_at = b"", now + _LIST_ALL_EVERY
        with explained("listing the streams", self._options.servers):
            listed, self._place = self._service.listed(self._place)
        self._same(listed)
        new = [head for head in listed if head.id not in self._heads]
        fresh = self._chosen(new)
        if fresh:
            column_set([*self._like, *fresh], self._options, growing=True)
            _log.info("the query reads more streams: %s", ", ".join(map(str, fresh[:20])))
            self._like = self._like or fresh[:1]
            self._heads.update((head.id, head) for head in fresh)
            self.names.update((head.id, head.name) for head in fresh)
            self.tags.update(tags(fresh))

    def _chosen(self, heads: Sequence[StreamHead]) -> list[StreamHead]:
        if self._options.streams_pattern is not None:
            return list(matching(self._options.streams_pattern, heads))
        wanted = set(self._options.streams)
        return [head for head in heads if not wanted.isdisjoint(head.words)]
