"""The streams of a query, watched on the driver as they come and go."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sbp_native._native import stream_bounds, stream_changes, stream_offsets_at

from . import runtime
from .errors import explained
from .schema import column_set
from .streams import StreamHead, matching

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .options import SbpOptions

_log = logging.getLogger(__name__)


class Watch:
    """Which streams a query reads now, and where they begin and end.

    A pattern is asked anew at every look. Names are looked up again only while one of them names nothing: a stream that
    was deleted, and perhaps created again, under another id. A stream that is renamed is read on.
    """

    def __init__(self, options: SbpOptions, heads: Iterable[StreamHead]) -> None:
        self._options = options
        self._heads = {head.id: head for head in heads}
        # What all others must look like, also when it is gone.
        self._like = list(self._heads.values())[:1]
        # All streams that were listed, read or not.
        self._listed: dict[int, str] = {head.id: head.name for head in self._heads.values()}
        #: The names of all streams that the query has read, those that are gone too.
        self.names: dict[int, str] = dict(self._listed)
        #: The last ends seen, of those that are gone too.
        self.seen: dict[int, int] = {}

    @property
    def ids(self) -> Collection[int]:
        """The streams that are read, by id."""
        return self._heads.keys()

    def look(self, others: Iterable[int] = ()) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """The bounds of the streams that are read and of `others`: where each begins, and where each ends.

        Those that do not exist have none, and are not read any more.
        """
        if self._options.streams_pattern is not None:
            self._list()
        earliest, latest = self._bounds({*self._heads, *others})
        missing = self._heads.keys() - latest.keys()
        for stream in missing:
            del self._heads[stream]
            self._listed.pop(stream, None)
        if self._options.streams_pattern is None and len(self._heads) < len(self._options.streams):
            self._list()
            fresh = self._heads.keys() - latest.keys()
            if fresh:
                more = self._bounds(fresh)
                earliest, latest = {**earliest, **more[0]}, {**latest, **more[1]}
        self.seen.update(latest)
        return earliest, latest

    def offsets_at(self, ids: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """Where a record time is in each stream; streams that do not exist are left out."""
        with explained(f"looking for the records of time {time_ms}", self._options.servers):
            return stream_offsets_at(runtime.client(self._options), ids, time_ms, self._options.timeout)

    def _bounds(self, ids: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
        ids = sorted(ids)
        if not ids:
            return {}, {}
        with explained(f"asking for the offsets of {len(ids)} streams", self._options.servers):
            return stream_bounds(runtime.client(self._options), ids, self._options.timeout)

    def _list(self) -> None:
        with explained("listing the streams", self._options.servers):
            changed, gone = stream_changes(runtime.client(self._options), self._listed, self._options.timeout)
        for stream in gone:
            del self._listed[stream]
        if not changed:
            return
        self._listed.update((stream, name) for stream, name, _ in changed)
        fresh = [head for head in self._chosen(StreamHead(*each) for each in changed) if head.id not in self._heads]
        if fresh:
            column_set([*self._like, *fresh], self._options)
            _log.info("the query reads more streams: %s", ", ".join(map(str, fresh[:20])))
        self._like = self._like or fresh[:1]
        self._heads.update((head.id, head) for head in fresh)
        self.names.update((stream, self._listed[stream]) for stream in self._heads)

    def _chosen(self, heads: Iterable[StreamHead]) -> Iterable[StreamHead]:
        if self._options.streams_pattern is not None:
            return matching(self._options.streams_pattern, heads)
        wanted = set(self._options.streams)
        return [head for head in heads if head.name in wanted or str(head.id) in wanted]
