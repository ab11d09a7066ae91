"""The options of ``format("sbp")``: parsed and judged once, on the driver, before anything is read or written."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, cast

from .errors import INVALID_VALUE, MISPLACED_OPTION, UNKNOWN_OPTION, SbpOptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

Columns = Literal["records", "kafka", "arrow"]
Body = Literal["records", "arrow"]

EARLIEST: Final = -2
LATEST: Final = -1
DEFAULT_TIMEOUT: Final = 30.0

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9._/-]{0,254}")
_ID: Final = re.compile(r"[1-9][0-9]{0,18}")


class Use(Enum):
    """What a load or a save is for; the value is how a message calls it."""

    BATCH_READ = "a batch read"
    STREAM_READ = "a streaming read"
    BATCH_WRITE = "a batch write"


_READS: Final = frozenset({Use.BATCH_READ, Use.STREAM_READ})
_WRITES: Final = frozenset({Use.BATCH_WRITE})

#: Every option, as it is spelled, and what it is good for.
OPTIONS: Final[dict[str, frozenset[Use]]] = {
    "path": _READS | _WRITES,
    "servers": _READS | _WRITES,
    "timeout": _READS | _WRITES,
    "streams": _READS,
    "startingOffsets": _READS,
    "endingOffsets": frozenset({Use.BATCH_READ}),
    "maxOffsetsPerTrigger": frozenset({Use.STREAM_READ}),
    "columns": _READS,
    "stream": _WRITES,
    "createStreams": _WRITES,
    "body": _WRITES,
}

#: What Kafka users type, and what to type here.
_FROM_KAFKA: Final = {
    "subscribe": "streams",
    "assign": "streams",
    "topic": "stream",
    "kafka.bootstrap.servers": "servers",
}


@dataclass(frozen=True)
class Places:
    """Where reading starts or ends: one word for every stream, or a place per stream.

    `default` is [`EARLIEST`] or [`LATEST`]; `each` maps names or decimal ids to an offset or one of the two.
    """

    default: int | None
    each: tuple[tuple[str, int], ...] = ()

    def of(self, name: str, stream_id: int) -> int | None:
        """The place of one stream, None if `each` leaves it out."""
        if self.default is not None:
            return self.default
        return next((offset for key, offset in self.each if key in (name, str(stream_id))), None)


@dataclass(frozen=True)
class SbpOptions:
    """The options of one load or save. Carries nothing that could not be pickled into every task."""

    servers: str
    streams: tuple[str, ...] = ()
    starting: Places | None = None
    ending: Places | None = None
    max_offsets_per_trigger: int | None = None
    columns: Columns | None = None
    stream: str | None = None
    create_streams: bool = False
    body: Body | None = None
    timeout: float = DEFAULT_TIMEOUT
    given: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SbpOptions:
        """Reads the options as Spark gives them: keys in any case, values as text.

        Raises `SbpOptionError` for an option that does not exist and for a value that cannot be meant.
        """
        spelled = {name.lower(): name for name in OPTIONS}
        values: dict[str, str] = {}
        for key in options:
            name = spelled.get(key.lower())
            if name is None:
                raise SbpOptionError(UNKNOWN_OPTION, f"there is no option {key!r}: {_instead_of(key)}")
            values[name] = str(options[key])

        servers = values.get("servers", "").strip()
        if not servers:
            raise SbpOptionError(
                INVALID_VALUE, "option 'servers' is missing: give 'host:port' or 'host:port,host:port'"
            )
        for address in servers.split(","):
            _check_address(address.strip())
        if "path" in values and "streams" in values:
            raise SbpOptionError(
                INVALID_VALUE, "streams are given twice: use load('a,b') or option 'streams', not both"
            )
        if "path" in values and "stream" in values:
            raise SbpOptionError(INVALID_VALUE, "the stream is given twice: use save('a') or option 'stream', not both")
        listed = values.get("streams", values.get("path"))
        stream = values.get("stream")
        return cls(
            servers=",".join(address.strip() for address in servers.split(",")),
            streams=_names(listed) if listed is not None else (),
            starting=_places("startingOffsets", values),
            ending=_places("endingOffsets", values),
            max_offsets_per_trigger=_positive("maxOffsetsPerTrigger", values),
            columns=cast("Columns | None", _one_of("columns", values, ("records", "kafka", "arrow"))),
            stream=_name(stream) if stream is not None else None,
            create_streams=_one_of("createStreams", values, ("true", "false")) == "true",
            body=cast("Body | None", _one_of("body", values, ("records", "arrow"))),
            timeout=_seconds("timeout", values),
            given=frozenset(values),
        )

    def refuse_all_but(self, *uses: Use) -> None:
        """Raises `SbpOptionError` for the first option given that serves none of `uses`."""
        for name in sorted(self.given):
            if not OPTIONS[name] & set(uses):
                good_for = " or ".join(use.value for use in Use if use in OPTIONS[name])
                here = " or ".join(use.value for use in uses)
                raise SbpOptionError(
                    MISPLACED_OPTION,
                    f"option {name!r} is for {good_for}, this is {here}: leave it out{_twin(name, uses)}",
                )

    def for_read(self, use: Use) -> SbpOptions:
        """These options, found fit for one kind of read."""
        self.refuse_all_but(use)
        if not self.streams:
            raise SbpOptionError(INVALID_VALUE, "no stream is named: use load('a,b') or option 'streams'")
        if use is Use.BATCH_READ and self.starting is not None:
            _refuse(self.starting, LATEST, "startingOffsets", "a batch read that starts at the end reads nothing")
        return self

    def target(self) -> str | None:
        """The stream that a write goes to; None if the rows name it."""
        if len(self.streams) > 1:
            raise SbpOptionError(INVALID_VALUE, f"a write has one target, save() names {len(self.streams)} streams")
        return self.stream or (self.streams[0] if self.streams else None)


def _instead_of(key: str) -> str:
    lower = key.lower()
    if lower in _FROM_KAFKA:
        return f"it is called {_FROM_KAFKA[lower]!r} here"
    if "group" in lower and "id" in lower:
        return "there are no consumer groups; a reader's place is an offset, kept in Spark's checkpoint"
    return nearest(key, OPTIONS)


def _twin(name: str, uses: tuple[Use, ...]) -> str:
    twins = {"stream": "streams", "streams": "stream", "body": "columns", "columns": "body"}
    twin = twins.get(name)
    return f", or use {twin!r}" if twin and OPTIONS[twin] & set(uses) else ""


def _check_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SbpOptionError(INVALID_VALUE, f"option 'servers' holds {address!r}, which is not 'host:port'")


def _name(text: str) -> str:
    name = text.strip()
    if not _NAME.fullmatch(name) and not _ID.fullmatch(name):
        raise SbpOptionError(
            INVALID_VALUE,
            f"{name!r} names no stream: use its id, or its name: letters, digits and ._/-, first a letter or '_'",
        )
    return name


def _names(text: str) -> tuple[str, ...]:
    names = tuple(_name(part) for part in text.split(","))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SbpOptionError(INVALID_VALUE, f"stream {twice!r} is listed twice: name it once")
    return names


def _one_of(name: str, values: Mapping[str, str], allowed: tuple[str, ...]) -> str | None:
    text = values.get(name)
    if text is None:
        return None
    if text.strip().lower() not in allowed:
        raise SbpOptionError(INVALID_VALUE, f"option {name!r} is {text!r}: {nearest(text, allowed)}")
    return text.strip().lower()


def _positive(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < number < 2**63:
        raise SbpOptionError(INVALID_VALUE, f"option {name!r} is {text!r}: it must be a whole number above 0")
    return number


def _seconds(name: str, values: Mapping[str, str]) -> float:
    text = values.get(name)
    if text is None:
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SbpOptionError(INVALID_VALUE, f"option {name!r} is {text!r}: it must be a number of seconds above 0")
    return seconds


def _refuse(places: Places, offset: int, name: str, why: str) -> None:
    if places.default == offset or any(place == offset for _, place in places.each):
        word = "earliest" if offset == EARLIEST else "latest"
        raise SbpOptionError(INVALID_VALUE, f"option {name!r} cannot be '{word}' ({offset}): {why}")


def _places(name: str, values: Mapping[str, str]) -> Places | None:
    text = values.get(name)
    if text is None:
        return None
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        places = Places(EARLIEST if word == "earliest" else LATEST)
    else:
        places = Places(None, _places_of_json(name, text))
    if name == "endingOffsets":
        _refuse(places, EARLIEST, name, "nothing lies before the earliest record")
    return places


def _places_of_json(name: str, text: str) -> tuple[tuple[str, int], ...]:
    example = "'earliest', 'latest' or JSON such as {\"orders\": 23, \"17\": -2} (-2 earliest, -1 latest)"
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise SbpOptionError(INVALID_VALUE, f"option {name!r} is {text!r}: it must be {example}") from error
    if not isinstance(parsed, dict) or not parsed:
        raise SbpOptionError(INVALID_VALUE, f"option {name!r} is {text!r}: it must be {example}")
    for stream, offset in parsed.items():
        _name(stream)
        if isinstance(offset, bool) or not isinstance(offset, int) or not EARLIEST <= offset < 2**63:
            raise SbpOptionError(
                INVALID_VALUE, f"option {name!r} gives stream {stream!r} the offset {offset!r}: it must be {example}"
            )
    return tuple(sorted(parsed.items()))
