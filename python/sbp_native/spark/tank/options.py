"""The options of ``format("tank")``: parsed and judged once, on the driver, before anything is read."""

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

    from .service import TankService

_PLACE: Final = (
    '`earliest`, `latest`, `latest-1000`, or JSON such as `{"orders/0": 23, "payments": -2}` (-2 earliest, -1 latest): '
    "sequence numbers of partitions, or one place for all of a topic"
)

#: Every option, as it is spelled; what is said of those of `format("sbp")` holds here.
TANK_OPTIONS: Final[dict[str, Option]] = {
    "broker": Option(
        READS, "required", "`host:port` of a broker; partitions that it says another one leads are read there"
    ),
    "path": Option(READS, "", "what `load(...)` gives: the topics"),
    "topics": Option(
        READS,
        "",
        "topics, or single partitions as `orders/3`, separated by commas; the same as `load(...)`. A streaming query "
        "finds partitions that a topic is given while it runs",
    ),
    "topicsPattern": Option(
        READS,
        "",
        "a regular expression (of Python's `re`) that must match the whole name of a topic; a streaming query asks "
        "anew before each micro-batch",
    ),
    "startingOffsets": Option(READS, "`earliest`; streaming `latest`", f"where reading starts: {_PLACE}"),
    "startingTimestamp": OPTIONS["startingTimestamp"],
    "startingOffsetsByTimestamp": OPTIONS["startingOffsetsByTimestamp"]._replace(
        meaning="the same per partition or topic, as JSON; wins over `startingOffsets`"
    ),
    "startingOffsetsByTimestampStrategy": OPTIONS["startingOffsetsByTimestampStrategy"],
    "endingOffsets": ENDING_OFFSETS,
    **{
        name: OPTIONS[name]
        for name in (
            "endingTimestamp",
            "endingOffsetsByTimestamp",
            "failOnDataLoss",
            "onDataLoss",
            "maxOffsetsPerTrigger",
            "minOffsetsPerTrigger",
            "maxTriggerDelay",
            "minPartitions",
            "maxRecordsPerPartition",
            "maxPartitions",
        )
    },
    "maxOffsetsPerTrigger": Option(
        frozenset({Use.STREAM_READ}),
        "all there is",
        "numbers in one micro-batch over all partitions, each of which goes on by its share of what waits; messages "
        "are fewer where compaction has left numbers out",
    ),
    "columns": COLUMNS,
    "includeHeaders": INCLUDE_HEADERS,
    "pushFilters": OPTIONS["pushFilters"]._replace(
        meaning=OPTIONS["pushFilters"].meaning.replace("stream_id, offset and timestamp", "stream_id and offset")
    ),
    "timeout": timeout("broker"),
    "workerGcFreeze": WORKER_GC_FREEZE,
}

ONLY_READS: Final = (
    'format("tank") only reads: write to streams with format("sbp"), which clients of TANK read from a server with '
    "--tank-listen; or produce to the broker with sbp_native.tank, in foreachBatch or foreachPartition"
)
_CALLED: Final = {
    "servers": "broker",
    "brokers": "broker",
    "kafka.bootstrap.servers": "broker",
    "streams": "topics",
    "subscribe": "topics",
    "assign": "topics",
    "streamspattern": "topicsPattern",
    "subscribepattern": "topicsPattern",
}
_TOPIC: Final = re.compile(r"[^\s,/]{1,255}")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,4}")


def topic_name(text: str) -> str:
    """A topic, or ``topic/partition``."""
    name = text.strip()
    topic, slash, partition = name.partition("/")
    is_partition = _PARTITION.fullmatch(partition) is not None and int(partition) < 2**16
    if not _TOPIC.fullmatch(topic) or len(topic.encode()) > 255 or (slash and not is_partition):
        raise SbpOptionError(
            INVALID_VALUE, f"{name!r} names neither a topic nor a partition: write 'orders', or 'orders/3'"
        )
    return name


@dataclass(frozen=True)
class TankOptions(ReadOptions):
    """The options of one load."""

    table: ClassVar[Mapping[str, Option]] = TANK_OPTIONS
    of: ClassVar[str | None] = "tank"
    wanted: ClassVar[str] = "no topic is named: use load('orders'), option 'topics' or option 'topicsPattern'"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TankOptions:
        """Reads the options as Spark gives them: keys in any case, values as text.

        Raises `SbpOptionError` for an option that does not exist and for a value that cannot be meant.
        """
        given = spelled(options, TANK_OPTIONS, _instead_of)
        listed = given.get("topics", given.get("path"))
        values.word("columns", given, ("records",))
        parsed = cls(
            servers=_broker(given),
            streams=_topics(listed) if listed is not None else (),
            streams_pattern=values.pattern("topicsPattern", given),
            columns="records",
            **of_reads(given, topic_name),
            given=frozenset(given),
        )
        check_twice(
            parsed.given,
            (
                ("path", "topics", "topics are given twice: use load('a,b') or option 'topics'"),
                ("path", "topicsPattern", "topics are given twice: use load('a,b') or option 'topicsPattern'"),
                ("topics", "topicsPattern", "topics are given twice: use option 'topics' or option 'topicsPattern'"),
            ),
        )
        parsed._check_reading()
        return parsed

    def service(self) -> TankService:
        """The broker."""
        from .service import TankService

        return TankService(self)

    @property
    def where(self) -> str:
        """The broker, for messages."""
        return f"broker {self.servers}"


def _broker(given: Mapping[str, str]) -> str:
    if not given.get("broker", "").strip():
        raise SbpOptionError(INVALID_VALUE, "option 'broker' is missing: give 'host:port'")
    return values.one_address("broker", given["broker"], "name one broker, which says where the others are")


def _topics(text: str) -> tuple[str, ...]:
    """Topics and partitions between commas, none of them twice."""
    return values.parts(text, topic_name, lambda name: name.partition("/")[0])


def _instead_of(key: str) -> str:
    lower = key.lower()
    if lower.startswith(("tls", "token", "kafka.ssl.", "kafka.sasl.", "kafka.security.")):
        return "TANK has neither TLS nor users"
    if lower == "clientname":
        return "brokers are not told who reads"
    if "group" in lower and "id" in lower:
        return "there are no consumer groups; a reader's place is a number, kept in Spark's checkpoint"
    return instead_of(key, _CALLED, TANK_OPTIONS, ONLY_READS)
