"""The streams of a query, watched on the driver as they come and go."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import sbp_native
from sbp_native._native import stream_bounds, stream_list, stream_offsets_at

from . import runtime
from .errors import DATA_LOSS, SbpSparkError, explained
from .schema import column_set
from .streams import StreamHead, every_stream, matching, tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from .options import SbpOptions

_log = logging.getLogger(__name__)

#: Seconds; streams that are new are found at once, only those that got another name wait so long.
_LIST_ALL_EVERY: Final = 30.0


class Watch:
    """Which streams a query reads now, and where they begin and end.

    A pattern is asked anew at every look: what was created since the last one is listed, and now and then everything,
    for streams that got another name. Names are looked up again only while one of them names nothing: a stream that was
    deleted, and perhaps created again, under another id. A stream that is renamed is read on.
    """

    def __init__(self, options: SbpOptions, heads: Iterable[StreamHead]) -> None:
        self._options = options
        self._heads = {head.id: head for head in heads}
        # What all others must look like, also when it is gone.
        self._like = list(self._heads.values())[:1]
        # Where the list of all streams goes on, and until when that will do.
        self._place = b""
        self._list_all_at = 0.0
        #: The names of all streams that the query has read, those that are gone too.
        self.names: dict[int, str] = {head.id: head.name for head in self._heads.values()}
        #: The beginnings of the identities of the streams that are read, as offsets keep them.
        self.tags: dict[int, str] = tags(self._heads.values())
        # Those of streams that are not read, but stand in a checkpoint; asked for once.
        self._others: dict[int, str] = {}
        self._asked: set[int] = set()
        self._turn = 0
        #: The last ends seen, of those that are gone too.
        self.seen: dict[int, int] = {}

    @property
    def ids(self) -> AbstractSet[int]:
        """The streams that are read, by id."""
        return self._heads.keys()

    def look(self, others: AbstractSet[int] = frozenset()) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """The bounds of the streams that are read and of `others`: where each begins, and where each ends.

        Those that do not exist have none, and are not read any more.
        """
        if self._options.streams_pattern is not None:
            self._list()
        usual = not others or others == self._heads.keys()
        earliest, latest = self._bounds(self._heads if usual else {*self._heads, *others})
        for stream in self._heads.keys() - latest.keys():
            del self._heads[stream]
        if self._options.streams_pattern is None and len(self._heads) < len(self._options.streams):
            self._list()
            fresh = self._heads.keys() - latest.keys()
            if fresh:
                more = self._bounds(fresh)
                earliest, latest = {**earliest, **more[0]}, {**latest, **more[1]}
        self.seen.update(latest)
        return earliest, latest

    def replaced(self, kept: Mapping[int, str]) -> frozenset[int]:
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
            try:
                info = runtime.client(self._options).describe_stream(stream)
            except sbp_native.StreamNotFoundError:
                return  # Its bounds are missing too.
        self._same([StreamHead(int(info.id), info.name, None, info.identity)])

    def _same(self, heads: Iterable[StreamHead]) -> None:
        for stream, tag in tags(heads).items():
            known = self.tags.get(stream, tag)
            if tag != known:
                raise SbpSparkError(
                    DATA_LOSS,
                    f"stream {self.names[stream]} ({stream}) is another one than when this query began (its identity "
                    f"begins with {tag}, not {known}), servers {self._options.servers}: the server was set up anew "
                    "while the query ran. Start the query again: it compares all streams with its checkpoint then",
                    retriable=True,
                )

    def offsets_at(self, ids: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """Where a record time is in each stream; streams that do not exist are left out."""
        with explained(f"looking for the records of time {time_ms}", self._options.servers):
            return stream_offsets_at(runtime.client(self._options), ids, time_ms, self._options.timeout)

    def _bounds(self, ids: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
        ids = list(ids)
        if not ids:
            return {}, {}
        with explained(f"asking for the offsets of {len(ids)} streams", self._options.servers):
            return stream_bounds(runtime.client(self._options), ids, self._options.timeout)

    def _list(self) -> None:
        now = time.monotonic()
        if now >= self._list_all_at:
            self._place, self._list_all_at = b"", now + _LIST_ALL_EVERY
        with explained("listing the streams", self._options.servers):
            listed, self._place = stream_list(runtime.client(self._options), self._place, self._options.timeout)
        self._same(StreamHead(*each) for each in listed)
        new = [StreamHead(*each) for each in listed if each[0] not in self._heads]
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
        return [head for head in heads if head.name in wanted or str(head.id) in wanted]
