"""Where reading starts and ends, as options say it: by offset, by distance from the end, or by time."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from .errors import INVALID_VALUE, SbpOptionError
from .values import refuse, stream_name, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: How JSON in Kafka's source, and so here, writes the two ends of a stream.
EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1

_BACK: Final = re.compile(r"latest\s*-\s*([0-9]{1,18})")
_AGO: Final = re.compile(r"-\s*([0-9]{1,12})\s*(ms|s|m|min|h|d|w)")
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AN_OFFSET: Final = (
    "'earliest', 'latest', 'latest-1000' or JSON such as {\"orders\": 23, \"17\": -2} (-2 earliest, -1 latest)"
)
_A_TIME: Final = (
    "milliseconds since 1970, ISO 8601 such as '2026-01-31T12:00:00Z', or a distance from now such as '-10m'"
)


@dataclass(frozen=True)
class Place:
    """One place in a stream, before anybody has asked the stream.

    `value` is an offset, the records before the end (`latest`), a time in ms (`time`), or ms before now (`ago`).
    """

    kind: Literal["offset", "earliest", "latest", "time", "ago"]
    value: int = 0

    @property
    def is_time(self) -> bool:
        """Whether the server must be asked where the place is."""
        return self.kind in ("time", "ago")

    def time_ms(self, now_ms: int | None = None) -> int:
        """The time it means, in ms; `now_ms` is the clock."""
        if self.kind == "ago":
            return max(0, (int(time.time() * 1000) if now_ms is None else now_ms) - self.value)
        return self.value

    def __str__(self) -> str:
        match self.kind:
            case "earliest":
                return "earliest"
            case "latest":
                return f"latest-{self.value}" if self.value else "latest"
            case "ago":
                return f"-{self.value}ms"
            case "time":
                return f"{dt.datetime.fromtimestamp(self.value / 1000, dt.UTC).isoformat()} ({self.value})"
            case "offset":
                return str(self.value)


EARLIEST: Final = Place("earliest")
LATEST: Final = Place("latest")


@dataclass(frozen=True)
class Places:
    """One place for every stream, or a place per stream.

    `each` maps names or decimal ids to places. `option` is what the user wrote it in. `beyond` says what a time means
    that no record has reached: `error`, or `latest`, the end of the stream.
    """

    default: Place | None
    each: tuple[tuple[str, Place], ...] = ()
    option: str = "startingOffsets"
    beyond: Literal["error", "latest"] = "error"

    def of(self, *words: str | int) -> Place | None:
        """The place of a stream that options may call by these words, None if `each` leaves it out."""
        if self.default is not None:
            return self.default
        return next((place for key, place in self.each if key in map(str, words)), None)

    def anywhere(self, kind: str) -> bool:
        """Whether some place is just this end of its stream."""
        wanted = Place("earliest" if kind == "earliest" else "latest")
        return self.default == wanted or any(place == wanted for _, place in self.each)


def starting(values: Mapping[str, str], named: Callable[[str], str] = stream_name) -> Places | None:
    """Where reading starts: by a timestamp if one is given, else by timestamps per stream, else by offsets.

    `named` checks the name of a stream, and returns it without blanks around it.
    """
    beyond = word("startingOffsetsByTimestampStrategy", values, ("error", "latest"))
    by_time = "startingTimestamp" in values or "startingOffsetsByTimestamp" in values
    if beyond is not None and not by_time:
        raise SbpOptionError(
            INVALID_VALUE,
            "option 'startingOffsetsByTimestampStrategy' needs a time: give 'startingTimestamp' or "
            "'startingOffsetsByTimestamp' too, or leave it out",
        )
    return _places("starting", values, "latest" if beyond == "latest" else "error", named)


def ending(values: Mapping[str, str], named: Callable[[str], str] = stream_name) -> Places | None:
    """Where a batch read ends; a time that no record has reached means the end of the stream."""
    places = _places("ending", values, "latest", named)
    if places is not None and places.anywhere("earliest"):
        raise SbpOptionError(
            INVALID_VALUE,
            f"option {places.option!r} cannot be 'earliest' (-2): nothing lies before the earliest record",
        )
    return places


def _places(
    side: str, values: Mapping[str, str], beyond: Literal["error", "latest"], named: Callable[[str], str]
) -> Places | None:
    timestamp, by_time, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if timestamp in values:
        return Places(_time_everywhere(timestamp, values[timestamp]), option=timestamp, beyond=beyond)
    if by_time in values:
        wanted = f'it must be JSON such as {{"orders": 1738324800000, "17": "-10m"}}, each {_A_TIME}'
        return Places(None, _each(by_time, values[by_time], wanted, _time, named), option=by_time, beyond=beyond)
    if offsets not in values:
        return None
    text = values[offsets].strip()
    found = _by_word(text)
    if found is not None:
        return Places(found, option=offsets)
    return Places(None, _each(offsets, text, f"it must be {_AN_OFFSET}", _offset, named), option=offsets)


def _by_word(text: str) -> Place | None:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    back = _BACK.fullmatch(word)
    return Place("latest", int(back[1])) if back else None


def _each(
    name: str,
    text: str,
    wanted: str,
    place: Callable[[str, str, object], Place],
    named: Callable[[str], str],
) -> tuple[tuple[str, Place], ...]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise refuse(name, text, wanted) from error
    if not isinstance(parsed, dict) or not parsed:
        raise refuse(name, text, wanted)
    return tuple(sorted((named(stream), place(name, stream, value)) for stream, value in parsed.items()))


def _offset(name: str, stream: str, value: object) -> Place:
    if isinstance(value, str) and (found := _by_word(value)) is not None:
        return found
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST_NUMBER <= value < 2**63:
        raise SbpOptionError(
            INVALID_VALUE, f"option {name!r} gives stream {stream!r} the offset {value!r}: it must be {_AN_OFFSET}"
        )
    if value < 0:
        return EARLIEST if value == EARLIEST_NUMBER else LATEST
    return Place("offset", value)


def _time_everywhere(name: str, text: str) -> Place:
    found = _time_of(text.strip())
    if found is None:
        raise refuse(name, text, f"it must be {_A_TIME}")
    return found


def _time(name: str, stream: str, value: object) -> Place:
    found = _time_of(value.strip()) if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        found = Place("time", value)
    if found is None:
        raise SbpOptionError(
            INVALID_VALUE, f"option {name!r} gives stream {stream!r} the time {value!r}: it must be {_A_TIME}"
        )
    return found


def _time_of(text: str) -> Place | None:
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        return Place("time", int(text))
    ago = _AGO.fullmatch(text.lower())
    if ago:
        return Place("ago", int(ago[1]) * _MS[ago[2]])
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return Place("time", since // dt.timedelta(milliseconds=1)) if since >= dt.timedelta(0) else None
