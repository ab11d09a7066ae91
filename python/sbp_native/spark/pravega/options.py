"""The options of ``format("pravega")``: parsed and judged once, on the driver, before anything is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from .. import values
from ..errors import INVALID_VALUE, SbpOptionError
from ..options import OPTIONS
from ..peer_options import (
    COLUMNS,
    ENDING_OFFSETS,
    INCLUDE_HEADERS,
    READS,
    WORKER_GC_FREEZE,
    instead_of,
    timeout,
)
from ..read_options import Option, ReadOptions, Use, check_twice, of_reads, spelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..places import Places
    from .service import PravegaService

_PLACE: Final = (
    '`earliest`, `latest`, or JSON such as `{"shop/orders/0.#epoch.0": 2048, "shop/pay": -2}` (-2 earliest, -1 latest):'
    " bytes of segments at which an event begins, such as the column `offset` has, or one end for all of a stream"
)

#: Every option, as it is spelled; what is said of those of `format("sbp")` holds here.
PRAVEGA_OPTIONS: Final[dict[str, Option]] = {
    "controller": Option(READS, "required, or `segmentStore`", "`host:port` of a controller"),
    "segmentStore": Option(
        READS,
        "",
        "`host:port` of a segment store, where there is no controller: a stream is the segments `0.#epoch.0`, "
        "`1.#epoch.0` and so on that are there",
    ),
    "path": Option(READS, "", "what `load(...)` gives: the streams"),
    "streams": Option(
        READS,
        "",
        "streams as `scope/stream`, or single segments as `scope/stream/0.#epoch.0`, separated by commas; the same as "
        "`load(...)`. A streaming query goes on with the segments that follow when a stream is scaled",
    ),
    "streamsPattern": Option(
        READS,
        "",
        "a regular expression (of Python's `re`) that must match the whole of `scope/stream`; a streaming query asks "
        "the controller anew before each micro-batch",
    ),
    "startingOffsets": Option(READS, "`earliest`; streaming `latest`", f"where reading starts: {_PLACE}"),
    "endingOffsets": ENDING_OFFSETS,
    "failOnDataLoss": OPTIONS["failOnDataLoss"],
    "onDataLoss": OPTIONS["onDataLoss"],
    "maxBytesPerTrigger": Option(
        frozenset({Use.STREAM_READ}),
        "all there is",
        "bytes in one micro-batch over all segments, each of which goes on by its share of what waits, and by one "
        "event at least: `64m`, or bytes. An event's 8 bytes of head count. What a limited micro-batch has is read "
        "twice, once by the driver, which looks for where events end",
    ),
    "maxPartitions": Option(READS, "256", "tasks at most; a segment is read by one, and one may read several"),
    "columns": COLUMNS,
    "includeHeaders": INCLUDE_HEADERS,
    "token": Option(READS, "", "a delegation token, for servers that ask for one"),
    "timeout": timeout("server"),
    "workerGcFreeze": WORKER_GC_FREEZE,
}

_NO_TIMES: Final = "events of Pravega have no time: begin at a byte or at an end with '{}'"
#: What is said of a write.
ONLY_READS: Final = (
    'format("pravega") only reads: write to streams with format("sbp"), or to Pravega with sbp_native.pravega, in '
    "foreachBatch or foreachPartition"
)
_CALLED: Final = {
    "servers": "controller",
    "kafka.bootstrap.servers": "controller",
    "segment_store": "segmentStore",
    "stream": "streams",
    "subscribe": "streams",
    "assign": "streams",
    "subscribepattern": "streamsPattern",
    "maxoffsetspertrigger": "maxBytesPerTrigger",
    "start_stream_cut": "startingOffsets",
    "end_stream_cut": "endingOffsets",
}
_STREAM: Final = re.compile(r"[^\s,/]{1,255}/[^\s,/]{1,255}")
_SEGMENT: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.#epoch\.(0|[1-9][0-9]{0,9})")


def stream_of(name: str) -> str:
    """The stream of a name that is its own, or that of one of its segments."""
    return "/".join(name.split("/")[:2])


def stream_name(text: str) -> str:
    """A stream, or a segment of one."""
    name = text.strip()
    stream = stream_of(name)
    segment = name.removeprefix(stream)
    numbers = _SEGMENT.fullmatch(segment.removeprefix("/"))
    fits = numbers is not None and all(int(number) < 2**31 for number in numbers.groups())
    if not _STREAM.fullmatch(stream) or (segment and not fits):
        raise SbpOptionError(
            INVALID_VALUE,
            f"{name!r} names neither a stream nor a segment: write 'scope/stream', or 'scope/stream/0.#epoch.0'",
        )
    return name


@dataclass(frozen=True)
class PravegaOptions(ReadOptions):
    """The options of one load."""

    table: ClassVar[Mapping[str, Option]] = PRAVEGA_OPTIONS
    of: ClassVar[str | None] = "pravega"
    cuts_spans: ClassVar[bool] = False
    wanted: ClassVar[str] = "no stream is named: use load('scope/stream'), option 'streams' or option 'streamsPattern'"

    #: Whether `servers` is a segment store, and not a controller.
    is_direct: bool = False
    token: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PravegaOptions:
        """Reads the options as Spark gives them: keys in any case, values as text.

        Raises `SbpOptionError` for an option that does not exist and for a value that cannot be meant.
        """
        given = spelled(options, PRAVEGA_OPTIONS, _instead_of)
        listed = given.get("streams", given.get("path"))
        values.word("columns", given, ("records",))
        common = of_reads(given, stream_name) | {
            "max_offsets_per_trigger": values.size("maxBytesPerTrigger", given),
            # Filters cut spans between events, and where these are, nobody knows.
            "push_filters": False,
        }
        parsed = cls(
            servers=_server(given),
            is_direct="segmentStore" in given,
            token=given.get("token", ""),
            streams=values.parts(listed, stream_name, stream_of) if listed is not None else (),
            streams_pattern=values.pattern("streamsPattern", given),
            columns="records",
            **common,
            given=frozenset(given),
        )
        what = "streams are given twice: use load('scope/a,scope/b') or option"
        check_twice(
            parsed.given,
            (
                ("path", "streams", f"{what} 'streams'"),
                ("path", "streamsPattern", f"{what} 'streamsPattern'"),
                ("streams", "streamsPattern", "streams are given twice: use 'streams' or 'streamsPattern'"),
            ),
        )
        if parsed.is_direct and parsed.streams_pattern is not None:
            raise SbpOptionError(
                INVALID_VALUE, "option 'streamsPattern' needs a controller: a segment store lists no streams"
            )
        for places in (parsed.starting, parsed.ending):
            _check_places(places)
        parsed._check_reading()
        return parsed

    def service(self) -> PravegaService:
        """The controller, or the segment store."""
        from .service import PravegaService

        return PravegaService(self)

    @property
    def where(self) -> str:
        """The server, for messages."""
        return f"{'segment store' if self.is_direct else 'controller'} {self.servers}"


def _server(given: Mapping[str, str]) -> str:
    name = "segmentStore" if "segmentStore" in given else "controller"
    check_twice(
        frozenset(given),
        (("controller", "segmentStore", "there are two servers: give 'controller' or 'segmentStore'"),),
    )
    if not given.get(name, "").strip():
        raise SbpOptionError(INVALID_VALUE, "option 'controller' is missing: give 'host:port', or 'segmentStore'")
    return values.one_address(name, given[name], "name one server, which says where the others are")


def _check_places(places: Places | None) -> None:
    """Refuses distances from the end: where an event begins there, nobody knows."""
    if places is None:
        return
    for place in [places.default, *(each for _, each in places.each)]:
        if place is not None and place.kind == "latest" and place.value:
            raise SbpOptionError(
                INVALID_VALUE,
                f"option {places.option!r} is {str(place)!r}: Pravega counts bytes, and events begin at few of them: "
                "take an end, or the byte of an event that was read",
            )


def _instead_of(key: str) -> str:
    lower = key.lower()
    if "timestamp" in lower and lower.startswith(("starting", "ending")):
        return _NO_TIMES.format("startingOffsets" if lower.startswith("starting") else "endingOffsets")
    if lower.startswith(("tls", "kafka.ssl.", "kafka.sasl.", "kafka.security.")):
        return "TLS and users of Pravega are not supported"
    if lower.startswith("token"):
        return "a delegation token is given as text, with 'token'"
    if lower in ("minpartitions", "maxrecordsperpartition"):
        return "a segment is read by one task"
    if lower == "pushfilters":
        return "filters do not choose what is read of Pravega"
    if "group" in lower:
        return "there are no reader groups; a reader's place is a byte of each segment, kept in Spark's checkpoint"
    return instead_of(key, _CALLED, PRAVEGA_OPTIONS, ONLY_READS)
