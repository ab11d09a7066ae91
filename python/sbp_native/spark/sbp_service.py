"""An SBP service, as the source asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sbp_native
from sbp_native._native import SpanReader, stream_bounds, stream_list, stream_offsets_at

from . import runtime
from .errors import INVALID_VALUE, NOT_FOUND, SbpOptionError, explained, nearest
from .streams import StreamHead, every_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from .naming import StreamKey
    from .offsets import Span
    from .options import Columns, SbpOptions

#: Streams looked up one by one; for more of them the list of all is the shorter way.
_ASKED_ONE_BY_ONE: Final = 8


class SbpService:
    """The servers that the options name; see `Service`."""

    grows = False
    has_times = True
    is_dense = True
    comes_back = True
    sealed: frozenset[StreamKey] = frozenset()

    def __init__(self, options: SbpOptions) -> None:
        self._options = options

    @property
    def _client(self) -> sbp_native.Client:
        return runtime.client(self._options)

    def listed(self, place: bytes) -> tuple[list[StreamHead], bytes]:
        """All streams, or those that were created since; the last one known comes again."""
        listed, place = stream_list(self._client, place, self._options.timeout)
        return [StreamHead(*each) for each in listed], place

    def named(self, names: Iterable[str]) -> tuple[StreamHead, ...]:
        """The streams with these names or ids. The error names the nearest one that exists."""
        options, names = self._options, list(names)
        by_key = self._one_by_one(names) if len(names) <= _ASKED_ONE_BY_ONE else None
        if by_key is None:
            every = every_stream(options)
            by_key = {str(head.id): head for head in every} | {head.name: head for head in every}
        heads: dict[int, StreamHead] = {}
        for name in names:
            found = by_key.get(name)
            if found is None:
                known = sorted({head.name for head in by_key.values()})
                hint = nearest(name, known) or "the server has no stream yet"
                raise SbpOptionError(NOT_FOUND, f"there is no stream {name!r} at {options.servers}: {hint}")
            if found.id in heads:
                raise SbpOptionError(INVALID_VALUE, f"{found} is listed twice, by name and by id: name it once")
            heads[found.id] = found
        return tuple(heads.values())

    def _one_by_one(self, names: Iterable[str]) -> dict[str, StreamHead] | None:
        """A few streams, one by one, since there may be thousands of others; None if one does not exist."""
        found = {}
        for name in names:
            with explained(f"looking for stream {name}", self._options.servers):
                head = self.described(int(name) if name.isdigit() else name)
            if head is None:
                return None
            found[name] = head
        return found

    def described(self, key: StreamKey) -> StreamHead | None:
        """The stream with this id or name."""
        try:
            info = self._client.describe_stream(key)
        except sbp_native.StreamNotFoundError:
            return None
        return StreamHead(int(info.id), info.name, info.schema_ipc, info.identity)

    def bounds(self, keys: Iterable[StreamKey]) -> tuple[dict[StreamKey, int], dict[StreamKey, int]]:
        """One question for all of them."""
        return stream_bounds(self._client, list(keys), self._options.timeout)

    def offsets_at(self, keys: Sequence[StreamKey], time_ms: int) -> Mapping[StreamKey, int]:
        """The first offset of the batch that has the first record of that time."""
        return stream_offsets_at(self._client, keys, time_ms, self._options.timeout)

    def records_at(self, heads: Sequence[StreamHead], time_ms: int) -> Mapping[StreamKey, int]:
        """Exact to the record."""
        found = self._client.offsets_for_time([head.name for head in heads], time_ms)
        return {head.id: found[head.name] for head in heads}

    def aligned(
        self,
        starts: Mapping[StreamKey, int],  # noqa: ARG002
        ends: Mapping[StreamKey, int],
    ) -> Mapping[StreamKey, int]:
        """Where they are: a span can end anywhere."""
        return ends

    def read(
        self, spans: Sequence[Span], kind: Columns, projection: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """Many streams in one request."""
        import pyarrow as pa

        reader = SpanReader(
            self._client,
            spans,
            kind,
            projection,
            include_headers="headers" in projection,
            include_metadata=kind == "arrow",
            timeout=self._options.timeout,
        )
        try:
            for batch in pa.RecordBatchReader.from_stream(reader):
                yield batch, batch.num_rows
        except (pa.ArrowException, OSError):
            # Arrow's interface hands on a text alone; the reader keeps the error that it was.
            if reader.error is not None:
                raise reader.error from None
            raise
