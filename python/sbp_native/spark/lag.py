"""How far a streaming query is behind its streams, read from Spark's progress report. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import SbpSparkError
from .naming import StreamKey
from .offsets import OffsetMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The stream's key, first offset, first offset behind it.
Gap = tuple[StreamKey, int, int]


@dataclass(frozen=True)
class StreamLag:
    """One stream of a query: the next offset to be read, the stream's end, what was lost since the query started."""

    id: StreamKey
    name: str
    next: int
    latest: int
    lost: int = 0

    @property
    def behind(self) -> int:
        """Records that were there and not read yet."""
        return max(0, self.latest - self.next)


@dataclass(frozen=True)
class QueryLag:
    """One query after one of its batches. `rows` are those read since the listener saw it first."""

    id: str
    run: str
    name: str
    batch: int
    rows: int
    rows_per_second: float
    processed_per_second: float
    batch_seconds: float
    streams: tuple[StreamLag, ...]
    gaps: tuple[Gap, ...]

    @property
    def behind(self) -> int:
        """Records of all streams that were there and not read yet."""
        return sum(stream.behind for stream in self.streams)

    @property
    def lost(self) -> int:
        """Records of all streams that were gone before they were read, since the query started."""
        return sum(stream.lost for stream in self.streams)

    def farthest(self, count: int) -> list[StreamLag]:
        """The streams that are farthest behind, or have lost most; then by id."""
        return sorted(self.streams, key=lambda stream: (-stream.behind, -stream.lost, stream.id))[:count]

    def new_gaps(self, before: QueryLag | None) -> tuple[Gap, ...]:
        """What was lost in this batch."""
        known = set(before.gaps) if before is not None and before.run == self.run else set()
        return tuple(gap for gap in self.gaps if gap not in known)


def lag_of(progress: Mapping[str, Any], before: QueryLag | None = None) -> QueryLag | None:
    """What a progress report says, as the dict of its JSON; None unless the query reads from an SBP source."""
    streams: list[StreamLag] = []
    gaps: list[Gap] = []
    found, rows, rates, processed = False, 0, 0.0, 0.0
    for source in progress.get("sources") or ():
        report = source.get("latestOffset")
        end = _offsets(source.get("endOffset"))
        if end is None or not isinstance(report, dict):
            continue
        found = True
        rows += int(source.get("numInputRows") or 0)
        rates += _rate(source.get("inputRowsPerSecond"))
        processed += _rate(source.get("processedRowsPerSecond"))
        streams += _streams(end, report)
        gaps += [(stream, int(first), int(behind)) for stream, first, behind in report.get("gaps") or ()]
    if not found:
        return None
    known = before.rows if before is not None else 0
    return QueryLag(
        id=str(progress.get("id")),
        run=str(progress.get("runId")),
        name=str(progress.get("name") or progress.get("id")),
        batch=int(progress.get("batchId") or 0),
        rows=known + rows,
        rows_per_second=rates,
        processed_per_second=processed,
        batch_seconds=int((progress.get("durationMs") or {}).get("triggerExecution") or 0) / 1_000,
        streams=tuple(streams),
        gaps=tuple(gaps),
    )


def _streams(end: Mapping[StreamKey, int], report: Mapping[str, Any]) -> Sequence[StreamLag]:
    latest = _offsets({key: report[key] for key in ("v", "of", "o", "z") if key in report}) or {}
    names = report.get("names") or {}
    lost = {_key(stream, report): int(count) for stream, count in (report.get("lost") or {}).items()}
    return [
        StreamLag(
            stream,
            str(names.get(str(stream), stream)),
            end.get(stream, latest.get(stream, 0)),
            latest.get(stream, end.get(stream, 0)),
            lost.get(stream, 0),
        )
        for stream in sorted({*latest, *lost})
    ]


def _key(text: str, report: Mapping[str, Any]) -> StreamKey:
    return int(text) if report.get("of") is None else text


def _offsets(value: object) -> Mapping[StreamKey, int] | None:
    if not isinstance(value, dict):
        return None
    try:
        return OffsetMap.from_json(value).next
    except SbpSparkError:
        return None


def _rate(value: object) -> float:
    # Spark writes "NaN" and "Infinity" for the first batch.
    return float(value) if isinstance(value, (int, float)) and 0 <= value < float("inf") else 0.0
