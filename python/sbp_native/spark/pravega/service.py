"""Pravega, as the source asks it: its controller, or one segment store."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sbp_native import pravega
from sbp_native._native import pravega_bounds, pravega_event_end, pravega_segments, pravega_spans

from .. import peers
from ..errors import NOT_FOUND, UNSUPPORTED, SbpOptionError, SbpSparkError, explained, nearest
from ..streams import StreamHead
from .options import stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ..naming import StreamKey
    from ..offsets import Span
    from ..options import Columns
    from .options import PravegaOptions

_T = TypeVar("_T")


class PravegaService:
    """The server that the options name; see `Service`. A stream of it is a segment, its key the segment's name."""

    grows = True
    has_times = False
    is_dense = False
    comes_back = False

    def __init__(self, options: PravegaOptions) -> None:
        self._options = options
        self.sealed: frozenset[StreamKey] = frozenset()

    def listed(self, place: bytes) -> tuple[list[StreamHead], bytes]:  # noqa: ARG002 - all of them, at once
        """All segments of the streams that the options name, or of all streams if they have a pattern."""
        if self._options.streams_pattern is None:
            streams = list(dict.fromkeys(map(stream_of, self._options.streams)))
        else:
            streams = self._patiently(_streams)
        return [head for stream in streams for head in self._segments(stream)], b""

    def _segments(self, stream: str) -> list[StreamHead]:
        """The segments of a stream; none if there is no such stream."""
        found = self._patiently(lambda client, left: pravega_segments(client, stream, left))
        return [StreamHead(name, name, topic=stream, follows=tuple(follows)) for name, follows in found or ()]

    def named(self, names: Iterable[str]) -> tuple[StreamHead, ...]:
        """The segments of these streams, and these segments. The error says what there is."""
        found: dict[StreamKey, StreamHead] = {}
        for name in names:
            with explained(f"listing the segments of {stream_of(name)}", self._options.servers):
                heads = self._segments(stream_of(name))
            of_name = [head for head in heads if name in head.words]
            if not of_name:
                raise SbpOptionError(NOT_FOUND, self._nothing_is_called(name, heads))
            found.update((head.id, head) for head in of_name)
        return tuple(found.values())

    def _nothing_is_called(self, name: str, heads: Sequence[StreamHead]) -> str:
        stream = stream_of(name)
        if heads:
            hint = nearest(name, [head.name for head in heads])
            return f"stream {stream!r}, {self._options.where}, has no segment {name!r}: {hint}"
        hint = "a segment store lists no streams"
        if not self._options.is_direct:
            with explained("listing the streams", self._options.servers):
                hint = nearest(stream, self._patiently(_streams)) or "there is no stream yet"
        return f"there is no stream {stream!r}, {self._options.where}: {hint}"

    def described(self, key: StreamKey) -> StreamHead | None:
        """The segment, whose key is its name: nothing tells it from another one that had it before."""
        return StreamHead(key, key, topic=stream_of(key))

    def bounds(self, keys: Iterable[StreamKey]) -> tuple[dict[StreamKey, int], dict[StreamKey, int]]:
        """Several segments are asked about at once."""
        names = list(keys)
        told = self._patiently(lambda client, left: pravega_bounds(client, names, left))
        found = {name: bounds for name, bounds in zip(names, told, strict=True) if bounds is not None}
        self.sealed = frozenset(name for name, (_, _, is_sealed) in found.items() if is_sealed)
        return {name: start for name, (start, _, _) in found.items()}, {
            name: end for name, (_, end, _) in found.items()
        }

    def offsets_at(self, keys: Sequence[StreamKey], time_ms: int) -> Mapping[StreamKey, int]:  # noqa: ARG002
        """Not of Pravega."""
        raise SbpSparkError(UNSUPPORTED, "events of Pravega have no time")

    def records_at(self, heads: Sequence[StreamHead], time_ms: int) -> Mapping[StreamKey, int]:
        """Not of Pravega."""
        return self.offsets_at([head.id for head in heads], time_ms)

    def aligned(self, starts: Mapping[StreamKey, int], ends: Mapping[StreamKey, int]) -> Mapping[StreamKey, int]:
        """Where the last event ends that fits, or the first one where none does: found by reading them."""
        return {name: self._event_end(name, starts[name], end) for name, end in ends.items()}

    def _event_end(self, name: str, start: int, limit: int) -> int:
        return self._patiently(lambda client, left: pravega_event_end(client, name, start, limit, left))

    def read(
        self,
        spans: Sequence[Span],
        kind: Columns,  # noqa: ARG002 - there is one
        projection: Sequence[str],
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """One segment after the other."""
        client = self._patiently(lambda client, _: client)
        reader = pravega_spans(
            client, spans, projection, include_headers="headers" in projection, timeout=self._options.timeout
        )
        return peers.rows(reader)

    def _patiently(self, call: Callable[[pravega.Pravega, float], _T]) -> _T:
        options = self._options

        def connect() -> pravega.Pravega:
            controller, store = (None, options.servers) if options.is_direct else (options.servers, None)
            return pravega.connect(controller, segment_store=store, timeout=options.timeout, token=options.token)

        key = (options.servers, options.is_direct, options.token, options.timeout)
        return peers.patiently(key, connect, options.timeout, call)


def _streams(client: pravega.Pravega, left: float) -> list[str]:
    """The streams of all scopes, but for those that Pravega keeps for itself."""
    found = []
    for scope in client.scopes(timeout=left):
        if not scope.startswith("_"):
            found += [
                name for name in client.streams(scope, timeout=left) if not name.partition("/")[2].startswith("_")
            ]
    return sorted(found)
