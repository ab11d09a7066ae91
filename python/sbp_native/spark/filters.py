"""Filters of a query, turned into less to read.

Spark pushes filters into batch reads when ``spark.sql.python.filterPushdown.enabled`` is set. Those on the stream and
on the offset choose spans, and Spark need not look at them again. One on the timestamp moves the start only: the order
of records is that of offsets, and old records may lie behind new ones.

Up to 4.3 Spark keeps what a reader planned for one query with its DataFrame, and reads the same in the next query on
it, whatever that one's filters are: rows go missing. So there nothing is pushed unless an option says that one `load`
serves one query.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from .naming import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .options import Columns
    from .streams import StreamHead

#: Whether Spark keeps the filters of one query out of others: a plan belongs to its query since limits can be pushed.
PUSHED_FILTERS_STAY: Final = hasattr(DataSourceReader, "pushLimit")

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

#: What a column says about the place of a row, by set of columns and name.
_MEANINGS: Final[dict[str, dict[str, str]]] = {
    "records": {"stream": "name", "stream_id": "id", "offset": "offset", "timestamp": "timestamp"},
    "kafka": {"topic": "name", "offset": "offset", "timestamp": "timestamp"},
    "arrow": {"_stream": "name", "_offset": "offset", "_timestamp": "timestamp"},
}

_COMPARED: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda have, want: have == want,
    EqualNullSafe: lambda have, want: have == want,
    GreaterThan: lambda have, want: have > want,
    GreaterThanOrEqual: lambda have, want: have >= want,
    LessThan: lambda have, want: have < want,
    LessThanOrEqual: lambda have, want: have <= want,
    In: lambda have, want: have in want,
    StringStartsWith: lambda have, want: have.startswith(want),
    StringEndsWith: lambda have, want: have.endswith(want),
    StringContains: lambda have, want: want in have,
}


@dataclass
class Narrowed:
    """What the filters leave to read."""

    keeps: list[Callable[[StreamHead], bool]] = field(default_factory=list)
    first: int = 0
    end: int = 2**63 - 1
    since_ms: int | None = None

    def keeps_stream(self, head: StreamHead) -> bool:
        """Whether any row of the stream can be wanted."""
        return all(keeps(head) for keeps in self.keeps)

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """The part of a span that can be wanted; empty spans stay where they begin."""
        start = min(max(start, self.first), end)
        return start, max(start, min(end, self.end))


class FilterPush:
    """What Spark calls as a reader's `pushFilters`.

    A reader whose *class* has that method fails every query while Spark's setting is off, which it is by default. So
    readers carry this object instead, which answers Spark's question who made the method as the base class does.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, kind: Columns, narrowed: Narrowed, gaps_as_rows: bool) -> None:
        self._meanings = dict(_MEANINGS[kind])
        if gaps_as_rows:
            # A gap is a row at its first offset: cutting it would move that row to where the filter lets it through.
            for name in [name for name, meaning in self._meanings.items() if meaning in ("offset", "timestamp")]:
                del self._meanings[name]
        self._narrowed = narrowed

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can use, and returns what Spark has to look at still."""
        return [each for each in filters if not self._take(each)]

    def _take(self, wanted: Filter) -> bool:
        """Whether the filter is seen to in full."""
        inner = wanted.child if isinstance(wanted, Not) else wanted
        attribute: tuple[str, ...] = getattr(inner, "attribute", ())
        meaning = self._meanings.get(attribute[0]) if len(attribute) == 1 else None
        if meaning is None:
            return False
        if isinstance(inner, (IsNotNull, IsNull)):
            # Only a gap's timestamp is null.
            return meaning != "timestamp" and isinstance(inner, IsNotNull) != isinstance(wanted, Not)
        negated = isinstance(wanted, Not)
        if meaning in ("name", "id"):
            return self._take_stream(meaning, inner, negated)
        if meaning == "offset":
            return not negated and self._take_offset(inner)
        if not negated:
            self._note_time(inner)
        return False

    def _take_stream(self, meaning: str, inner: Filter, negated: bool) -> bool:
        compare = _COMPARED.get(type(inner))
        want = getattr(inner, "value", None)
        wants = want if isinstance(inner, In) else (want,)
        kind = str if meaning == "name" else int
        if compare is None or not isinstance(wants, (tuple, list)) or not all(type(each) is kind for each in wants):
            # Null has rules of its own: Spark knows them.
            return False
        chosen, target = compare, want

        def keeps(head: StreamHead) -> bool:
            return chosen(head.name if meaning == "name" else number_of(head.id), target) != negated

        self._narrowed.keeps.append(keeps)
        return True

    def _take_offset(self, inner: Filter) -> bool:
        want = getattr(inner, "value", None)
        if (
            isinstance(inner, In)
            and isinstance(want, (tuple, list))
            and want
            and all(type(each) is int for each in want)
        ):
            # The span around them; which of them is wanted, Spark sees.
            self._between(min(want), max(want) + 1)
            return False
        if type(want) is not int:
            return False
        match inner:
            case EqualTo() | EqualNullSafe():
                self._between(want, want + 1)
            case GreaterThan():
                self._between(want + 1, None)
            case GreaterThanOrEqual():
                self._between(want, None)
            case LessThan():
                self._between(None, want)
            case LessThanOrEqual():
                self._between(None, want + 1)
            case _:
                return False
        return True

    def _between(self, first: int | None, end: int | None) -> None:
        narrowed = self._narrowed
        narrowed.first = max(narrowed.first, first if first is not None else 0)
        narrowed.end = min(narrowed.end, max(0, end) if end is not None else narrowed.end)

    def _note_time(self, inner: Filter) -> None:
        want = getattr(inner, "value", None)
        if not isinstance(inner, (EqualTo, GreaterThan, GreaterThanOrEqual)) or not isinstance(want, dt.datetime):
            return
        moment = want if want.tzinfo is not None else want.astimezone()
        since = (moment - _EPOCH) // dt.timedelta(milliseconds=1)
        if since > 0:
            self._narrowed.since_ms = max(self._narrowed.since_ms or 0, since)
