"""What a streaming query tells in Spark's progress report: the only way out for figures of a Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .offsets import OffsetMap

if TYPE_CHECKING:
    from .naming import StreamKey
    from .offsets import Span
    from .standing import Standing
    from .watch import Watch

#: For more streams than this a report has no names; whoever reads it shows ids.
NAMED: Final = 1_000

#: So many gaps are reported one by one, the latest; all are in the totals.
_GAPS: Final = 100


class Report:
    """What was lost since this run of the query began.

    ```json
    {"v":1,"o":{"17":1050,"23":90},"names":{"17":"orders","23":"payments"},"lost":{"17":5},"gaps":[[17,0,5]]}
    ```

    `o` is the end of each stream when it was last looked at, packed as in any offset if there are very many; `lost`
    how many records were not there to be read; `gaps` the intervals: stream id, first offset, first offset behind
    it. Of a service whose streams are told apart by name, names stand where ids do. Read by `LagListener`.
    """

    def __init__(self) -> None:
        self._lost: dict[StreamKey, int] = {}
        self._gaps: list[Span] = []

    def add(self, found: Standing) -> None:
        """Adds what one batch passes over."""
        for stream, start, end in found.lost:
            self._lost[stream] = self._lost.get(stream, 0) + end - start
        self._gaps = [*self._gaps, *found.lost][-_GAPS:]

    def to_json(self, watch: Watch) -> dict[str, Any]:
        """The report, as Spark shows it."""
        seen = watch.seen
        streams = sorted(stream for stream in watch.ids if stream in seen)
        out = OffsetMap({stream: seen[stream] for stream in streams}, of=watch.of).to_json()
        if len(streams) <= NAMED:
            out["names"] = {str(stream): watch.names[stream] for stream in streams}
        if self._lost:
            out["lost"] = {str(stream): self._lost[stream] for stream in sorted(self._lost)}
            out["gaps"] = [list(gap) for gap in self._gaps]
        return out
