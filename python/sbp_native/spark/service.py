"""What a source asks of the service that it reads from, whatever that speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import pyarrow as pa

    from .naming import StreamKey
    from .offsets import Span
    from .options import Columns
    from .streams import StreamHead


class Service(Protocol):
    """One service, as a process of Spark's asks it. Makes its client at first use, and anew in each process.

    Calls wait for a service that is away as long as the option ``timeout`` says, and raise its client's errors then.
    """

    #: Whether a name that is read may stand for more streams than it did, as a topic does that was given partitions.
    grows: bool
    #: Whether it finds records by their time at little cost: limits and filters ask it then.
    has_times: bool
    #: Whether each number of a span has a record; else some may have none, and a span has fewer records than numbers.
    is_dense: bool
    #: Whether a stream that is there again under its key is the one that it was, and may have become shorter.
    comes_back: bool

    @property
    def sealed(self) -> AbstractSet[StreamKey]:
        """The streams, of those that `bounds` was asked for last, that are sealed: nothing comes behind their ends."""

    def listed(self, place: bytes) -> tuple[list[StreamHead], bytes]:
        """All streams, or those that came since an earlier answer gave this `place`; and the next place."""

    def named(self, names: Iterable[str]) -> tuple[StreamHead, ...]:
        """The streams that these words of an option name, in their order; `SbpOptionError` for one that is none."""

    def described(self, key: StreamKey) -> StreamHead | None:
        """One stream as it is now; None if it is gone."""

    def bounds(self, keys: Iterable[StreamKey]) -> tuple[dict[StreamKey, int], dict[StreamKey, int]]:
        """Where each stream begins, and where it ends; those that are gone are in neither."""

    def offsets_at(self, keys: Sequence[StreamKey], time_ms: int) -> Mapping[StreamKey, int]:
        """About where a record time is in each stream, never behind it; only of a service that `has_times`."""

    def records_at(self, heads: Sequence[StreamHead], time_ms: int) -> Mapping[StreamKey, int]:
        """The first record of that time or later in each stream, or its end; only where options name times."""

    def aligned(self, starts: Mapping[StreamKey, int], ends: Mapping[StreamKey, int]) -> Mapping[StreamKey, int]:
        """Ends of a micro-batch that a limit has set, moved to where a span can end: `starts` are where they begin."""

    def read(
        self, spans: Sequence[Span], kind: Columns, projection: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """The rows of spans, in their order, each batch with how many numbers of the spans are done with by it.

        That is how many rows it has, and where the service is not dense, also the numbers in front of and between them
        that have none; behind the last row of a span without a batch.
        """
