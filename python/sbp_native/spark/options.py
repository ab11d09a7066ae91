"""The options of ``format("sbp")``: parsed and judged once, on the driver, before anything is read or written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from .. import Tls
from . import values
from .errors import INVALID_VALUE, UNKNOWN_OPTION, SbpOptionError, nearest
from .places import EARLIEST, LATEST, Place, Places
from .read_options import Columns, Option, ReadOptions, Use, check_twice, does_nothing, of_reads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sbp_service import SbpService

__all__ = ["EARLIEST", "LATEST", "OPTIONS", "Body", "Columns", "Option", "Place", "Places", "SbpOptions", "Use"]

Body = Literal["records", "arrow"]
Delivery = Literal["at-least-once", "exactly-once"]

DEFAULT_MAX_PARTITIONS: Final = 256
DEFAULT_MAX_RECORDS: Final = 1_000_000

_BATCH_READ: Final = frozenset({Use.BATCH_READ})
_STREAM_READ: Final = frozenset({Use.STREAM_READ})
_BATCH_WRITE: Final = frozenset({Use.BATCH_WRITE})
_READS: Final = _BATCH_READ | _STREAM_READ
_STREAM_WRITE: Final = frozenset({Use.STREAM_WRITE})
_WRITES: Final = _BATCH_WRITE | _STREAM_WRITE
_ALL: Final = _READS | _WRITES

_PLACE: Final = (
    '`earliest`, `latest`, `latest-1000`, or JSON such as `{"orders": 23, "17": -2}` (-2 earliest, -1 latest)'
)
_TIME: Final = "ms since 1970, ISO 8601 (UTC unless it names a zone), or a distance from now such as `-10m`"

#: Every option, as it is spelled. The option table of the documentation is made from this one.
OPTIONS: Final[dict[str, Option]] = {
    "servers": Option(
        _ALL,
        "required",
        "`host:port`, several separated by commas; `sbps://` in front of one uses TLS with all",
    ),
    "tlsCa": Option(
        _ALL,
        "those of the machine",
        "a file of certificates, in PEM format: authorities that may have issued the servers'. This and the next two "
        "are names of files, on the driver's machine and on every worker's; what is in them goes nowhere. TLS is "
        "used when any of the four is given",
    ),
    "tlsCert": Option(_ALL, "", "with `tlsKey`: the file of the certificate to show to servers that ask for one"),
    "tlsKey": Option(_ALL, "", "with `tlsCert`: the file of its private key, not encrypted"),
    "tlsServerName": Option(_ALL, "the one connected to", "the name that the servers' certificates have to be for"),
    "tokenFile": Option(
        _ALL,
        "",
        "a file with the token that says who the job is, for servers that ask: on the driver's machine and on every "
        "worker's, and read there for each connection; the token itself goes nowhere",
    ),
    "tokenInClear": Option(
        _ALL,
        "`false`",
        "with `tokenFile`: sends the token without TLS to servers on other machines too, where everybody on the "
        "network is trusted; without it that is an error",
    ),
    "path": Option(_ALL, "", "what `load(...)`, `save(...)` and `start(...)` give: the streams, or the target"),
    "streams": Option(_READS, "", "the streams by name or id, separated by commas; the same as `load(...)`"),
    "streamsPattern": Option(
        _READS,
        "",
        "a regular expression (of Python's `re`) that must match the whole name; a streaming query asks anew before "
        "each micro-batch",
    ),
    "startingOffsets": Option(_READS, "`earliest`; streaming `latest`", f"where reading starts: {_PLACE}"),
    "startingTimestamp": Option(
        _READS,
        "",
        "a batch read takes the records of this time or later, a query starts at the first of them; wins over the two "
        f"others: {_TIME}",
    ),
    "startingOffsetsByTimestamp": Option(
        _READS, "", 'the same per stream, as JSON such as `{"orders": "-10m"}`; wins over `startingOffsets`'
    ),
    "startingOffsetsByTimestampStrategy": Option(
        _READS, "`error`", "what a time means that no record has reached: `error`, or `latest`, the end of the stream"
    ),
    "endingOffsets": Option(
        _BATCH_READ, "`latest`", "where reading ends, exclusive: as `startingOffsets`, but not `earliest`"
    ),
    "endingTimestamp": Option(
        _BATCH_READ,
        "",
        "takes the records before this time, wherever they stand: it is looked for up to the end; wins over the two "
        "others",
    ),
    "endingOffsetsByTimestamp": Option(_BATCH_READ, "", "the same per stream, as JSON; wins over `endingOffsets`"),
    "failOnDataLoss": Option(
        _READS, "`true`", "a read fails when records are gone that it should deliver, and lists the missing intervals"
    ),
    "onDataLoss": Option(
        _READS,
        "`warn`",
        "with `failOnDataLoss=false`: `warn` logs what is missing, `rows` delivers one row per gap, with `gap_end` set",
    ),
    "maxOffsetsPerTrigger": Option(
        _STREAM_READ,
        "all there is",
        "records in one micro-batch over all streams, which advance together by record time",
    ),
    "minOffsetsPerTrigger": Option(_STREAM_READ, "1", "a micro-batch waits until so many records are there"),
    "maxTriggerDelay": Option(
        _STREAM_READ, "`15m`", "how long `minOffsetsPerTrigger` may hold records back: `30s`, `15m`, or milliseconds"
    ),
    "minPartitions": Option(_READS, "", "at least so many tasks, as far as there are records"),
    "maxRecordsPerPartition": Option(_READS, "1000000", "records in one task at most"),
    "maxPartitions": Option(
        _READS, "256", "tasks at most; `minPartitions` and `maxRecordsPerPartition` win over it when they are given"
    ),
    "includeHeaders": Option(
        _ALL,
        "by `columns`",
        "whether a read has the column `headers`: `records` has it unless `false`, `kafka` has it if `true`; "
        "a write takes the column whenever it is there",
    ),
    "columns": Option(_READS, "by the streams' schema", "the set of columns: `records`, `kafka` or `arrow`"),
    "pushFilters": Option(
        _BATCH_READ,
        "`false`; `true` after Spark 4.3",
        "whether filters on stream, stream_id, offset and timestamp choose what is read, while "
        "`spark.sql.python.filterPushdown.enabled` is set. Up to 4.3 Spark reads with the filters of one query in "
        "another on the same DataFrame: set it where one `load` serves one query",
    ),
    "stream": Option(
        _WRITES,
        "the rows' column",
        "the target, by name or id; the same as `save(...)`; wins over columns `stream`, `stream_id` and `topic`",
    ),
    "body": Option(
        _WRITES, "by the target's schema", "`records` (value, key, headers) or `arrow` (the frame's columns)"
    ),
    "createStreams": Option(_WRITES, "`false`", "`true` creates a target that does not exist"),
    "replicas": Option(_WRITES, "1", "with `createStreams=true`: how many servers hold each record of a new target"),
    "acks": Option(
        _WRITES,
        "a majority of `replicas`",
        "with `createStreams=true`: how many of those servers must have stored an append before it is acknowledged",
    ),
    "batchRows": Option(_WRITES, "10000", "rows in one stored batch at most"),
    "batchBytes": Option(_WRITES, "`1m`", "bytes in one stored batch, about: a number, or with `k` or `m`"),
    "compression": Option(_WRITES, "`none`", "`none`, `lz4` or `zstd`"),
    "delivery": Option(_WRITES, "`at-least-once`; streaming `exactly-once`", "`at-least-once` or `exactly-once`"),
    "sinkId": Option(_WRITES, "the target", "names the sink, for a query that writes twice to one target exactly once"),
    "txnAppId": Option(
        _BATCH_WRITE,
        "",
        "with `txnVersion`: a version that was written before is not written again, and fails if it has other rows",
    ),
    "txnVersion": Option(_BATCH_WRITE, "", "with `txnAppId`: a whole number that grows from write to write"),
    "originColumns": Option(
        _WRITES,
        "`error`",
        "what a write of records does with `partition`, `offset` and `timestampType`, which say where a row was read "
        "and cannot be kept: `error`, or `ignore`, they are left out",
    ),
    "sortWithinBatch": Option(
        _WRITES, "`false`", "sorts each task's rows before they are appended, so that a repeated task writes the same"
    ),
    "checkpointLocation": Option(_STREAM_WRITE, "", "Spark's own: the directory of the query's progress"),
    "clientName": Option(_ALL, "version and process id", "what the client calls itself in the server's log"),
    "timeout": Option(_ALL, "`30s`", "what one call may take, retries included: `30s`, `2m`, or seconds"),
    "maxAttempts": Option(_ALL, "1000", "how often a call is tried within `timeout`"),
    "retryBackoffMs": Option(_ALL, "50", "the first bound of the waiting time between two tries; it doubles"),
    "client.*": Option(
        _ALL,
        "",
        "settings of `sbp_native.connect`, in camel case: `client.maxInFlightBytes`, `client.maxInFlightCalls`, "
        "`client.maxPinnedBytes`, `client.heartbeatInterval`, `client.readFrom`",
    ),
    "workerGcFreeze": Option(
        _ALL, "`true`", "a worker takes what it has loaded out of the garbage collector's sight: 40 ms a task less"
    ),
}

#: The settings of `sbp_native.connect` that `client.` reaches, by their spelling here.
_CLIENT: Final = {
    "maxInFlightBytes": "max_in_flight_bytes",
    "maxInFlightCalls": "max_in_flight_calls",
    "maxPinnedBytes": "max_pinned_bytes",
    "heartbeatInterval": "heartbeat_interval",
    "readFrom": "read_from",
}
#: The settings of `sbp_native.Tls`, by the options that reach them.
_TLS: Final = {"tlsCa": "ca", "tlsCert": "cert", "tlsKey": "key", "tlsServerName": "server_name"}
_CLIENT_ELSEWHERE: Final = {"clientid": "clientName", "timeout": "timeout", "servers": "servers"}

#: What Kafka users type, and what to type here.
_FROM_KAFKA: Final = {
    "subscribe": "streams",
    "subscribepattern": "streamsPattern",
    "topic": "stream",
    "kafka.bootstrap.servers": "servers",
    "kafka.client.id": "clientName",
    "kafka.compression.type": "compression",
    "kafkaconsumer.polltimeoutms": "timeout",
    "fetchoffset.numretries": "maxAttempts",
    "fetchoffset.retryintervalms": "retryBackoffMs",
    "endingoffsetsbytimestampstrategy": "endingOffsetsByTimestamp",
}
_NOT_HERE: Final = {
    "assign": "a stream has no partitions; name the streams in 'streams'",
    "maxbytespertrigger": "use 'maxOffsetsPerTrigger'",
    "includemetadata": "typed columns always come with '_stream', '_offset' and '_timestamp'; .schema(...) leaves "
    "out what you do not want",
}


@dataclass(frozen=True)
class SbpOptions(ReadOptions):
    """The options of one load or save. Carries nothing that could not be pickled into every task."""

    table: ClassVar[Mapping[str, Option]] = OPTIONS
    twins: ClassVar[Mapping[str, str]] = {
        "stream": "streams",
        "streams": "stream",
        "body": "columns",
        "columns": "body",
    }
    wanted: ClassVar[str] = "no stream is named: use load('a,b'), option 'streams' or option 'streamsPattern'"

    client_name: str | None = None
    stream: str | None = None
    body: Body | None = None
    create_streams: bool = False
    replicas: int | None = None
    acks: int | None = None
    batch_rows: int = 10_000
    batch_bytes: int = 1 << 20
    compression: Literal["lz4", "zstd"] | None = None
    delivery: Delivery | None = None
    sink_id: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    ignore_origin: bool = False
    sort_within_batch: bool = False
    max_attempts: int | None = None
    retry_backoff: float | None = None
    client: Mapping[str, int | float | str] = field(default_factory=dict)
    #: The keywords of `sbp_native.Tls`: names of files, and never what is in them.
    tls: Mapping[str, str] = field(default_factory=dict)
    #: The name of the file with the token, and never the token.
    token_file: str | None = None
    token_in_clear: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SbpOptions:
        """Reads the options as Spark gives them: keys in any case, values as text.

        Raises `SbpOptionError` for an option that does not exist and for a value that cannot be meant.
        """
        given = _spelled(options)
        listed = given.get("streams", given.get("path"))
        stream = given.get("stream")
        parsed = cls(
            servers=values.addresses(given),
            client_name=values.label("clientName", given),
            streams=values.stream_names(listed) if listed is not None else (),
            streams_pattern=values.pattern("streamsPattern", given),
            columns=cast("Columns | None", values.word("columns", given, ("records", "kafka", "arrow"))),
            stream=values.stream_name(stream) if stream is not None else None,
            body=cast("Body | None", values.word("body", given, ("records", "arrow"))),
            create_streams=values.flag("createStreams", given) is True,
            replicas=values.number("replicas", given, most=127),
            acks=values.number("acks", given, most=127),
            batch_rows=values.number("batchRows", given) or cls.batch_rows,
            batch_bytes=values.size("batchBytes", given) or cls.batch_bytes,
            compression=_compression(given),
            delivery=cast("Delivery | None", values.word("delivery", given, ("at-least-once", "exactly-once"))),
            sink_id=values.label("sinkId", given),
            txn_app_id=values.label("txnAppId", given),
            txn_version=values.number("txnVersion", given, least=0),
            ignore_origin=values.word("originColumns", given, ("error", "ignore")) == "ignore",
            sort_within_batch=values.flag("sortWithinBatch", given) is True,
            max_attempts=values.number("maxAttempts", given),
            retry_backoff=values.duration("retryBackoffMs", given, "ms"),
            client=_client_settings(given),
            tls=_tls(given),
            token_file=_file_name("tokenFile", given),
            token_in_clear=values.flag("tokenInClear", given) is True,
            **of_reads(given),
            given=frozenset("client.*" if name.startswith("client.") else name for name in given),
        )
        parsed._check_together()
        return parsed

    def service(self) -> SbpService:
        """The servers."""
        from .sbp_service import SbpService

        return SbpService(self)

    @property
    def where(self) -> str:
        """The servers, for messages."""
        return f"servers {self.servers}"

    def target(self) -> str | None:
        """The stream that a write goes to; None if the rows name it."""
        if len(self.streams) > 1:
            raise SbpOptionError(INVALID_VALUE, f"a write has one target, save() names {len(self.streams)} streams")
        return self.stream or (self.streams[0] if self.streams else None)

    def connect_settings(self) -> dict[str, Any]:
        """The keywords of `sbp_native.connect` that these options stand for."""
        settings: dict[str, Any] = {"timeout": self.timeout, **self.client}
        for keyword, value in (
            ("client_id", self.client_name),
            ("max_attempts", min(self.max_attempts, 2**32 - 1) if self.max_attempts else None),
            ("retry_backoff", self.retry_backoff),
        ):
            if value is not None:
                settings[keyword] = value
        if self.tls:
            settings["tls"] = Tls(**self.tls)
        if self.token_file is not None:
            settings["token"] = Path(self.token_file)
            settings["token_in_clear"] = self.token_in_clear
        return settings

    def _check_together(self) -> None:
        """Refuses options that contradict each other, or do nothing without another."""
        given = self.given
        check_twice(
            given,
            (
                ("path", "streams", "streams are given twice: use load('a,b') or option 'streams'"),
                ("path", "stream", "the stream is given twice: use save('a') or option 'stream'"),
                ("path", "streamsPattern", "streams are given twice: use load('a,b') or option 'streamsPattern'"),
                (
                    "streams",
                    "streamsPattern",
                    "streams are given twice: use option 'streams' or option 'streamsPattern'",
                ),
            ),
        )
        for one, other in (
            ("txnAppId", "txnVersion"),
            ("txnVersion", "txnAppId"),
            ("tlsCert", "tlsKey"),
            ("tlsKey", "tlsCert"),
            ("tokenInClear", "tokenFile"),
            ("replicas", "createStreams"),
            ("acks", "createStreams"),
        ):
            if one in given and other not in given:
                raise does_nothing(one, other)
        if self.acks is not None and self.acks > (self.replicas or 1):
            raise SbpOptionError(
                INVALID_VALUE,
                f"{self.acks} servers cannot acknowledge what {self.replicas or 1} hold: 'acks' is 1 to 'replicas'"
                f"{'' if self.replicas else ', which is 1 when it is not given'}",
            )
        if self.tls and "sbp://" in self.servers:
            raise SbpOptionError(
                INVALID_VALUE,
                "option 'servers' says sbp://, which is without TLS: write sbps://, or leave out 'tls...'",
            )
        self._check_reading()


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their own spelling; `client.` ones with the keyword of `connect` behind the dot."""
    spelled = {name.lower(): name for name in OPTIONS if name != "client.*"}
    found: dict[str, str] = {}
    for key in options:
        lower = key.lower()
        name = _client_name(key) if lower.startswith("client.") else spelled.get(lower)
        if name is None:
            raise SbpOptionError(UNKNOWN_OPTION, f"there is no option {key!r}: {_instead_of(key)}")
        found[name] = str(options[key])
    return found


def _client_name(key: str) -> str:
    setting = key[len("client.") :].lower().replace("_", "")
    found = next((name for name in _CLIENT if name.lower() == setting), None)
    if found is None:
        elsewhere = _CLIENT_ELSEWHERE.get(setting)
        hint = f"it is the option {elsewhere!r}" if elsewhere else nearest(setting, _CLIENT)
        raise SbpOptionError(UNKNOWN_OPTION, f"there is no client setting {key!r}: {hint}")
    return f"client.{found}"


def _client_settings(given: Mapping[str, str]) -> dict[str, int | float | str]:
    settings: dict[str, int | float | str] = {}
    for name in sorted(given):
        if name.startswith("client."):
            keyword = _CLIENT[name.removeprefix("client.")]
            value: float | str | None
            if keyword == "heartbeat_interval":
                value = values.duration(name, given, "s")
            elif keyword == "read_from":
                value = values.word(name, given, ("primary", "any"))
            else:
                value = values.size(name, given) if keyword.endswith("bytes") else values.number(name, given)
            settings[keyword] = cast("float | str", value)
    return settings


def _tls(given: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, keyword in _TLS.items():
        value = _file_name(name, given)
        if value is not None:
            settings[keyword] = value
    return settings


def _file_name(name: str, given: Mapping[str, str]) -> str | None:
    if name not in given:
        return None
    value = given[name].strip()
    if not value:
        raise values.refuse(name, given[name], "it must not be empty")
    return value


def _compression(given: Mapping[str, str]) -> Literal["lz4", "zstd"] | None:
    word = values.word("compression", given, ("none", "lz4", "zstd"))
    return None if word in (None, "none") else cast("Literal['lz4', 'zstd']", word)


def _instead_of(key: str) -> str:
    lower = key.lower()
    if lower in _FROM_KAFKA:
        return f"it is called {_FROM_KAFKA[lower]!r} here"
    if lower in _NOT_HERE:
        return _NOT_HERE[lower]
    if "group" in lower and "id" in lower:
        return "there are no consumer groups; a reader's place is an offset, kept in Spark's checkpoint"
    if lower.startswith(("tls.", "kafka.ssl.", "kafka.security.")):
        return "TLS is 'sbps://' in front of a server, and files in PEM format: " + ", ".join(
            f"'{name}'" for name in _TLS
        )
    if lower == "token" or lower.startswith("kafka.sasl."):
        return "a token is given as the name of a file, in 'tokenFile', because others see the options of a job"
    if lower.startswith("kafka."):
        return "it belongs to Kafka's client; settings of ours are " + ", ".join(f"'client.{name}'" for name in _CLIENT)
    return nearest(key, OPTIONS)
