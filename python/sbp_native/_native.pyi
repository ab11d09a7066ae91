"""The extension module. Use :mod:`sbp_native`, which re-exports everything public."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from types import GenericAlias
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, final, overload
from uuid import UUID

from typing_extensions import Buffer

from ._keyed import AsyncKeyedWriter, KeyedWriter
from .errors import SbpError

_T = TypeVar("_T")

# pyarrow is not needed for typing either; it has no type information of its own.
_PaSchema: TypeAlias = Any
_PaRecordBatch: TypeAlias = Any

class _NumpyArray(Protocol):
    # Arrays are buffers; type checkers learn that from numpy only where the interpreter is 3.12 or newer.
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _ArrowSchema(Protocol):
    def __arrow_c_schema__(self) -> object: ...

# What can be appended: one record, several, or the rows of a table. `None` is a null value, which goes with a key.
_Data: TypeAlias = Buffer | _NumpyArray | Sequence[Buffer | None] | _ArrowArray | _ArrowStream | None
# A place in a stream: an offset; "earliest" or "latest", also with a number of records ("latest-1000"); the first
# record that is as new as a time, or as a time so long ago.
_Position: TypeAlias = int | str | datetime | timedelta | Relative
# A time: milliseconds since 1970 (UTC), or a datetime with a zone.
_Time: TypeAlias = int | datetime
# A stream: its name, its id, or what was returned for it.
_StreamKey: TypeAlias = str | int | Stream | AsyncStream | StreamInfo
_Streams: TypeAlias = _StreamKey | Iterable[_StreamKey]
_Compression: TypeAlias = Literal["none", "lz4", "zstd"]
_Headers: TypeAlias = Mapping[str, Buffer | None] | Sequence[tuple[str, Buffer | None]]
# A place in a partition of a TANK topic: a sequence number; "earliest" or "latest", also with a number of messages.
_TankPlace: TypeAlias = int | str | Relative
# Where reading of one may begin: also at a time, or an age.
_TankStart: TypeAlias = _TankPlace | datetime | timedelta
# A place in a segment of a Pravega stream: a byte; "earliest" or "latest".
_PravegaPlace: TypeAlias = int | Literal["earliest", "latest"]
# A segment of a stream: its name, or its number in the stream.
_Segment: TypeAlias = str | int
_Retention: TypeAlias = timedelta | float | Literal["forever"]

__all__ = [
    "Ack",
    "AsyncBatches",
    "AsyncBroker",
    "AsyncClient",
    "AsyncCursor",
    "AsyncKeyed",
    "AsyncPravega",
    "AsyncPravegaWriter",
    "AsyncRpc",
    "AsyncRpcStream",
    "AsyncStream",
    "AsyncVerb",
    "AsyncWriter",
    "Batch",
    "BatchAppender",
    "Batches",
    "Bridge",
    "Broker",
    "Client",
    "ClusterInfo",
    "Histogram",
    "ClusterMember",
    "Cursor",
    "DeliveryReport",
    "HeldFrame",
    "HeldFrames",
    "Keyed",
    "Operation",
    "PartitionInfo",
    "PeerSpanReader",
    "Payload",
    "Positions",
    "Pravega",
    "PravegaWriter",
    "Proxy",
    "ProxyRule",
    "RangeInfo",
    "RangeServerInfo",
    "Record",
    "Relative",
    "Rpc",
    "RpcCall",
    "RpcServer",
    "RpcStream",
    "SegmentInfo",
    "Server",
    "SpanReader",
    "Stream",
    "StreamInfo",
    "Tls",
    "TopicInfo",
    "Verb",
    "Writer",
    "__version__",
    "after_fork_in_child",
    "aio_connect",
    "connect",
    "digest_rows",
    "error_codes",
    "io_threads_attach",
    "io_threads_drop",
    "pack_varints",
    "pravega_aio_connect",
    "pravega_bounds",
    "pravega_connect",
    "pravega_event_end",
    "pravega_segments",
    "pravega_spans",
    "run_cli",
    "seastar_aio_connect",
    "seastar_connect",
    "seastar_result",
    "shut_down",
    "stop_all",
    "stream_bounds",
    "stream_list",
    "stream_offsets_at",
    "tank_aio_connect",
    "tank_bounds",
    "tank_connect",
    "tank_numbers_at",
    "tank_spans",
    "unpack_varints",
    "warn_unflushed",
]

__version__: str

@final
class Ack:
    """One append is stored, and where. With ``durability == "fsync"`` it survives a loss of power."""

    @property
    def stream(self) -> str:
        """The stream's name."""
    @property
    def stream_id(self) -> int:
        """The stream's id."""
    @property
    def base_offset(self) -> int:
        """The first record's offset; -1 for a batch that was stored before, so long ago that nobody knows where."""
    @property
    def last_offset(self) -> int:
        """The last record's offset; -1 where ``base_offset`` is."""
    @property
    def append_time(self) -> int:
        """The server's clock when it answered: milliseconds since 1970, UTC."""
    @property
    def durability(self) -> Literal["fsync", "none", "unknown"]:
        """What the acknowledgement promises."""
    @property
    def duplicate(self) -> bool:
        """Whether the server had this very batch already and answered with its old place."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Payload:
    """Received bytes: a read-only view of the frame they came in, which it keeps in memory.

    ``memoryview(payload)``, ``bytes(payload)`` and everything that takes a buffer work. Payloads and slices of less
    than 16 KiB are copies, so that a few bytes do not keep a frame of megabytes.
    """

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> Payload: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    # Interpreters before 3.12 have the protocol and not its names; type checkers know it by the name.
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Record:
    """One record of a stream."""

    @property
    def offset(self) -> int:
        """Its place in the stream."""
    @property
    def timestamp(self) -> int:
        """Its time: microseconds since 1970, UTC."""
    @property
    def key(self) -> bytes | None:
        """Its key, if it has one."""
    @property
    def value(self) -> bytes | None:
        """Its value; ``None`` where the writer wrote a null."""
    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Its headers, in the order written."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Positions:
    """What a stream holds: records from ``earliest`` up to, but without, ``latest``."""

    @property
    def earliest(self) -> int:
        """The first offset that can be read."""
    @property
    def latest(self) -> int:
        """The offset that the next record will get."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class StreamInfo:
    """A stream as the server describes it."""

    @property
    def id(self) -> int:
        """Its number: given by the server, never used again."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def schema_ipc(self) -> bytes | None:
        """Its schema as an Arrow IPC message; ``None`` for a stream of plain records."""
    @property
    def schema(self) -> _PaSchema | None:
        """Its schema. Imports pyarrow."""
    @property
    def retention(self) -> timedelta | None:
        """How long records are kept; ``None``: for ever."""
    @property
    def retention_bytes(self) -> int | None:
        """How many bytes are kept; ``None``: all."""
    @property
    def replicas(self) -> int:
        """How many servers hold each of its ranges."""
    @property
    def acks(self) -> int:
        """How many of them must have stored an append before it is acknowledged."""
    @property
    def properties(self) -> dict[str, str]:
        """What else was noted about it."""
    @property
    def created_at(self) -> int:
        """When it was created: milliseconds since 1970, UTC, by the server's clock."""
    @property
    def identity(self) -> str | None:
        """What tells it from every other stream: 32 hexadecimal digits, drawn at random when it was created.

        It is the stream's for as long as the stream is there, and never another's. A server that was set up anew gives
        numbers and names a second time, so whoever keeps an offset for later keeps the identity too, and compares.
        ``None``: the server tells none; then nothing can be compared.
        """
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class RangeInfo:
    """A range: a run of offsets of one stream that one set of servers holds. Only a stream's last range is open."""

    @property
    def stream_id(self) -> int:
        """The stream's id."""
    @property
    def index(self) -> int:
        """The range's place within the stream, from 0."""
    @property
    def start_offset(self) -> int:
        """The first offset of the range."""
    @property
    def end_offset(self) -> int | None:
        """The offset behind its last record; ``None`` while it is open."""
    @property
    def is_open(self) -> bool:
        """Whether it still takes appends."""
    @property
    def epoch(self) -> int | None:
        """The range's epoch, where the server says it."""
    @property
    def servers(self) -> list[str]:
        """The servers that hold it, as ``host:port``, the one that takes its appends first."""
    @property
    def replicas(self) -> int | None:
        """How many servers its stream wanted for it, where the server says it; there may be fewer in ``servers``."""
    @property
    def acks(self) -> int | None:
        """How many of the servers must have stored an append before it is acknowledged, where the server says it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class ClusterMember:
    """One of the servers that place streams."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def address(self) -> str:
        """Where clients reach it: ``host:port``."""
    @property
    def is_leader(self) -> bool:
        """Whether it decides, as far as the server that was asked knows."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class ClusterInfo:
    """The servers that place streams."""

    @property
    def id(self) -> str | None:
        """The id of the cluster: 32 hexadecimal digits. None: the server did not say it."""
    @property
    def members(self) -> list[ClusterMember]:
        """All of them."""
    @property
    def leader(self) -> ClusterMember | None:
        """The one that decides, if the server that was asked knows it."""
    @property
    def range_servers(self) -> list[RangeServerInfo] | None:
        """The range servers as the one that decides sees them; None: nobody leads at the moment."""
    @property
    def copies_under_way(self) -> int:
        """How many copies of sealed ranges are being made."""
    @property
    def ranges_waiting_for_a_copy(self) -> int:
        """How many sealed ranges wait for one."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class RangeServerInfo:
    """A range server as the placement driver sees it."""

    @property
    def server_id(self) -> int | None:
        """Its number."""
    @property
    def address(self) -> str:
        """Where it is dialled, as ``host:port``."""
    @property
    def zone(self) -> str | None:
        """Where it stands, as ``sbp serve --zone`` says: copies go to different zones. None: it does not say."""
    @property
    def is_up(self) -> bool:
        """Whether it reports."""
    @property
    def silent_for(self) -> float | None:
        """For how many seconds nothing was heard of it; None: it was never heard."""
    @property
    def is_draining(self) -> bool:
        """Whether it is to be emptied: ``sbp cluster drain``."""
    @property
    def is_drained(self) -> bool:
        """Whether it is to be emptied and holds nothing that counts any more: it may be removed."""
    @property
    def open_ranges(self) -> int:
        """The open ranges whose appends it takes."""
    @property
    def followed_ranges(self) -> int:
        """The open ranges in which it follows another server."""
    @property
    def sealed_ranges(self) -> int:
        """The sealed ranges of which its copy counts, whole or not."""
    @property
    def incomplete_ranges(self) -> int:
        """Those of them of which it may lack some."""
    @property
    def missing_replicas(self) -> int:
        """The open ranges whose appends it takes that are on fewer servers than their stream is to have replicas."""
    @property
    def free_bytes(self) -> int | None:
        """The room on its disk; None: it has not reported."""
    @property
    def withheld_ranges(self) -> int:
        """The ranges that it keeps and does not serve, because the placement driver does not know their streams."""
    @property
    def withheld_bytes(self) -> int:
        """The bytes of the records in them."""
    @property
    def stuck(self) -> list[tuple[int, int, str]]:
        """Of a server that is to be emptied: the first ranges that cannot leave it, as stream, index and reason."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Histogram:
    """How long things took, counted by size: what :meth:`Client.metrics` tells. Durations are in seconds.

    >>> counted = client.create_stream("counted")
    >>> before = client.metrics()["append_seconds"]
    >>> ack = counted.append(b"one")
    >>> took = client.metrics()["append_seconds"].since(before)
    >>> took.count, took.sum < 10
    (1, True)
    """

    @property
    def count(self) -> int:
        """How many were counted."""
    @property
    def sum(self) -> float:
        """All of them together."""
    @property
    def buckets(self) -> list[tuple[float, int]]:
        """How many took at most so long, for bounds from 50 microseconds to 10 seconds, and for ``inf``."""
    def quantile(self, share: float) -> float | None:
        """What this share of them did not exceed, from 0 to 1, estimated within its bucket; ``None`` if there are none.

        Of those above 10 seconds only that is known.
        """
    def since(self, before: Histogram) -> Histogram:
        """What was counted since ``before`` was taken of the same client."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Tls:
    """How a client, or a server, uses TLS: names of files in PEM format. They are read again when they change.

    A client trusts the authorities in ``ca``, or without it those that the machine trusts. ``cert`` and ``key`` are the
    certificate that it shows to servers that ask for one, and its private key, not encrypted. ``server_name`` is the
    name that the server's certificate has to be for, if it is not the one that is connected to.

    A server (``Server(tls=...)``) shows ``cert``; with ``ca`` it asks every client for a certificate of one of those
    authorities.

    A pickle of it has the names of the files, never what is in them.

    >>> tls = sbp.Tls(ca="ca.crt", cert="client.crt", key="client.key")
    >>> tls
    Tls(ca="ca.crt", cert="client.crt", key="client.key")
    """

    def __new__(
        cls,
        *,
        ca: str | PathLike[str] | None = None,
        cert: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        server_name: str | None = None,
    ) -> Self:
        """The files are looked for when a client or a server is made. ``ValueError`` for ``cert`` without ``key``."""
    @property
    def ca(self) -> str | None:
        """The file with the authorities that are trusted."""
    @property
    def cert(self) -> str | None:
        """The file with the certificate that is shown."""
    @property
    def key(self) -> str | None:
        """The file with its private key."""
    @property
    def server_name(self) -> str | None:
        """The name that a server's certificate has to be for."""
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Relative:
    """A place counted from an end of a stream: so many records behind the earliest, or before the end.

    What lies outside of the stream means its end on that side. ``Relative("latest", -10)`` is ``"latest-10"``.

    >>> ack = client.create_stream("orders").append([b"1", b"2", b"3"])
    >>> client.fetch("orders", sbp.Relative("latest", -1))[0].base_offset
    2
    """

    def __new__(cls, anchor: Literal["earliest", "latest"], records: int) -> Self:
        """``records`` is 0 or more from ``"earliest"``, and 0 or less from ``"latest"``; else ``ValueError``."""
    @property
    def anchor(self) -> Literal["earliest", "latest"]:
        """The end it is counted from."""
    @property
    def records(self) -> int:
        """How many records behind it; negative: before it."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Batch:
    """A run of records of one stream, as they were appended together.

    The columns and payloads of a large uncompressed batch are views of the frame it was received in, and keep that in
    memory: ``client.stats()["bytes_pinned"]`` says how much is kept. Batches of up to 16 KiB are copied out of their
    frames, and so is every batch while the frames kept come to ``max_pinned_bytes`` of the client.

    ``len(batch)`` is the number of records; iterating over a batch gives them one by one.
    """

    @property
    def stream(self) -> str:
        """The stream's name."""
    @property
    def stream_id(self) -> int:
        """The stream's id."""
    @property
    def base_offset(self) -> int:
        """The first record's offset."""
    @property
    def last_offset(self) -> int:
        """The last record's offset."""
    @property
    def offsets(self) -> Sequence[int]:
        """The records' offsets: a ``range``, or a tuple where they have gaps, as those of other systems may have."""
    @property
    def timestamps(self) -> list[int]:
        """The records' times: microseconds since 1970, UTC."""
    @property
    def payloads(self) -> list[Payload | None]:
        """The records' values as views, ``None`` for nulls: those of 16 KiB and more are not copied.

        Raises ``TypeError`` for a stream with a schema, whose records are rows; so do the next four.
        """
    @property
    def values(self) -> list[bytes | None]:
        """The records' values, copied out."""
    @property
    def keys(self) -> list[bytes | None]:
        """The records' keys; ``None`` for those that have none."""
    @property
    def headers(self) -> list[list[tuple[str, bytes | None]]]:
        """The records' headers, in the order written."""
    def records(self) -> list[Record]:
        """The records, copied out."""
    def to_arrow(self) -> _PaRecordBatch:
        """The records as columns: the stream's own, or ``offset, timestamp, key, value, headers``. Imports pyarrow.

        Raises ``InvalidRequestError``, with stream and offset, for a time outside the years 1 to 9999, which columns
        cannot show. No append takes such a time; batches of earlier versions and of other clients may hold one.
        """
    def to_pandas(self) -> Any:
        """The same as a data frame. Imports pyarrow and pandas."""
    def to_polars(self) -> Any:
        """The same as a polars data frame. Imports polars; does not need pyarrow."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The columns as Arrow capsules, for any library that takes them."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The same as a stream of one record batch, for libraries that take streams."""
    def __arrow_c_schema__(self) -> object:
        """The columns' schema as an Arrow capsule."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def _repr_html_(self) -> str:
        """The first rows as a table, for notebooks."""
    @property
    def _received(self) -> tuple[int, int]: ...

@final
class Operation(asyncio.Future[_T]):
    """A call that is on its way: what every asynchronous call returns.

    It has the whole protocol of an asyncio future, so that ``await``, ``gather``, ``wait``, ``wait_for`` and ``shield``
    take it as it is. ``create_task``, of a loop or a ``TaskGroup``, takes coroutines alone, or raises ``TypeError``;
    the call goes on all the same, because it was begun when it was made. Give it a coroutine that awaits the call.
    Cancelling gives up on the answer; an append that was sent may still be stored.
    """

    # Type checkers are told that it is a future, because that is how one is used; it does not derive from the class.

    @classmethod
    def __class_getitem__(cls, item: object) -> GenericAlias: ...
    def __await__(self) -> Generator[Any, None, _T]: ...
    def __iter__(self) -> Generator[Any, None, _T]: ...
    def __next__(self) -> Self: ...
    def send(self, _value: object, /) -> Self:
        """Resumes the operation, as ``await`` does."""
    def done(self) -> bool:
        """Whether it has an outcome or was cancelled."""
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
    def cancel(self, msg: object | None = None) -> bool:
        """Gives up on the answer; ``False`` if the outcome is already here."""
    def result(self) -> _T:
        """The result, or what went wrong is raised. ``InvalidStateError`` before it is done."""
    def exception(self) -> BaseException | None:
        """What went wrong, if anything. ``InvalidStateError`` before it is done."""
    def add_done_callback(
        self, callback: Callable[[Self], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        """Has ``callback`` called with the operation when it is done."""
    def remove_done_callback(self, callback: Callable[[Self], object], /) -> int:
        """Removes all instances of a callback; returns how many there were."""
    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop the operation belongs to."""
    _asyncio_future_blocking: bool
    @property
    def _cancel_message(self) -> object | None: ...
    def _make_cancelled_error(self) -> BaseException: ...
    def _failure(self) -> BaseException | None: ...

@final
class Server:
    """A durable server inside this process, on threads of its own. Use it in a ``with`` or ``async with`` statement, or
    ``close`` it.

    It is started when it is made, except on the thread of a running event loop: there it waits until it is entered or
    used, because recovering a log takes time; ``async with`` starts and closes it without blocking the loop.
    """

    def __new__(
        cls,
        data_dir: str | PathLike[str] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        durability: Literal["fsync", "none"] = "fsync",
        insecure_listen: bool = False,
        max_connections: int | None = None,
        retention_interval: float | None = None,
        shutdown_grace: float | None = None,
        tls: Tls | None = None,
        plain_listen: str | None = None,
        auth: str | PathLike[str] | None = None,
        jwks: str | PathLike[str] | None = None,
        jwt_issuer: str | None = None,
        jwt_audience: str | None = None,
        audit: str | PathLike[str] | None = None,
        http: str | None = None,
        http_hosts: Sequence[str] | None = None,
        metrics_per_stream: bool = False,
        max_unauthenticated_connections: int | None = None,
        jwks_ca: str | PathLike[str] | None = None,
        role: Literal["both", "placement-driver", "range-server"] = "both",
        placement_driver: str | Sequence[str] | None = None,
        tank: str | None = None,
        tank_token_file: str | PathLike[str] | None = None,
        pravega: str | None = None,
        pravega_token_file: str | PathLike[str] | None = None,
        seastar: str | None = None,
        seastar_token_file: str | PathLike[str] | None = None,
    ) -> Self:
        """Opens ``data_dir`` (``None``: a temporary directory), recovers what is in it, and listens.

        ``advertise`` is the ``host:port`` that clients are told, if it is not the one listened on.
        ``durability="none"`` acknowledges before the disk has the records. ``retention_interval`` is how often, in
        seconds, retention is looked at (30); ``shutdown_grace`` how long, in seconds, closing waits for calls that were
        started (10).

        With ``tls`` the server speaks TLS and nothing else: ``Tls(cert=, key=)``, and with ``ca=`` every client has to
        show a certificate that one of those authorities has issued. The files are read again when they change.
        ``plain_listen`` is a second ``host:port``, on loopback, without TLS.

        ``http`` is the ``host:port`` (port 0: any) at which the server answers HTTP: a status page at ``/``,
        ``/status.json``, ``/metrics`` for Prometheus, ``/health/live`` and ``/health/ready``. With ``https://`` in
        front of it TLS is spoken there, with the certificate of ``tls``. ``http_hosts`` are names by which a proxy asks
        a server on loopback, beside addresses and ``localhost``. With ``metrics_per_stream`` the metrics have offsets,
        bytes and writers of each stream.

        ``auth`` is a file that says who may do what, made with ``sbp token create``; it is read again within a second
        of each change. Without it everybody who can connect may do everything. With ``jwks``, a file with the public
        keys of whoever issues OAuth tokens (a JSON Web Key Set, read again like ``auth``), a client may show such a
        token (a JWT): ``jwt_issuer`` is its ``iss``, ``jwt_audience`` one of its ``aud``, and ``auth`` says what its
        subject may do. ``jwks`` may be an address (``https://...``), from which the keys are fetched every five
        minutes, and when a token names one that is not there; ``jwks_ca`` is a file with the authorities that may have
        issued its certificate, if they are not those that the machine trusts. ``max_unauthenticated_connections`` is
        how many connections may be open whose peers have not said yet who they are (1,024); when there are so many,
        the oldest of them is closed for the next.

        ``audit`` is a file to which each change of streams and ranges, and each request that was refused by ``auth``,
        is appended: one JSON object on a line.

        ``role`` is which part of a cluster it is: a placement driver, which says where streams are; a range server,
        which holds what the driver at ``placement_driver`` (``host:port``, or several) places on it; or both in one,
        for streams with one copy. With ``tls``, ``ca=`` is then also whom it trusts among the other servers.

        ``tank`` is the ``host:port`` (port 0: any) at which clients of TANK brokers are served from the streams of this
        server: topic ``T`` is the streams ``T/0``, ``T/1`` and so on. TANK has neither passwords nor TLS, so only this
        machine may connect unless ``insecure_listen`` is set; ``max_connections`` holds for it as well, for itself.
        ``tank_token_file`` is a file with the token by which all these clients are known to a server with ``auth``.
        Beside ``tls``, ``plain_listen`` is needed too.

        ``pravega`` is the ``host:port`` (port 0: any) at which clients of Pravega are served from the streams of this
        server, by a controller and a segment store in one: segment ``I`` of the stream ``SCOPE/STREAM`` is the stream
        ``SCOPE/STREAM/I``. What holds for ``tank`` holds for it, and ``pravega_token_file`` is as ``tank_token_file``.

        ``seastar`` is the ``host:port`` (port 0: any) at which clients of Seastar RPC append to the streams of this
        server and read them, by the verbs 1001 to 1007. What holds for ``tank`` holds for it, and
        ``seastar_token_file`` is as ``tank_token_file``.

        Raises ``PortTakenError``, ``DirectoryLockedError``, ``ServerConfigError`` or another ``ServerStartError``;
        ``ValueError`` for arguments that do not go together.
        """
    @property
    def address(self) -> str:
        """``host:port`` for clients: the advertised one, or the one listened on; with TLS, ``sbps://host:port``."""
    @property
    def listening(self) -> str:
        """``host:port`` listened on."""
    @property
    def plain_listening(self) -> str | None:
        """``host:port`` listened on without TLS beside the other, where ``plain_listen`` asked for one."""
    @property
    def http_address(self) -> str | None:
        """``host:port`` of the status page, with TLS ``https://host:port``; ``None`` without ``http``."""
    @property
    def tank_address(self) -> str | None:
        """``host:port`` at which clients of TANK are served, if they are."""
    @property
    def pravega_address(self) -> str | None:
        """``host:port`` at which clients of Pravega are served, for controller and segment store, if they are."""
    @property
    def seastar_address(self) -> str | None:
        """``host:port`` at which clients of Seastar RPC are served, if they are."""
    @property
    def error(self) -> BaseException | None:
        """Why the server takes no more appends, once its log has failed; ``None`` while all is well."""
    def stats(self) -> dict[str, int | float | str]:
        """Counters since the start.

        ``connections_accepted``; ``appends`` that were stored, their ``records_appended``, and ``appends_refused``;
        ``fetches`` that were answered with data, and ``bytes_fetched``; ``refusals`` of any request or entry of one;
        ``groups`` that the log wrote, its ``syncs`` and the ``sync_seconds`` that they took together. As they are now:
        ``connections_open``, ``streams``, ``damaged_ranges`` (ranges with records that the disk has damaged: reads of
        those fail) and the ``durability`` in force.

        >>> server.stats()["damaged_ranges"]
        0
        """
    def close(self) -> None:
        """Ends the server: answers what was started, syncs, and deletes a temporary directory. Again: does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(self, *_exception: object) -> Coroutine[Any, Any, None]: ...

@final
class Proxy:
    """A proxy between clients and a server that makes trouble by rule, for tests of code that uses this package.

    A rule is a fault and the frames that it happens to: all of them, until conditions narrow them down.

    ========================  =====================================================================================
    fault                     what happens to the frame
    ========================  =====================================================================================
    ``drop``                  it is not passed on; its sender is not told
    ``delay=20ms``            it goes on later, and so does what comes behind it
    ``duplicate``             it is passed on twice
    ``reorder``               later answers overtake it (``reorder=3``: this many)
    ``cut``, ``cut=20``       the connection ends in front of it, or behind so many of its bytes
    ``cut-after``             the connection ends behind it
    ========================  =====================================================================================

    Conditions: ``request`` or ``answer``; ``to-server`` or ``to-client``; an operation by its name in the specification
    (``APPEND``, ``FETCH``, ...) or number (``0x1001``); ``connection=N``; ``nth=N``, ``every=N``, ``byte=N`` or
    ``probability=P``; ``times=N``. Rules are asked in order; the first that takes a frame decides.

    >>> import sbp_native as sbp
    >>> with sbp.Server() as server, sbp.Proxy(server, rules=["cut answer APPEND times=1"]) as proxy:
    ...     with sbp.connect(proxy.address) as client:
    ...         stream = client.create_stream("orders")
    ...         try:
    ...             stream.append(b"lost acknowledgement")
    ...         except sbp.IndeterminateError as error:
    ...             print(error.indeterminate, proxy.stats()["cut"])
    True 1
    """

    def __new__(
        cls,
        target: str | Server | None = None,
        *,
        rules: Sequence[str] = ...,
        listen: str = "127.0.0.1:0",
        seed: int = 0,
        dial_timeout: float = 5.0,
        insecure_listen: bool = False,
    ) -> Self:
        """Listens, and connects whoever comes to ``target``: ``host:port`` or a server of this process.

        ``None``: connections are closed as they come, until a target is set. ``seed`` makes chances repeatable;
        ``dial_timeout`` is how long, in seconds, the target may take to accept.

        Clients that learn of further servers go to those directly: let each of them ``advertise`` a proxy of its own.

        Raises ``ValueError`` for a rule that makes no sense; ``PortTakenError``, ``ServerConfigError`` or another
        ``ServerStartError``.
        """
    @property
    def address(self) -> str:
        """``host:port`` for clients."""
    @property
    def target(self) -> str | None:
        """Where connections lead that come from now on; ``None``: they are closed as they come."""
    @target.setter
    def target(self, target: str | Server | None, /) -> None: ...
    @property
    def rules(self) -> list[ProxyRule]:
        """The rules in force, in their order, with what each has done so far."""
    def add(self, rule: str) -> int:
        """Puts a rule behind those that are there; returns its number. Raises ``ValueError``."""
    def remove(self, rule: int) -> ProxyRule:
        """Takes the rule with this number away; returns what it has done. Raises ``KeyError``."""
    def clear(self) -> None:
        """Takes all rules away."""
    def hold(self, frames: str = "") -> HeldFrames:
        """Holds the frames that these conditions of a rule are about, and what comes behind them on its way."""
    def cut(self) -> None:
        """Cuts every connection that is open now. Who connects again is served."""
    def stats(self) -> dict[str, int]:
        """Counters since the start: connections, frames, bytes, and faults by their kind."""
    def close(self) -> None:
        """Closes the listener and all connections, and waits until the port is free. Again: does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(self, *_exception: object) -> Coroutine[Any, Any, None]: ...

@final
class ProxyRule:
    """A rule of a proxy, and what it had done when it was asked for."""

    @property
    def id(self) -> int:
        """Its number."""
    @property
    def text(self) -> str:
        """The rule as text; ``hold`` stands for :meth:`Proxy.hold`."""
    @property
    def matched(self) -> int:
        """How many frames it was about."""
    @property
    def fired(self) -> int:
        """How many of them it took."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class HeldFrames:
    """The frames that a proxy keeps back. Leaving its ``with`` block releases them."""

    def wait(self, timeout: float = 30.0) -> HeldFrame:
        """Waits, at most ``timeout`` seconds, for the next frame that is held. Raises ``TimeoutError``.

        The frame stays held also when what this returns is not kept.

        In asynchronous code: ``await asyncio.to_thread(frames.wait)``.
        """
    def release(self) -> None:
        """Passes on what is held and in nobody's hands, and holds nothing any more."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class HeldFrame:
    """One frame that a proxy keeps back until it is told what to do.

    One that is forgotten is passed on when its ``HeldFrames`` are released, and at once if they have been.
    """

    @property
    def data(self) -> bytes | None:
        """The whole frame as it is on the wire; ``None`` once it was decided about."""
    def forward(self) -> None:
        """Passes it on."""
    def discard(self) -> None:
        """Drops it; what comes behind it goes on."""
    def cut(self) -> None:
        """Cuts the connection in front of it."""

@final
class Stream:
    """One stream, for blocking code."""

    @property
    def id(self) -> int:
        """Its number."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def identity(self) -> str | None:
        """What tells it from every other stream: 32 hexadecimal digits; see :attr:`StreamInfo.identity`."""
    @property
    def schema(self) -> _PaSchema | None:
        """Its schema; ``None`` for a stream of plain records. Imports pyarrow."""
    @property
    def info(self) -> StreamInfo:
        """The stream as the server described it."""
    def append(
        self,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Appends one batch, and returns when it is stored.

        ``data`` is one record as bytes, several as a list of bytes, or the rows of Arrow data: a table, a record batch
        or a data frame of any library. These have the stream's columns, or for a stream without a schema ``value`` and
        perhaps ``key``, ``timestamp`` and ``headers``; a column by itself is values. Large ``bytes`` and views of them
        are not copied; what can be written to is.

        ``key`` and ``headers`` belong to the one record; for a list of records they are lists as well. ``headers`` of
        Arrow data are those of each row, unless it has one of that name; rows of a stream with a schema have none.
        ``timestamp`` is the time of the records; without it, now. With ``expected_offset`` the batch is stored only if
        its first record gets that offset. ``timeout`` is in seconds; without it, the client's.

        Raises ``RejectedError`` (nothing was written) or ``IndeterminateError`` (perhaps); with ``expected_offset``,
        ``PreconditionFailedError`` when another append came first.

        >>> orders = client.create_stream("orders")
        >>> ack = orders.append([b"first", b"second"])
        >>> ack.base_offset, ack.last_offset
        (0, 1)
        >>> orders.append(b"third", expected_offset=1)
        Traceback (most recent call last):
        ...
        sbp_native.errors.PreconditionFailedError: ...
        """
    def try_append(
        self,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send."""
    def writer(
        self,
        *,
        batch_bytes: int = 262_144,
        linger: float = 0.005,
        compression: _Compression | None = None,
        idempotent: bool = True,
        writer_id: UUID | str | None = None,
        epoch: int | None = None,
        max_in_flight: int = 64,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        timeout: float = 120.0,
    ) -> Writer:
        """A writer of this stream; see :meth:`Client.writer`."""
    def fetch(
        self,
        offset: _Position,
        *,
        max_bytes: int = 4_194_304,
        min_bytes: int = 0,
        max_wait: float = 0.0,
        timeout: float | None = None,
    ) -> list[Batch]:
        """Reads once from ``offset`` on; see :meth:`Client.fetch`."""
    def read(
        self, start: _Position = "earliest", end: _Position = "latest", *, timeout: float | None = None
    ) -> Batches:
        """The batches from ``start`` up to ``end`` as it is now. ``timeout`` is for each step, in seconds.

        A bound that is a time is one for each record's own time: the read gives exactly the records from ``start`` up
        to but without ``end``, in the order of their offsets, among those that the stream holds now. An older record
        may stand behind a newer one, so that a read with a time as its end goes through to the end of the stream; give
        an offset to read less. A batch that lies partly inside comes as the runs of its records that do.

        A step that fails ends nothing: the next one goes on behind the last batch that was handed out.

        Raises ``OffsetOutOfRangeError`` for an offset beyond the end, ``InvalidRequestError`` for an end before the
        start.

        >>> orders = client.create_stream("orders")
        >>> ack = orders.append([b"first", b"second"])
        >>> [record.value for batch in orders.read() for record in batch.records()]
        [b'first', b'second']
        """
    def tail(self, start: _Position = "latest", *, timeout: float | None = None) -> Batches:
        """Batches from ``start`` on, for ever: each step waits for the next one, at most ``timeout`` seconds.

        A tail outlasts every outage of the server. After an error, a ``timeout`` that passed included, the next step
        goes on where the error came: nothing is left out, and the tail does not end before it is closed.
        """
    def positions(self, *, timeout: float | None = None) -> Positions:
        """What the stream holds now."""
    def describe(self, *, timeout: float | None = None) -> StreamInfo:
        """The stream's settings as they are now."""
    def describe_ranges(self, *, timeout: float | None = None) -> list[RangeInfo]:
        """The stream's ranges, in their order."""
    def update(
        self,
        *,
        name: str | None = None,
        schema: _ArrowSchema | None = None,
        retention: _Retention | None = None,
        retention_bytes: int | Literal["unlimited"] | None = None,
        replicas: int | None = None,
        acks: int | None = None,
        properties: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> StreamInfo:
        """Changes the stream's settings; see :meth:`Client.update_stream`."""
    def delete(self, *, timeout: float | None = None) -> None:
        """Deletes the stream with all its records."""
    def trim(self, before: _Position, *, timeout: float | None = None) -> int:
        """Deletes the records before a place; see :meth:`Client.trim`."""
    def seal(self, *, timeout: float | None = None) -> RangeInfo:
        """Ends the open range; see :meth:`Client.seal`."""

@final
class Batches(Iterator[Batch]):
    """Batches as they are read. Closing it, or leaving its ``with`` block, frees what was read ahead.

    It is an Arrow stream as well: ``pyarrow.table(batches)`` or ``polars.DataFrame(batches)`` has all that is left to
    read, in the columns of :meth:`Batch.to_arrow`, and those columns without rows when there is nothing.

    >>> import pyarrow
    >>> pyarrow.table(client.create_stream("orders").read()).column_names
    ['offset', 'timestamp', 'key', 'value', 'headers']
    """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """What is left to read, as record batches of one schema: that of the stream when reading began.

        A failure ends the Arrow stream with an error of the library that reads it, which has the text of ours. Raises
        ``SchemaMismatchError`` for several streams whose columns are not the same.
        """
    def close(self) -> None:
        """Stops reading."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Client:
    """A connection to a service, for blocking code. Threads may share it; a forked child needs its own."""

    @property
    def servers(self) -> str:
        """The addresses it was given."""
    def create_stream(
        self,
        name: str,
        *,
        schema: _ArrowSchema | None = None,
        retention: _Retention | None = None,
        retention_bytes: int | Literal["unlimited"] | None = None,
        replicas: int | None = None,
        acks: int | None = None,
        properties: dict[str, str] | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> Stream:
        """Creates a stream; with ``schema``, one that takes Arrow data of that schema only.

        ``retention`` is how long records are kept (a timedelta, or seconds), ``retention_bytes`` how many bytes;
        without them, all are. ``replicas`` is how many servers hold each record (1), ``acks`` how many of them must
        have stored an append before it is acknowledged (a majority). With ``replicas=3`` one server can be lost and
        appends go on; with ``acks=1`` they stop, which is logged as a warning. ``properties`` are notes of yours.

        Raises ``AlreadyExistsError``; with ``exist_ok`` only if the stream has other settings.

        >>> orders = client.create_stream("orders", retention=timedelta(days=7), properties={"owner": "shop"})
        >>> orders.info.retention
        datetime.timedelta(days=7)
        """
    def stream(self, key: _StreamKey, *, timeout: float | None = None) -> Stream:
        """The stream with this name or id. Raises ``StreamNotFoundError``.

        >>> client.create_stream("orders").id == client.stream("orders").id
        True
        """
    def list_streams(self, *, timeout: float | None = None) -> list[StreamInfo]:
        """All streams, by id.

        >>> for name in ("orders", "payments"):
        ...     _ = client.create_stream(name)
        >>> [info.name for info in client.list_streams()]
        ['orders', 'payments']
        """
    def describe_stream(self, key: _StreamKey, *, timeout: float | None = None) -> StreamInfo:
        """A stream's settings as they are now. Raises ``StreamNotFoundError``.

        >>> orders = client.create_stream("orders", properties={"owner": "shop"})
        >>> client.describe_stream("orders").properties
        {'owner': 'shop'}
        """
    def update_stream(
        self,
        key: _StreamKey,
        *,
        name: str | None = None,
        schema: _ArrowSchema | None = None,
        retention: _Retention | None = None,
        retention_bytes: int | Literal["unlimited"] | None = None,
        replicas: int | None = None,
        acks: int | None = None,
        properties: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> StreamInfo:
        """Changes a stream's settings; what is not given stays. Returns them all.

        ``name`` renames the stream, ``schema`` adds nullable columns, ``properties`` replaces all of them.
        ``replicas`` and ``acks`` are those of a range that is opened at once; without ``acks``, a majority of new
        ``replicas`` acknowledges.
        ``retention="forever"`` and ``retention_bytes="unlimited"`` keep everything.

        Raises ``StreamNotFoundError``, ``AlreadyExistsError``, ``SchemaMismatchError``.

        >>> orders = client.create_stream("orders", retention=3600)
        >>> client.update_stream("orders", retention="forever").retention is None
        True
        """
    def delete_stream(self, key: _StreamKey, *, timeout: float | None = None) -> None:
        """Deletes a stream with all its records. Raises ``StreamNotFoundError``.

        >>> orders = client.create_stream("orders")
        >>> client.delete_stream("orders")
        >>> client.list_streams()
        []
        """
    def trim(self, key: _StreamKey, before: _Position, *, timeout: float | None = None) -> int:
        """Deletes the records before a place. Returns the offset that the stream begins at now.

        A place at or below the start changes nothing; one beyond the end raises ``OffsetOutOfRangeError``.

        >>> orders = client.create_stream("orders")
        >>> ack = orders.append([b"a", b"b", b"c"])
        >>> client.trim("orders", before="latest-1")
        2
        """
    def seal(self, key: _StreamKey, *, timeout: float | None = None) -> RangeInfo:
        """Ends the stream's open range. Returns the next one, which takes the appends from now on.

        >>> orders = client.create_stream("orders")
        >>> ack = orders.append([b"a", b"b"])
        >>> client.seal("orders").start_offset
        2
        """
    def describe_ranges(self, key: _StreamKey, *, timeout: float | None = None) -> list[RangeInfo]:
        """A stream's ranges, in their order.

        >>> orders = client.create_stream("orders")
        >>> [(part.start_offset, part.end_offset) for part in client.describe_ranges("orders")]
        [(0, None)]
        """
    def append(
        self,
        stream: _StreamKey,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Appends one batch to a stream; see :meth:`Stream.append`.

        >>> orders = client.create_stream("orders")
        >>> client.append("orders", b"one", key=b"customer-7", headers={"source": b"shop"}).base_offset
        0
        >>> client.append("orders", [b"two", b"three"], compression="zstd").last_offset
        2
        """
    def try_append(
        self,
        stream: _StreamKey,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send.

        >>> orders = client.create_stream("orders")
        >>> try:
        ...     ack = client.try_append("orders", b"one")
        ... except sbp.BackPressureError:
        ...     print("busy")
        """
    def append_all(
        self,
        batches: Mapping[Any, _Data],
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> dict[str, Ack]:
        """Appends one batch to each of several streams, in one frame: ``{stream: data}``.

        Each stream's batch is stored or refused for itself: the exception's ``acks`` tell which were stored.
        ``headers`` are those of every record.

        >>> for name in ("orders", "payments"):
        ...     _ = client.create_stream(name)
        >>> acks = client.append_all({"orders": [b"o1", b"o2"], "payments": b"p1"})
        >>> acks["orders"].last_offset, acks["payments"].last_offset
        (1, 0)
        """
    def writer(
        self,
        stream: _StreamKey,
        *,
        batch_bytes: int = 262_144,
        linger: float = 0.005,
        compression: _Compression | None = None,
        idempotent: bool = True,
        writer_id: UUID | str | None = None,
        epoch: int | None = None,
        max_in_flight: int = 64,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        timeout: float = 120.0,
    ) -> Writer:
        """A writer: gathers records into batches, and stores each exactly once and in order.

        A batch is sent when it has ``batch_bytes`` or its first record is ``linger`` seconds old. At most
        ``max_in_flight`` batches (up to 64) are on their way; then ``append`` waits. ``timeout`` bounds each batch, all
        attempts included, in seconds, and the opening of a writer with a ``writer_id``.

        A writer with a ``writer_id`` (a UUID, or a name of your own) is the same one through all its lives, and the
        number of a record is its place in the writer's input. Opening it takes the next ``epoch``: an instance that is
        still open elsewhere stores nothing more and gets ``WriterFencedError``. Then it goes on where the one before
        stopped: give it your input from ``next_sequence`` on, and each record is stored exactly once. Behind a batch
        that is refused, or whose fate stays unknown, it refuses everything until it is opened again. What ``append``
        itself refuses, because it is too large or no record, gets no number, and the writer goes on.

        Give an ``epoch`` only if you have a number of your own that says which instance is the newest one: it is used
        as it is, and shuts out lower ones when its first batch is stored. With ``idempotent=False`` a batch whose fate
        is unknown is not sent again.

        ``on_delivery`` is called once for each batch that was stored or has failed, by a thread that calls the writer.
        Without it, the first failure is raised by the next call of the writer.

        >>> orders = client.create_stream("orders")
        >>> reports = []
        >>> with client.writer("orders", compression="lz4", on_delivery=reports.append) as writer:
        ...     for number in range(10_000):
        ...         sequence = writer.append(b"order %d" % number)
        >>> sequence, reports[-1].last_sequence, orders.positions().latest
        (9999, 9999, 10000)
        """
    def fetch(
        self,
        stream: _StreamKey,
        offset: _Position,
        *,
        max_bytes: int = 4_194_304,
        min_bytes: int = 0,
        max_wait: float = 0.0,
        timeout: float | None = None,
    ) -> list[Batch]:
        """Reads once from ``offset`` on: at most ``max_bytes``, though at least one batch where there is one.

        With ``min_bytes`` and ``max_wait`` (seconds) the server waits for so much, and so long at most. An empty list
        means that nothing was there.

        Raises ``OffsetOutOfRangeError``.

        >>> orders = client.create_stream("orders")
        >>> ack = orders.append([b"one", b"two"])
        >>> [record.value for batch in client.fetch("orders", 1) for record in batch.records()]
        [b'two']
        """
    def read(
        self,
        streams: _Streams,
        start: _Position | Mapping[Any, _Position] = "earliest",
        end: _Position | Mapping[Any, _Position] = "latest",
        *,
        timeout: float | None = None,
    ) -> Batches:
        """The batches of one stream or several, one stream after the other; see :meth:`Stream.read`.

        >>> for name in ("orders", "payments"):
        ...     _ = client.create_stream(name).append([b"1", b"2", b"3"])
        >>> [(batch.stream, len(batch)) for batch in client.read(["orders", "payments"], start="latest-2")]
        [('orders', 2), ('payments', 2)]
        """
    def tail(
        self,
        streams: _Streams,
        *,
        start: _Position | Mapping[Any, _Position] = "latest",
        timeout: float | None = None,
    ) -> Batches:
        """Batches of one stream or several as they arrive, through one FETCH; see :meth:`Stream.tail`.

        >>> orders = client.create_stream("orders")
        >>> with client.tail("orders", start="earliest", timeout=10) as tail:
        ...     ack = orders.append(b"one")
        ...     next(tail).base_offset
        0
        """
    def positions(self, streams: _Streams | None = None, *, timeout: float | None = None) -> dict[str, Positions]:
        """What the streams hold now, by name; of all streams without an argument.

        >>> ack = client.create_stream("orders").append([b"one", b"two"])
        >>> client.positions(["orders"])
        {'orders': Positions(earliest=0, latest=2)}
        """
    def offsets_for_time(self, streams: _Streams, time: _Time, *, timeout: float | None = None) -> dict[str, int]:
        """For each stream the offset of its first record that is as new as ``time``; its end where none is.

        >>> orders = client.create_stream("orders")
        >>> for hour in range(3):
        ...     ack = orders.append(b"order", timestamp=datetime(2026, 1, 1, hour, tzinfo=UTC))
        >>> client.offsets_for_time(["orders"], datetime(2026, 1, 1, 1, tzinfo=UTC))
        {'orders': 1}
        """
    def cursor(
        self, name: str, streams: _Streams, *, start: _Position = "earliest", timeout: float | None = None
    ) -> Cursor:
        """The cursor of this name, as its last commit left it, or a new one.

        ``start`` is where streams begin that were never committed under this name. Streams that were, and are not
        listed, keep their places. Commits are kept in the stream ``_sbp/cursors/<name>``, which is made with as many
        replicas as the one of the cursor's streams that has most; deleting it forgets the cursor.

        Raises ``StreamNotFoundError``, ``InvalidRequestError`` for a name that cannot be one (1 to 242 of the
        characters ``A-Z a-z 0-9 . _ / -``), ``DataCorruptedError`` if that stream holds something else,
        ``OffsetOutOfRangeError`` for a ``start`` beyond the end of a stream that was not committed before.

        >>> ack = client.create_stream("orders").append([b"first", b"second"])
        >>> client.cursor("billing", "orders", start="latest").positions
        {'orders': 2}
        """
    def keyed(
        self,
        name: str,
        streams: int | None = None,
        *,
        replicas: int | None = None,
        acks: int | None = None,
        timeout: float | None = None,
    ) -> Keyed:
        """The streams ``name-0`` to ``name-<n-1>``, made where they are missing, with records placed by key.

        How many they are is remembered with them; without ``streams`` they must be there. ``replicas`` and ``acks`` are
        for those that are made, see :meth:`create_stream`. Raises
        ``AlreadyExistsError`` when they are not so many, or one of them was made for something else, and
        ``StreamNotFoundError``.

        >>> orders = client.keyed("orders", 4)
        >>> ack = orders.append("customer-7", b"one")
        >>> ack.stream == orders.stream_of("customer-7")
        True
        """
    def cluster(self, *, timeout: float | None = None) -> ClusterInfo:
        """The servers that place streams.

        >>> client.cluster().leader.address == server.address
        True
        """
    def drain(self, server_id: int, *, wait: float | None = None, timeout: float | None = None) -> RangeServerInfo:
        """Has a range server emptied, so that it can be removed: what ``sbp cluster drain`` does.

        Its open ranges are sealed and go on on other servers, its sealed ranges are copied to others, and it gets
        nothing new. Waits until it holds nothing that counts, until for five seconds nothing that is left could leave
        it, or for ``wait`` seconds (None: however long it takes, 0: not at all), and returns how it stands then:
        ``is_drained`` says whether it is empty, ``stuck`` what cannot leave and why. It goes on being emptied in any
        case, until :meth:`undrain`. ``timeout`` bounds each call. Needs the grant ``admin``.

        Raises ``NotFoundError`` where there is no such server, ``UnsupportedError`` for one that has its placement
        driver's directory, and so nobody to give its streams to.

        >>> client.drain(1)
        Traceback (most recent call last):
        sbp_native.errors.UnsupportedError: range server 1 is in the process of its placement driver
        """
    def undrain(self, server_id: int, *, timeout: float | None = None) -> None:
        """Takes :meth:`drain` back: the server keeps what it still has, and gets new ranges again.

        >>> client.undrain(7)
        Traceback (most recent call last):
        sbp_native.errors.StreamNotFoundError: no range server with number 7 has ever registered
        """
    def balance(self, *, most: int = 100, dry_run: bool = False, timeout: float | None = None) -> list[RangeInfo]:
        """Seals open ranges of servers that have more of them than others, so that their streams go on elsewhere.

        What ``sbp cluster balance`` does: at most ``most`` (100) at a time; nothing is copied. Returns the ranges in
        which their streams go on, or with ``dry_run``, which does nothing, the open ranges that would be sealed. An
        empty list: they are spread evenly. Call it again until it is empty: a server that was added follows first, and
        takes appends in the next range. Some that are not moved are no error if others were. Needs the grant
        ``admin``.

        >>> client.balance()
        []
        """
    def ping(self, *, timeout: float | None = None) -> float:
        """The time of a round trip to the server, in seconds.

        >>> client.ping() < 10
        True
        """
    def stats(self) -> dict[str, float]:
        """Counters since the client was made.

        Calls: ``calls`` and ``answers``, ``in_flight`` (started and not over) with ``bytes_in_flight``; bytes:
        ``bytes_out``, ``bytes_in``, ``bytes_copied`` (received ones that had to be copied) and ``bytes_pinned`` (that
        views keep in memory now); system calls: ``reads`` and ``writes``; ``connections`` made, ``io_wakeups`` of their
        tasks; ``round_trips`` measured, in seconds: ``rtt_p50``, ``rtt_p90``, ``rtt_p99`` (at most a sixteenth above
        the truth) and ``rtt_max``.

        >>> client.stats()["connections"]
        1
        """
    def metrics(self) -> dict[str, Histogram]:
        """How long requests took since the client was made, as histograms.

        ``append_seconds``: appends that were stored, from when the client was given them to their outcome, with all
        attempts. Appends that asyncio starts are given to it at the end of the loop's turn; those of a :class:`Writer`
        count as the batches that it sends, from when a connection takes one. ``fetch_seconds``: requests for what is
        there, from their send to the end of the answer. ``fetch_wait_seconds``: those that may wait for data, as a
        tail's; their waiting is part of it. ``call_seconds``: all others but pings. For Prometheus there is
        :class:`sbp_native.metrics.ClientCollector`.

        >>> sorted(client.metrics())
        ['append_seconds', 'call_seconds', 'fetch_seconds', 'fetch_wait_seconds']
        """
    def close(self) -> None:
        """Ends the connection, once what was sent is answered or five seconds are over; then it is in doubt.

        Again: does nothing.

        >>> client.close()
        >>> client.ping()
        Traceback (most recent call last):
        ...
        sbp_native.errors.ClosedError: ...
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class AsyncStream:
    """One stream, for asyncio. The calls are those of :class:`Stream`."""

    @property
    def id(self) -> int:
        """Its number."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def identity(self) -> str | None:
        """What tells it from every other stream: 32 hexadecimal digits; see :attr:`StreamInfo.identity`."""
    @property
    def schema(self) -> _PaSchema | None:
        """Its schema; ``None`` for a stream of plain records. Imports pyarrow."""
    @property
    def info(self) -> StreamInfo:
        """The stream as the server described it."""
    def append(
        self,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[Ack]:
        """Appends one batch; see :meth:`Stream.append`."""
    def try_append(
        self,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[Ack]:
        """As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send."""
    def writer(
        self,
        *,
        batch_bytes: int = 262_144,
        linger: float = 0.005,
        compression: _Compression | None = None,
        idempotent: bool = True,
        writer_id: UUID | str | None = None,
        epoch: int | None = None,
        max_in_flight: int = 64,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        timeout: float = 120.0,
    ) -> AsyncWriter:
        """A writer of this stream; see :meth:`Client.writer`."""
    def fetch(
        self,
        offset: _Position,
        *,
        max_bytes: int = 4_194_304,
        min_bytes: int = 0,
        max_wait: float = 0.0,
        timeout: float | None = None,
    ) -> Operation[list[Batch]]:
        """Reads once from ``offset`` on; see :meth:`Client.fetch`."""
    def read(
        self, start: _Position = "earliest", end: _Position = "latest", *, timeout: float | None = None
    ) -> AsyncBatches:
        """The batches from ``start`` up to ``end`` as it is now. ``timeout`` is for each step, in seconds.

        Raises ``OffsetOutOfRangeError``.
        """
    def tail(self, start: _Position = "latest", *, timeout: float | None = None) -> AsyncBatches:
        """Batches from ``start`` on, for ever: each step waits for the next one, at most ``timeout`` seconds.

        A tail outlasts every outage of the server. After an error, a ``timeout`` that passed included, the next step
        goes on where the error came: nothing is left out, and the tail does not end before it is closed.
        """
    def positions(self, *, timeout: float | None = None) -> Operation[Positions]:
        """What the stream holds now."""
    def describe(self, *, timeout: float | None = None) -> Operation[StreamInfo]:
        """The stream's settings as they are now."""
    def describe_ranges(self, *, timeout: float | None = None) -> Operation[list[RangeInfo]]:
        """The stream's ranges, in their order."""
    def update(
        self,
        *,
        name: str | None = None,
        schema: _ArrowSchema | None = None,
        retention: _Retention | None = None,
        retention_bytes: int | Literal["unlimited"] | None = None,
        replicas: int | None = None,
        acks: int | None = None,
        properties: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Operation[StreamInfo]:
        """Changes the stream's settings; see :meth:`Client.update_stream`."""
    def delete(self, *, timeout: float | None = None) -> Operation[None]:
        """Deletes the stream with all its records."""
    def trim(self, before: _Position, *, timeout: float | None = None) -> Operation[int]:
        """Deletes the records before a place; see :meth:`Client.trim`."""
    def seal(self, *, timeout: float | None = None) -> Operation[RangeInfo]:
        """Ends the open range; see :meth:`Client.seal`."""

@final
class AsyncBatches:
    """Batches as they are read, for ``async for``."""

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Operation[Batch]: ...
    def close(self) -> None:
        """Stops reading and frees what was read ahead."""
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...

@final
class AsyncClient:
    """A connection to a service, for asyncio: ``async with connect(...) as client`` or ``await connect(...)``.

    >>> async def main():
    ...     async with sbp.aio.connect(server.address) as client:
    ...         orders = await client.create_stream("orders")
    ...         await asyncio.gather(*(orders.append(b"%d" % number) for number in range(100)))
    ...         return (await orders.positions()).latest
    >>> asyncio.run(main())
    100
    """

    @property
    def servers(self) -> str:
        """The addresses it was given."""
    def create_stream(
        self,
        name: str,
        *,
        schema: _ArrowSchema | None = None,
        retention: _Retention | None = None,
        retention_bytes: int | Literal["unlimited"] | None = None,
        replicas: int | None = None,
        acks: int | None = None,
        properties: dict[str, str] | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> Operation[AsyncStream]:
        """Creates a stream; with ``schema``, one that takes Arrow data of that schema only.

        ``retention`` is how long records are kept (a timedelta, or seconds), ``retention_bytes`` how many bytes;
        without them, all are. ``replicas`` is how many servers hold each record (1), ``acks`` how many of them must
        have stored an append before it is acknowledged (a majority). With ``replicas=3`` one server can be lost and
        appends go on; with ``acks=1`` they stop, which is logged as a warning. ``properties`` are notes of yours.

        Raises ``AlreadyExistsError``; with ``exist_ok`` only if the stream has other settings.
        """
    def stream(self, key: _StreamKey, *, timeout: float | None = None) -> Operation[AsyncStream]:
        """The stream with this name or id. Raises ``StreamNotFoundError``."""
    def list_streams(self, *, timeout: float | None = None) -> Operation[list[StreamInfo]]:
        """All streams, by id."""
    def describe_stream(self, key: _StreamKey, *, timeout: float | None = None) -> Operation[StreamInfo]:
        """A stream's settings as they are now. Raises ``StreamNotFoundError``."""
    def update_stream(
        self,
        key: _StreamKey,
        *,
        name: str | None = None,
        schema: _ArrowSchema | None = None,
        retention: _Retention | None = None,
        retention_bytes: int | Literal["unlimited"] | None = None,
        replicas: int | None = None,
        acks: int | None = None,
        properties: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Operation[StreamInfo]:
        """Changes a stream's settings; what is not given stays. Returns them all.

        ``name`` renames the stream, ``schema`` adds nullable columns, ``properties`` replaces all of them.
        ``replicas`` and ``acks`` are those of a range that is opened at once; without ``acks``, a majority of new
        ``replicas`` acknowledges.
        ``retention="forever"`` and ``retention_bytes="unlimited"`` keep everything.

        Raises ``StreamNotFoundError``, ``AlreadyExistsError``, ``SchemaMismatchError``.
        """
    def delete_stream(self, key: _StreamKey, *, timeout: float | None = None) -> Operation[None]:
        """Deletes a stream with all its records. Raises ``StreamNotFoundError``."""
    def trim(self, key: _StreamKey, before: _Position, *, timeout: float | None = None) -> Operation[int]:
        """Deletes the records before a place. Returns the offset that the stream begins at now.

        A place at or below the start changes nothing; one beyond the end raises ``OffsetOutOfRangeError``.
        """
    def seal(self, key: _StreamKey, *, timeout: float | None = None) -> Operation[RangeInfo]:
        """Ends the stream's open range. Returns the next one, which takes the appends from now on."""
    def describe_ranges(self, key: _StreamKey, *, timeout: float | None = None) -> Operation[list[RangeInfo]]:
        """A stream's ranges, in their order."""
    def append(
        self,
        stream: _StreamKey,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[Ack]:
        """Appends one batch to a stream; see :meth:`Stream.append`."""
    def try_append(
        self,
        stream: _StreamKey,
        data: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
        expected_offset: int | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[Ack]:
        """As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send."""
    def append_all(
        self,
        batches: Mapping[Any, _Data],
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[dict[str, Ack]]:
        """Appends one batch to each of several streams, in one frame: ``{stream: data}``.

        Each stream's batch is stored or refused for itself: the exception's ``acks`` tell which were stored.
        ``headers`` are those of every record.
        """
    def writer(
        self,
        stream: _StreamKey,
        *,
        batch_bytes: int = 262_144,
        linger: float = 0.005,
        compression: _Compression | None = None,
        idempotent: bool = True,
        writer_id: UUID | str | None = None,
        epoch: int | None = None,
        max_in_flight: int = 64,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        timeout: float = 120.0,
    ) -> AsyncWriter:
        """A writer: gathers records into batches, and stores each exactly once and in order.

        A batch is sent when it has ``batch_bytes`` or its first record is ``linger`` seconds old. At most
        ``max_in_flight`` batches (up to 64) are on their way; then ``append`` waits. ``timeout`` bounds each batch, all
        attempts included, in seconds, and the opening of a writer with a ``writer_id``.

        A writer with a ``writer_id`` (a UUID, or a name of your own) is the same one through all its lives, and the
        number of a record is its place in the writer's input. Opening it takes the next ``epoch``: an instance that is
        still open elsewhere stores nothing more and gets ``WriterFencedError``. Then it goes on where the one before
        stopped: give it your input from ``next_sequence`` on, and each record is stored exactly once. Behind a batch
        that is refused, or whose fate stays unknown, it refuses everything until it is opened again. What ``append``
        itself refuses, because it is too large or no record, gets no number, and the writer goes on.

        Give an ``epoch`` only if you have a number of your own that says which instance is the newest one: it is used
        as it is, and shuts out lower ones when its first batch is stored. With ``idempotent=False`` a batch whose fate
        is unknown is not sent again.

        ``on_delivery`` is called once for each batch that was stored or has failed, on the loop's thread.
        Without it, the first failure is raised by the next call of the writer.
        """
    def fetch(
        self,
        stream: _StreamKey,
        offset: _Position,
        *,
        max_bytes: int = 4_194_304,
        min_bytes: int = 0,
        max_wait: float = 0.0,
        timeout: float | None = None,
    ) -> Operation[list[Batch]]:
        """Reads once from ``offset`` on: at most ``max_bytes``, though at least one batch where there is one.

        With ``min_bytes`` and ``max_wait`` (seconds) the server waits for so much, and so long at most. An empty list
        means that nothing was there.

        Raises ``OffsetOutOfRangeError``.
        """
    def read(
        self,
        streams: _Streams,
        start: _Position | Mapping[Any, _Position] = "earliest",
        end: _Position | Mapping[Any, _Position] = "latest",
        *,
        timeout: float | None = None,
    ) -> AsyncBatches:
        """The batches of one stream or several, one stream after the other; see :meth:`Stream.read`."""
    def tail(
        self,
        streams: _Streams,
        *,
        start: _Position | Mapping[Any, _Position] = "latest",
        timeout: float | None = None,
    ) -> AsyncBatches:
        """Batches of one stream or several as they arrive, through one FETCH; see :meth:`Stream.tail`."""
    def positions(
        self, streams: _Streams | None = None, *, timeout: float | None = None
    ) -> Operation[dict[str, Positions]]:
        """What the streams hold now, by name; of all streams without an argument."""
    def offsets_for_time(
        self, streams: _Streams, time: _Time, *, timeout: float | None = None
    ) -> Operation[dict[str, int]]:
        """For each stream the offset of its first record that is as new as ``time``; its end where none is."""
    def cursor(
        self, name: str, streams: _Streams, *, start: _Position = "earliest", timeout: float | None = None
    ) -> Operation[AsyncCursor]:
        """The cursor of this name, as its last commit left it, or a new one.

        ``start`` is where streams begin that were never committed under this name. Streams that were, and are not
        listed, keep their places. Commits are kept in the stream ``_sbp/cursors/<name>``, which is made with as many
        replicas as the one of the cursor's streams that has most; deleting it forgets the cursor.

        Raises ``StreamNotFoundError``, ``InvalidRequestError`` for a name that cannot be one (1 to 242 of the
        characters ``A-Z a-z 0-9 . _ / -``), ``DataCorruptedError`` if that stream holds something else,
        ``OffsetOutOfRangeError`` for a ``start`` beyond the end of a stream that was not committed before.
        """
    def keyed(
        self,
        name: str,
        streams: int | None = None,
        *,
        replicas: int | None = None,
        acks: int | None = None,
        timeout: float | None = None,
    ) -> Operation[AsyncKeyed]:
        """The streams ``name-0`` to ``name-<n-1>``, made where they are missing, with records placed by key.

        How many they are is remembered with them; without ``streams`` they must be there. ``replicas`` and ``acks`` are
        for those that are made, see :meth:`create_stream`. Raises
        ``AlreadyExistsError`` when they are not so many, or one of them was made for something else, and
        ``StreamNotFoundError``.
        """
    def cluster(self, *, timeout: float | None = None) -> Operation[ClusterInfo]:
        """The servers that place streams."""
    def drain(
        self, server_id: int, *, wait: float | None = None, timeout: float | None = None
    ) -> Operation[RangeServerInfo]:
        """Has a range server emptied, so that it can be removed: see :meth:`Client.drain`."""
    def undrain(self, server_id: int, *, timeout: float | None = None) -> Operation[None]:
        """Takes :meth:`drain` back: the server keeps what it still has, and gets new ranges again."""
    def balance(
        self, *, most: int = 100, dry_run: bool = False, timeout: float | None = None
    ) -> Operation[list[RangeInfo]]:
        """Seals open ranges of servers that have more of them than others: see :meth:`Client.balance`."""
    def ping(self, *, timeout: float | None = None) -> Operation[float]:
        """The time of a round trip to the server, in seconds."""
    def stats(self) -> dict[str, float]:
        """Counters since the client was made: those of :meth:`Client.stats`, and those of the running loop.

        Of the loop: ``wakeups`` by I/O threads, ``completions`` that they brought, and ``operations`` on their way.
        """
    def metrics(self) -> dict[str, Histogram]:
        """How long requests took since the client was made: see :meth:`Client.metrics`."""
    def close(self) -> Operation[None]:
        """Ends the connection, once what was sent is answered or five seconds are over; then it is in doubt."""
    def __await__(self) -> Generator[Any, None, Self]: ...
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class DeliveryReport:
    """What became of one batch of a writer."""

    @property
    def first_sequence(self) -> int:
        """The number that ``append`` returned for its first record."""
    @property
    def last_sequence(self) -> int:
        """The number that ``append`` returned for its last record."""
    @property
    def ack(self) -> Ack | None:
        """Where it is stored; ``None`` if it failed."""
    @property
    def error(self) -> SbpError | None:
        """Why it failed; ``None`` if it is stored. An ``IndeterminateError``: it may be stored all the same."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...

@final
class Writer:
    """Gathers records into batches and stores them in order, for blocking code; see :meth:`Client.writer`.

    Threads may share it. Close it, or use it in a ``with`` statement: a writer that is dropped with records that are
    not stored yet warns with a ``ResourceWarning`` that counts them. One that is open when the process ends is flushed
    for at most five seconds, and a ``RuntimeWarning``, which is shown, counts the records that were not acknowledged.
    """

    @property
    def stream(self) -> str:
        """The stream's name."""
    @property
    def writer_id(self) -> UUID | None:
        """The writer's name: the one given, or the one made up for it. ``None`` if it is not idempotent."""
    @property
    def epoch(self) -> int:
        """The writer's epoch: which instance of it this is."""
    @property
    def next_sequence(self) -> int:
        """The number of the next record: how many came before it, with a ``writer_id`` in all lives of the writer."""
    @property
    def unflushed(self) -> int:
        """Records that were appended and whose fate is not known yet."""
    def append(
        self,
        value: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
    ) -> int:
        """Takes one record, a list of them, or the rows of a table; returns the number of the last one.

        Waits only while ``max_in_flight`` batches are on their way. A list is taken whole or, where something is wrong
        with one of its records, not at all.
        """
    def flush(self, *, timeout: float | None = None) -> None:
        """Sends what is gathered and waits until everything appended so far is stored or has failed.

        Raises a ``TimeoutError`` if that takes longer than ``timeout`` seconds; nothing is given up by that.
        """
    def close(self) -> None:
        """Takes no more records, and flushes. Again: does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class AsyncWriter:
    """Gathers records into batches and stores them in order, for asyncio; see :meth:`AsyncClient.writer`.

    Use it in an ``async with`` statement, or await it before the first ``append``.

    >>> async def main():
    ...     async with sbp.aio.connect(server.address) as client:
    ...         await client.create_stream("orders")
    ...         async with client.writer("orders", linger=0.001) as writer:
    ...             for number in range(1_000):
    ...                 await writer.append(b"%d" % number)
    ...         return (await client.positions(["orders"]))["orders"].latest
    >>> asyncio.run(main())
    1000
    """

    @property
    def stream(self) -> str:
        """The stream's name."""
    @property
    def writer_id(self) -> UUID | None:
        """The writer's name: the one given, or the one made up for it. ``None`` if it is not idempotent."""
    @property
    def epoch(self) -> int:
        """The writer's epoch: which instance of it this is."""
    @property
    def next_sequence(self) -> int:
        """The number of the next record: how many came before it, with a ``writer_id`` in all lives of the writer."""
    @property
    def unflushed(self) -> int:
        """Records that were appended and whose fate is not known yet."""
    def append(
        self,
        value: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
    ) -> Operation[int]:
        """Takes one record, a list of them, or the rows of a table at once; done when there is room for more.

        Columns that the client has not seen may have been given to the stream since: then it is described again first,
        and what is called meanwhile waits behind.
        """
    def append_nowait(
        self,
        value: _Data,
        *,
        key: Buffer | Sequence[Buffer | None] | None = None,
        headers: _Headers | Sequence[_Headers | None] | None = None,
        timestamp: _Time | None = None,
    ) -> int:
        """As :meth:`append`, but raises ``BackPressureError`` while ``max_in_flight`` batches are on their way.

        It raises that, too, while the stream is described again for columns that the client has not seen.
        """
    def flush(self, *, timeout: float | None = None) -> Operation[None]:
        """Sends what is gathered; done when everything appended so far is stored or has failed."""
    def close(self) -> Operation[None]:
        """Takes no more records, and flushes."""
    def __await__(self) -> Generator[Any, None, Self]: ...
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...

def connect(
    servers: str | Iterable[str] | None = None,
    *,
    timeout: float = 30.0,
    client_id: str | None = None,
    heartbeat_interval: float | None = None,
    max_in_flight_bytes: int | None = None,
    max_in_flight_calls: int | None = None,
    max_pinned_bytes: int | None = None,
    max_attempts: int | None = None,
    retry_backoff: float | None = None,
    wait: float | None = None,
    tls: Tls | None = None,
    token: str | PathLike[str] | Callable[[], str] | None = None,
    token_in_clear: bool | None = None,
    read_from: Literal["primary", "any"] = "primary",
) -> Client:
    """Connects to the first of ``servers`` that answers: ``"host:port"``, several separated by commas, or a list.

    Without ``servers``, the environment variable ``SBP_SERVERS`` names them. ``timeout`` is what calls take that are
    not given their own, in seconds. ``client_id`` is shown in the server's log. ``heartbeat_interval`` is the time
    between two signs of life, in seconds (30); three silent ones end a connection.

    ``max_in_flight_bytes`` and ``max_in_flight_calls`` bound the appends on their way; what is over them waits.
    ``max_pinned_bytes`` bounds the received bytes that batches keep in memory.

    What may be tried again is, within ``timeout``, up to ``max_attempts`` times (1,000); ``retry_backoff`` is the first
    bound of the waiting time between two attempts, in seconds (0.05), which doubles from attempt to attempt: up to 1 s
    where a server is away or another one takes over, up to 10 s where a server has too much to do.

    A server that cannot be connected to may be starting: until one was reached for the first time, it is tried again
    for ``wait`` seconds (5), and at least twice.

    With ``sbps://`` in front of a server, or with ``tls``, the client talks to all servers over TLS, also to those that
    it is sent to. Without ``tls`` it trusts the authorities that the machine trusts. Without ``servers``, the variables
    ``SBP_TLS_CA``, ``SBP_TLS_CERT``, ``SBP_TLS_KEY`` and ``SBP_TLS_SERVER_NAME`` say what ``tls`` does not.

    ``token`` says who the client is, to servers that ask: the token, a ``Path`` of a file with it, which is read for
    each connection, or a function that returns one. The function is called in a thread of its own when a connection is
    made, and when the server asks because a token is about to expire. Without ``servers``, the variables
    ``SBP_TOKEN_FILE`` and ``SBP_TOKEN`` say it. A client with a token or a function cannot be pickled. Raises
    ``AccessDeniedError``, at once, when the server does not know the token, or when the function has not returned in
    the time that connecting may take (10 s, or ``timeout`` where that is less); the same is raised without asking again
    for some seconds then.

    A token is told to no server on another machine that the client does not talk to over TLS, because others on the
    network could read it: such calls raise ``AccessDeniedError`` too, unless ``token_in_clear`` allows it. Without
    ``servers``, ``SBP_TOKEN_IN_CLEAR=true`` allows it.

    A stream with several copies is read from the server that takes its appends, and from another one while that is
    away. With ``read_from="any"`` reads are spread over all servers that have the records, another one for each client
    and stream; from the others what is new comes up to 100 ms later. Where a stream ends is asked of the first in any
    case, and nothing is left out.

    Raises ``ConnectionFailedError``; as ``TlsError``, at once, where a certificate is not accepted.

    >>> with sbp.connect([server.address], timeout=5) as client:
    ...     stream = client.create_stream("orders")
    """

def aio_connect(
    servers: str | Iterable[str] | None = None,
    *,
    timeout: float = 30.0,
    client_id: str | None = None,
    heartbeat_interval: float | None = None,
    max_in_flight_bytes: int | None = None,
    max_in_flight_calls: int | None = None,
    max_pinned_bytes: int | None = None,
    max_attempts: int | None = None,
    retry_backoff: float | None = None,
    wait: float | None = None,
    tls: Tls | None = None,
    token: str | PathLike[str] | Callable[[], str] | None = None,
    token_in_clear: bool | None = None,
    read_from: Literal["primary", "any"] = "primary",
) -> AsyncClient:
    """A client for asyncio, which connects when it is awaited or entered; see :func:`connect`."""

@final
class Cursor:
    """Where a job stands in its streams, under a name that the service remembers: its next record in each of them.

    Made by :meth:`Client.cursor`. Opening claims nothing: of several holders of one name the first to commit is the
    holder from then on, and every commit of the others raises ``CursorTakenError``. ``commit()`` right after opening
    claims the name before any work is done.

    >>> import sbp_native as sbp
    >>> with sbp.Server() as server, sbp.connect(server.address) as client:
    ...     client.create_stream("orders").append([b"first", b"second"]).last_offset
    ...     billing = client.cursor("billing", ["orders"])
    ...     for batch in billing.read():
    ...         billing.commit(batch)
    ...     client.cursor("billing", ["orders"]).positions
    1
    {'orders': 2}

    What was handed out and not committed is read again by the next holder: at least once. A job that keeps its own
    results in one place can store :attr:`positions` with them instead.
    """

    @property
    def name(self) -> str:
        """The cursor's name."""
    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams it was opened for."""
    @property
    def positions(self) -> dict[str, int]:
        """What is committed, as far as this holder knows: for each stream the first offset that is not done."""
    @property
    def reached(self) -> dict[str, int]:
        """How far this holder has read: for each stream the offset behind the last record that was handed out."""
    def commit(
        self, positions: Batch | Mapping[_StreamKey, int] | None = None, *, timeout: float | None = None
    ) -> None:
        """Stores that everything before these offsets is done, and returns when it is stored.

        A batch: everything up to its end. A dict: for each stream named, the first offset that is *not* done. Nothing:
        everything that was handed out. Places of other streams stay. It may go back: then records are read once more.

        Raises ``CursorTakenError`` when another holder has committed; nothing was stored then, and nothing will be
        through this holder: open the cursor anew. ``OffsetOutOfRangeError`` for a place beyond the end of its stream,
        which is asked for only where the place is further than what was handed out. An answer that is lost is resolved
        by reading back; ``IndeterminateError`` only when that could not be done in time either. The next commit finds
        out, and builds on what it finds.
        """
    def read(self, *, timeout: float | None = None) -> Batches:
        """From where reading got to, up to the end of each stream as it is now, one stream after the other."""
    def tail(self, *, timeout: float | None = None) -> Batches:
        """From where reading got to, and on as the streams grow; ``for batch in cursor`` is the same.

        ``timeout`` is how long a step waits for a record before it raises ``TimeoutError``; the next step goes on.
        """
    def lag(self, *, timeout: float | None = None) -> dict[str, int]:
        """How many records of each stream have not been handed out to this holder."""
    def __iter__(self) -> Batches: ...

@final
class AsyncCursor:
    """Where a job stands in its streams, for asyncio; see :class:`Cursor`."""

    @property
    def name(self) -> str:
        """The cursor's name."""
    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams it was opened for."""
    @property
    def positions(self) -> dict[str, int]:
        """What is committed, as far as this holder knows: for each stream the first offset that is not done."""
    @property
    def reached(self) -> dict[str, int]:
        """How far this holder has read: for each stream the offset behind the last record that was handed out."""
    def commit(
        self, positions: Batch | Mapping[_StreamKey, int] | None = None, *, timeout: float | None = None
    ) -> Operation[None]:
        """Stores that everything before these offsets is done; see :meth:`Cursor.commit`.

        Commits are stored in the order of calls, those that wait for an earlier one together. One whose operation is
        cancelled goes on.
        """
    def read(self, *, timeout: float | None = None) -> AsyncBatches:
        """From where reading got to, up to the end of each stream as it is now, one stream after the other."""
    def tail(self, *, timeout: float | None = None) -> AsyncBatches:
        """From where reading got to, and on as the streams grow; ``async for batch in cursor`` is the same."""
    def lag(self, *, timeout: float | None = None) -> Operation[dict[str, int]]:
        """How many records of each stream have not been handed out to this holder."""
    def __aiter__(self) -> AsyncBatches: ...

@final
class Keyed:
    """Streams that share a name, each with the records of its part of the keys.

    Made by :meth:`Client.keyed`. A key's stream is ``zlib.crc32(key) % len(keyed)``, for ever: records with the same
    key are in one stream, and so in order. For one cursor over all of them pass it, or ``keyed.streams``, to
    :meth:`Client.cursor`.

    >>> import sbp_native as sbp
    >>> with sbp.Server() as server, sbp.connect(server.address) as client:
    ...     orders = client.keyed("orders", 4)
    ...     orders.append("customer-17", b"created").stream == orders.stream_of("customer-17")
    True
    """

    @property
    def name(self) -> str:
        """The name of the whole."""
    @property
    def streams(self) -> tuple[str, ...]:
        """The names of its streams, in order: ``name-0`` and so on. Iterating gives the same."""
    def stream_of(self, key: Buffer | str) -> str:
        """The name of the stream that holds the records with this key."""
    def append(
        self,
        key: Buffer | str,
        value: Buffer,
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Appends one record to the stream of its key, and returns when it is stored.

        A key that is a str is stored as UTF-8.
        """
    def append_all(
        self,
        items: Iterable[tuple[Buffer | str, Buffer | None]],
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> dict[str, Ack]:
        """Appends pairs of key and value in ONE frame, one batch to each stream concerned.

        ``headers`` are those of every record.

        Returns the acknowledgements by stream name; see :meth:`Client.append_all` for what an error leaves.
        """
    def writer(
        self,
        *,
        batch_bytes: int = 262_144,
        linger: float = 0.005,
        compression: _Compression | None = None,
        idempotent: bool = True,
        writer_id: UUID | str | None = None,
        epoch: int | None = None,
        max_in_flight: int = 64,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        timeout: float = 120.0,
    ) -> KeyedWriter:
        """A writer to all of its streams, each record to that of its key; see :meth:`Client.writer`.

        Every stream has batches, sequence numbers and ``max_in_flight`` of its own. ``on_delivery`` is told of all;
        ``report.ack.stream`` or ``report.error.stream`` says which stream it is.
        """
    def read(
        self,
        start: _Position | Mapping[Any, _Position] = "earliest",
        end: _Position | Mapping[Any, _Position] = "latest",
        *,
        timeout: float | None = None,
    ) -> Batches:
        """The records of all its streams, one stream after the other: those of one key in their order."""
    def tail(self, start: _Position | Mapping[Any, _Position] = "latest", *, timeout: float | None = None) -> Batches:
        """The records of all its streams as they grow: those of one key in their order."""
    def positions(self, *, timeout: float | None = None) -> dict[str, Positions]:
        """Where each of its streams begins and ends now."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...

@final
class AsyncKeyed:
    """Streams that share a name, for asyncio; see :class:`Keyed`."""

    @property
    def name(self) -> str:
        """The name of the whole."""
    @property
    def streams(self) -> tuple[str, ...]:
        """The names of its streams, in order: ``name-0`` and so on. Iterating gives the same."""
    def stream_of(self, key: Buffer | str) -> str:
        """The name of the stream that holds the records with this key."""
    def append(
        self,
        key: Buffer | str,
        value: Buffer,
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[Ack]:
        """Appends one record to the stream of its key. A key that is a str is stored as UTF-8."""
    def append_all(
        self,
        items: Iterable[tuple[Buffer | str, Buffer | None]],
        *,
        headers: _Headers | None = None,
        timestamp: _Time | None = None,
        compression: _Compression | None = None,
        timeout: float | None = None,
    ) -> Operation[dict[str, Ack]]:
        """Appends pairs of key and value in ONE frame, one batch to each stream concerned.

        ``headers`` are those of every record.

        Returns the acknowledgements by stream name; see :meth:`Client.append_all` for what an error leaves.
        """
    def writer(
        self,
        *,
        batch_bytes: int = 262_144,
        linger: float = 0.005,
        compression: _Compression | None = None,
        idempotent: bool = True,
        writer_id: UUID | str | None = None,
        epoch: int | None = None,
        max_in_flight: int = 64,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        timeout: float = 120.0,
    ) -> AsyncKeyedWriter:
        """A writer to all of its streams, each record to that of its key; see :meth:`Client.writer`.

        Every stream has batches, sequence numbers and ``max_in_flight`` of its own. ``on_delivery`` is told of all;
        ``report.ack.stream`` or ``report.error.stream`` says which stream it is.
        """
    def read(
        self,
        start: _Position | Mapping[Any, _Position] = "earliest",
        end: _Position | Mapping[Any, _Position] = "latest",
        *,
        timeout: float | None = None,
    ) -> AsyncBatches:
        """The records of all its streams, one stream after the other: those of one key in their order."""
    def tail(
        self, start: _Position | Mapping[Any, _Position] = "latest", *, timeout: float | None = None
    ) -> AsyncBatches:
        """The records of all its streams as they grow: those of one key in their order."""
    def positions(self, *, timeout: float | None = None) -> Operation[dict[str, Positions]]:
        """Where each of its streams begins and ends now."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...

@final
class SegmentInfo:
    """A segment of a Pravega stream."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def segment_id(self) -> int:
        """Its number in the stream."""
    @property
    def start(self) -> int:
        """The first byte that is kept."""
    @property
    def length(self) -> int:
        """The byte behind the last one."""
    @property
    def sealed(self) -> bool:
        """Whether nothing more is appended to it."""
    @property
    def keys(self) -> tuple[float, float]:
        """The positions of the routing keys that belong to it: from the first to below the second."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Pravega:
    """A client of Pravega, for blocking code. Threads may share it; a forked child needs its own.

    With a controller it finds the server of each segment. With the address of a segment store it needs none: all
    segments are there then, and a stream is made of those numbered from 0 on in epoch 0. Connections are made when
    they are needed, and anew when they are lost. Errors are those of the table from 9501 on, below
    :class:`~sbp_native.errors.PravegaError`; a call that changes something and may have been carried out raises
    ``IndeterminateError``. ``timeout`` is how long a call may take, in seconds; without, as long as :func:`connect`
    was told.
    """

    @property
    def address(self) -> str:
        """``host:port`` of the controller, or of the segment store."""
    def writer(self, stream: str) -> PravegaWriter:
        """A writer of events for the stream ``scope/stream``, which asks for its segments when it is first used."""
    def read(
        self,
        stream: str,
        *,
        start: _PravegaPlace | Mapping[_Segment, _PravegaPlace] = "earliest",
        end: _PravegaPlace | Mapping[_Segment, _PravegaPlace | None] | None = None,
        timeout: float | None = None,
    ) -> Batches:
        """The events of the stream ``scope/stream`` as batches; those of one segment in their order.

        ``start`` is ``"earliest"`` or ``"latest"``, ``end`` is ``"latest"`` or ``None``: then reading goes on and waits
        for what is written. Both may be mappings from segments to such places or to bytes of the segment at which an
        event begins; the segments named are those that are read, and none that follow them. Without a mapping the
        segments that follow a sealed one are read behind it. "Earliest" and "latest" are what they are when reading
        begins. ``timeout`` is how long a step may take; one that goes on waits so long for an event before it raises
        ``TimeoutError``, or for ever without it. After an error the next step goes on.

        Batches are those of streams: ``stream`` is the segment's name, ``stream_id`` its number, offsets are the bytes
        at which events begin. Events have no key and no time (0).

        Raises ``PravegaOutOfRangeError`` where the segment was truncated before it was read, and goes on behind the
        gap; ``PravegaFramingError`` where bytes are no events, behind which nothing can be read. Pravega wire
        protocol: Read Segment.
        """
    def scopes(self, *, timeout: float | None = None) -> list[str]:
        """The scopes that the controller has, Pravega's own among them."""
    def streams(self, scope: str, *, timeout: float | None = None) -> list[str]:
        """The streams of a scope, each as ``scope/stream``, Pravega's own among them (``_MARK…``, ``_RG…``)."""
    def segments(self, stream: str, *, timeout: float | None = None) -> list[SegmentInfo]:
        """The segments of a stream that are open. Raises ``PravegaUnknownNameError``."""
    def create_scope(self, scope: str, *, timeout: float | None = None) -> None:
        """Makes a scope; raises ``PravegaRefusedError`` if it exists. A segment store alone has none: no effect."""
    def create_stream(self, stream: str, segments: int = 1, *, timeout: float | None = None) -> None:
        """Makes a stream with so many segments. Raises ``PravegaRefusedError`` if it exists."""
    def seal_stream(self, stream: str, *, timeout: float | None = None) -> None:
        """Nothing more is written to the stream from then on."""
    def delete_stream(self, stream: str, *, timeout: float | None = None) -> None:
        """Removes a stream that is sealed."""
    def truncate_segment(self, stream: str, segment: _Segment, offset: int, *, timeout: float | None = None) -> None:
        """Removes the bytes of a segment that are before ``offset``. Pravega wire protocol: type 38."""
    def stats(self) -> dict[str, int]:
        """Counters since the client was made: ``events`` that were read, events that were ``written``, and
        ``lost_bytes``, which were gone before they were read.
        """
    def close(self) -> None:
        """Ends the connections. What has no answer yet fails; whether it was done is not known then."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class PravegaWriter:
    """Writes events to a stream of Pravega, each exactly once, for blocking code. Threads may share it.

    Events with the same key are read in the order in which they were written. Each segment has one append under way;
    what comes meanwhile goes with the next one, so that threads that write at the same time share appends. After a
    connection is lost the server says which events it has, and the others are sent again, for up to two minutes.
    """

    @property
    def stream(self) -> str:
        """``scope/stream``."""
    def append(self, event: Buffer, key: str | None = None, *, timeout: float | None = None) -> None:
        """Writes an event, and returns when it is stored. ``event`` is bytes-like, of 8 MiB at most.

        ``key`` is its routing key: the segment that it goes to is chosen by it; without one they take turns.

        Raises ``PravegaLimitError``, ``PravegaRefusedError`` where the stream is sealed, ``PravegaUnknownNameError``
        where there is none, ``IndeterminateError`` where it may be stored. After ``OutcomeUnknownTimeoutError`` it is
        written nevertheless, once. Pravega wire protocol: Setup Append, Append Block End.
        """
    def append_many(
        self, events: Iterable[Buffer | tuple[str | None, Buffer]], *, timeout: float | None = None
    ) -> None:
        """Writes events, each bytes-like or a pair ``(key, event)``, and returns when all are stored.

        They are not stored all or none: after an error some may be. Errors are those of ``append``.
        """
    def close(self) -> None:
        """Waits until everything is stored, or is known not to be."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class AsyncPravega:
    """A client of Pravega, for asyncio; see :class:`~sbp_native.pravega.Pravega`.

    It connects when it is awaited or entered.
    """

    @property
    def address(self) -> str:
        """``host:port`` of the controller, or of the segment store."""
    def writer(self, stream: str) -> AsyncPravegaWriter:
        """A writer of events for the stream ``scope/stream``, which asks for its segments when it is first used."""
    def read(
        self,
        stream: str,
        *,
        start: _PravegaPlace | Mapping[_Segment, _PravegaPlace] = "earliest",
        end: _PravegaPlace | Mapping[_Segment, _PravegaPlace | None] | None = None,
        timeout: float | None = None,
    ) -> AsyncBatches:
        """The events of a stream as batches, for ``async for``; see :meth:`~sbp_native.pravega.Pravega.read`."""
    def scopes(self, *, timeout: float | None = None) -> Operation[list[str]]:
        """The scopes that the controller has, Pravega's own among them."""
    def streams(self, scope: str, *, timeout: float | None = None) -> Operation[list[str]]:
        """The streams of a scope, each as ``scope/stream``, Pravega's own among them (``_MARK…``, ``_RG…``)."""
    def segments(self, stream: str, *, timeout: float | None = None) -> Operation[list[SegmentInfo]]:
        """The segments of a stream that are open. Raises ``PravegaUnknownNameError``."""
    def create_scope(self, scope: str, *, timeout: float | None = None) -> Operation[None]:
        """Makes a scope; raises ``PravegaRefusedError`` if it exists. A segment store alone has none: no effect."""
    def create_stream(self, stream: str, segments: int = 1, *, timeout: float | None = None) -> Operation[None]:
        """Makes a stream with so many segments. Raises ``PravegaRefusedError`` if it exists."""
    def seal_stream(self, stream: str, *, timeout: float | None = None) -> Operation[None]:
        """Nothing more is written to the stream from then on."""
    def delete_stream(self, stream: str, *, timeout: float | None = None) -> Operation[None]:
        """Removes a stream that is sealed."""
    def truncate_segment(
        self, stream: str, segment: _Segment, offset: int, *, timeout: float | None = None
    ) -> Operation[None]:
        """Removes the bytes of a segment that are before ``offset``. Pravega wire protocol: type 38."""
    def stats(self) -> dict[str, int]:
        """Counters since the client was made: ``events`` that were read, events that were ``written``, and
        ``lost_bytes``, which were gone before they were read.
        """
    def close(self) -> Operation[None]:
        """Ends the connections. What has no answer yet fails; whether it was done is not known then."""
    def __await__(self) -> Generator[Any, None, Self]: ...
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class AsyncPravegaWriter:
    """Writes events to a stream of Pravega, each exactly once, for asyncio; see
    :class:`~sbp_native.pravega.PravegaWriter`. Tasks that write at the same time share appends.
    """

    @property
    def stream(self) -> str:
        """``scope/stream``."""
    def append(self, event: Buffer, key: str | None = None, *, timeout: float | None = None) -> Operation[None]:
        """Writes an event; see :meth:`~sbp_native.pravega.PravegaWriter.append`."""
    def append_many(
        self, events: Iterable[Buffer | tuple[str | None, Buffer]], *, timeout: float | None = None
    ) -> Operation[None]:
        """Writes events; see :meth:`~sbp_native.pravega.PravegaWriter.append_many`."""
    def close(self) -> Operation[None]:
        """Waits until everything is stored, or is known not to be."""
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...

def pravega_connect(
    controller: str | None = None, *, segment_store: str | None = None, timeout: float = 30.0, token: str = ""
) -> Pravega:
    """Connects to the Pravega controller at ``host:port``, or to a segment store, and returns when it has answered.

    Give one of the two. ``timeout`` is how long calls may take that are given no time of their own, in seconds;
    ``token`` a delegation token that segment stores ask for. Raises ``PravegaLostError`` where no server is reached.
    """

def pravega_aio_connect(
    controller: str | None = None, *, segment_store: str | None = None, timeout: float = 30.0, token: str = ""
) -> AsyncPravega:
    """A client of Pravega for asyncio, which connects when it is awaited or entered; see :func:`connect`."""

@final
class TopicInfo:
    """A topic of a TANK broker."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def partitions(self) -> int:
        """How many partitions it has."""
    @property
    def enabled(self) -> bool:
        """Whether the broker serves it."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class PartitionInfo:
    """Where a partition of a TANK topic begins and ends."""

    @property
    def partition(self) -> int:
        """Its number in the topic, from 0."""
    @property
    def first(self) -> int:
        """The sequence number of the first message that is kept; 0 while there is none."""
    @property
    def high_water(self) -> int:
        """That of the last message; 0 while there is none."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Broker:
    """A connection to a TANK broker, for blocking code. Threads may share it; a forked child needs its own.

    It is made anew whenever it is lost; brokers close those that are idle. Where the broker names another one that
    leads a partition, that one is asked, once. Errors are those of the table from 9301 on, below
    :class:`~sbp_native.errors.TankError`; a ``produce`` or ``create_topic`` that may have been carried out raises
    ``IndeterminateError``. ``timeout`` is how long a call may take, in seconds; without, as long as :func:`connect`
    was told.
    """

    @property
    def address(self) -> str:
        """``host:port`` of the broker."""
    def produce(
        self,
        topic: str,
        partition: int,
        records: Iterable[Buffer | tuple[Buffer | None, Buffer]],
        *,
        timestamp: _Time | None = None,
        timeout: float | None = None,
    ) -> None:
        """Has the broker store messages, all in one bundle, and returns when it has.

        ``records`` is an iterable of bytes-like objects, or of pairs ``(key, content)``; a key is bytes-like, of at
        most 255 bytes, or ``None``. ``timestamp`` is the time of all of them; without, now. The broker numbers them
        and does not say how. Nothing is sent again by itself once it may have been stored: TANK knows no repeats.

        Raises ``TankUnknownNameError`` for a topic or partition that is not there, ``TankLimitError`` for a key or a
        bundle that is too long, ``IndeterminateError`` where the answer was not seen. TANK protocol: message 1.
        """
    def read(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        start: _TankStart | Mapping[int, _TankStart] = "earliest",
        end: _TankPlace | Mapping[int, _TankPlace | None] | None = None,
        timeout: float | None = None,
    ) -> Batches:
        """The messages of a topic as batches: all partitions, or one, or several; those of one in their order.

        ``start`` and ``end`` are places in every partition, or a mapping from partitions to places: ``"earliest"``,
        ``"latest"``, ``"earliest+10"``, ``"latest-1000"`` or a sequence number; ``end`` is ``"latest"``, the number
        in front of which to stop, or ``None``: then reading goes on and waits for what is produced. "Earliest" and
        "latest" are what they are when reading begins. A ``start`` may also be a ``datetime`` with its zone, or a
        ``timedelta`` of age: the first message of that time or later, found by halves, where the times of messages do
        not go back. ``timeout`` is how long a step may take; one that goes on
        waits so long for a message before it raises ``TimeoutError``, or for ever without it. After an error the next
        step goes on.

        Batches are those of streams: ``stream`` is ``"topic/partition"``, ``stream_id`` the partition, offsets are
        sequence numbers, which may have gaps where compaction has left messages out.

        Raises ``TankOutOfRangeError`` where messages were gone before they were read, and goes on behind the gap;
        ``TankFramingError`` and ``TankCompressionError`` for a bundle that is damaged. TANK protocol: message 2.
        """
    def topics(self, *, timeout: float | None = None) -> list[TopicInfo]:
        """The topics that the broker has. TANK protocol: message 11."""
    def partitions(self, topic: str, *, timeout: float | None = None) -> list[PartitionInfo]:
        """Where the partitions of a topic begin and end; those that nobody serves at the moment are left out.

        Raises ``TankUnknownNameError``. TANK protocol: message 6.
        """
    def create_topic(self, topic: str, partitions: int = 1, *, timeout: float | None = None) -> None:
        """Makes a topic with so many partitions. Raises ``TankRefusedError`` if it exists. TANK protocol: message 7."""
    def stats(self) -> dict[str, int]:
        """Counters since the client was made: ``messages`` that were read; numbers between them that were ``skipped``,
        because compaction has left their messages out; messages that were ``lost``, gone before they were read.
        """
    def close(self) -> None:
        """Ends the connection. What has no answer yet fails; whether it was done is not known then."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class AsyncBroker:
    """A connection to a TANK broker, for asyncio; see :class:`~sbp_native.tank.Broker`.

    It connects when it is awaited or entered.
    """

    @property
    def address(self) -> str:
        """``host:port`` of the broker."""
    def produce(
        self,
        topic: str,
        partition: int,
        records: Iterable[Buffer | tuple[Buffer | None, Buffer]],
        *,
        timestamp: _Time | None = None,
        timeout: float | None = None,
    ) -> Operation[None]:
        """Has the broker store messages; see :meth:`~sbp_native.tank.Broker.produce`."""
    def read(
        self,
        topic: str,
        partitions: int | Iterable[int] | None = None,
        *,
        start: _TankStart | Mapping[int, _TankStart] = "earliest",
        end: _TankPlace | Mapping[int, _TankPlace | None] | None = None,
        timeout: float | None = None,
    ) -> AsyncBatches:
        """The messages of a topic as batches, for ``async for``; see :meth:`~sbp_native.tank.Broker.read`."""
    def topics(self, *, timeout: float | None = None) -> Operation[list[TopicInfo]]:
        """The topics that the broker has."""
    def partitions(self, topic: str, *, timeout: float | None = None) -> Operation[list[PartitionInfo]]:
        """Where the partitions of a topic begin and end; see :meth:`~sbp_native.tank.Broker.partitions`."""
    def create_topic(self, topic: str, partitions: int = 1, *, timeout: float | None = None) -> Operation[None]:
        """Makes a topic with so many partitions. Raises ``TankRefusedError`` if it exists."""
    def stats(self) -> dict[str, int]:
        """Counters since the client was made: ``messages`` that were read; numbers between them that were ``skipped``,
        because compaction has left their messages out; messages that were ``lost``, gone before they were read.
        """
    def close(self) -> Operation[None]:
        """Ends the connection. What has no answer yet fails; whether it was done is not known then."""
    def __await__(self) -> Generator[Any, None, Self]: ...
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

def tank_connect(address: str, *, timeout: float = 30.0) -> Broker:
    """Connects to the TANK broker at ``host:port``, and returns when it has greeted.

    ``timeout`` is how long calls may take that are given no time of their own, in seconds. Raises ``TankLostError``
    where no broker can be reached.
    """

def tank_aio_connect(address: str, *, timeout: float = 30.0) -> AsyncBroker:
    """A TANK broker's client for asyncio, which connects when it is awaited or entered; see :func:`connect`."""

@final
class Rpc:
    """A connection to a Seastar RPC service, made by :func:`~sbp_native._native.seastar_connect`.

    It is made again when there is something to say and it was lost. A call that was sent when it was lost fails;
    whether it was carried out is not known then.
    """

    @property
    def address(self) -> str:
        """``host:port`` of the service."""
    def call(self, verb: int, data: Buffer | None = None, *, timeout: float | None = None) -> bytes:
        """Calls a verb with arguments as bytes, and returns what it returned as bytes.

        A service may never answer. After ``timeout`` seconds, which the service is told, the call fails with
        ``OutcomeUnknownTimeoutError``. Raises ``SeastarRefusedError`` where the verb's handler has failed, and
        ``SeastarUnknownVerbError`` where there is none.
        """
    def send(self, verb: int, data: Buffer | None = None, *, timeout: float | None = None) -> None:
        """Calls a verb that has no reply, and returns when the call is written. What becomes of it is not known."""
    def verb(self, number: int, takes: str = "", returns: str | None = "") -> Verb:
        """A verb as a function.

        ``takes`` and ``returns`` are types separated by spaces: ``i8`` ``i16`` ``i32`` ``i64`` ``u8`` ``u16`` ``u32``
        ``u64`` ``f32`` ``f64`` ``bool`` ``bytes`` ``str`` ``stream``, ``[T]`` for a list of T, and ``T?`` at the end
        for what may be missing. ``returns=None`` is a verb that has no reply.
        """
    def stream(self) -> RpcStream:
        """Opens a stream: a second connection, which ends with this one. A verb is then given the stream."""
    def close(self) -> None:
        """Ends the connections. What has no reply yet fails."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class AsyncRpc:
    """A connection to a Seastar RPC service, for asyncio; see :class:`~sbp_native.seastar.Rpc`.

    It connects when it is awaited or entered.
    """

    @property
    def address(self) -> str:
        """``host:port`` of the service."""
    def call(self, verb: int, data: Buffer | None = None, *, timeout: float | None = None) -> Operation[bytes]:
        """Calls a verb with arguments as bytes; see :meth:`~sbp_native.seastar.Rpc.call`."""
    def send(self, verb: int, data: Buffer | None = None, *, timeout: float | None = None) -> Operation[None]:
        """Calls a verb that has no reply; see :meth:`~sbp_native.seastar.Rpc.send`."""
    def verb(self, number: int, takes: str = "", returns: str | None = "") -> AsyncVerb:
        """A verb as a function; see :meth:`~sbp_native.seastar.Rpc.verb`."""
    def stream(self) -> Operation[AsyncRpcStream]:
        """Opens a stream; see :meth:`~sbp_native.seastar.Rpc.stream`."""
    def close(self) -> Operation[None]:
        """Ends the connections. What has no reply yet fails."""
    def __await__(self) -> Generator[Any, None, Self]: ...
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Verb:
    """A verb of a service as a function, made by :meth:`~sbp_native.seastar.Rpc.verb`."""

    @property
    def number(self) -> int:
        """Its number."""
    def __call__(self, *values: Any, timeout: float | None = None) -> Any:
        """Calls it, and returns what it returned: ``None``, one value, or a tuple of several.

        Raises ``TypeError`` for values of other types than it takes, ``SeastarOutOfRangeError`` for a number that its
        type cannot have, and what :meth:`~sbp_native.seastar.Rpc.call` raises.
        """

@final
class AsyncVerb:
    """A verb of a service as a function, for asyncio; see :class:`~sbp_native.seastar.Verb`."""

    @property
    def number(self) -> int:
        """Its number."""
    def __call__(self, *values: Any, timeout: float | None = None) -> Operation[Any]:
        """Calls it; see :meth:`~sbp_native.seastar.Verb.__call__`."""

@final
class RpcStream:
    """Messages in both directions, on a connection of their own. Each side ends its own direction.

    Iterating takes the peer's messages to its end. A stream that is lost before its end raises ``SeastarPeerError``.
    Left with ``with``, it is cut unless both sides have ended it.
    """

    @property
    def id(self) -> int:
        """The id of its connection, which a verb is given."""
    def send(self, data: Buffer, *, timeout: float | None = None) -> None:
        """Sends a message of at least a byte. Waits while the peer does not take those before it."""
    def end(self, *, timeout: float | None = None) -> None:
        """Ends this side's direction."""
    def receive(self, *, timeout: float | None = None) -> bytes | None:
        """The next message of the peer; ``None`` after its last one."""
    def abort(self) -> None:
        """Cuts the stream."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class AsyncRpcStream:
    """Messages in both directions, for asyncio; see :class:`~sbp_native.seastar.RpcStream`."""

    @property
    def id(self) -> int:
        """The id of its connection, which a verb is given."""
    def send(self, data: Buffer, *, timeout: float | None = None) -> Operation[None]:
        """Sends a message; see :meth:`~sbp_native.seastar.RpcStream.send`."""
    def end(self, *, timeout: float | None = None) -> Operation[None]:
        """Ends this side's direction."""
    def receive(self, *, timeout: float | None = None) -> Operation[bytes | None]:
        """The next message of the peer; ``None`` after its last one."""
    def abort(self) -> None:
        """Cuts the stream."""
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Operation[bytes]: ...
    def __aenter__(self) -> Operation[Self]: ...
    def __aexit__(self, *_exception: object) -> Operation[None]: ...

@final
class RpcServer:
    """Where clients of Seastar RPC connect: what :class:`~sbp_native.seastar.Server` is made of."""

    def __new__(cls, listen: str, *, compression: Sequence[str], insecure_listen: bool = False) -> Self: ...
    @property
    def address(self) -> str:
        """Where clients connect, ``host:port``."""
    def next_calls(self) -> Operation[list[RpcCall]]:
        """Up to 256 calls that wait; none when the server was closed."""
    def reply_all(self, replies: Sequence[tuple[RpcCall, bytes | str | None]]) -> None:
        """Answers calls: with what each returned as bytes, or with why it failed as a text, or with ``None`` where
        there is no such verb.
        """
    def close(self) -> Operation[None]:
        """Accepts nobody more, and ends all connections."""

@final
class RpcCall:
    """A call of a client."""

    @property
    def verb(self) -> int:
        """What is to be done."""
    @property
    def client(self) -> str:
        """Where the client is, ``host:port``."""
    @property
    def isolation(self) -> bytes | None:
        """The client's isolation cookie."""
    @property
    def time_left(self) -> float | None:
        """For how many seconds the client still waits; ``None`` where it does not say."""
    def arguments(self, takes: str) -> tuple[Any, ...]:
        """The arguments, of these types. Raises ``ValueError`` where they are not of these types."""

def seastar_connect(
    address: str,
    *,
    compression: Sequence[str] = (),
    isolation: Buffer | None = None,
    timeout: float = 30.0,
) -> Rpc:
    """Connects to the Seastar RPC service at ``host:port``, and returns when both sides have said what they can.

    ``compression`` are the ways to compress that the service is offered, the best first: ``"LZ4"``,
    ``"LZ4_FRAGMENTED"``. ``isolation`` is a cookie by which the service may choose how it schedules the connection.
    ``timeout`` is how long calls may take that are given no time of their own, in seconds. Raises ``SeastarLostError``
    where no service can be reached.
    """

def seastar_aio_connect(
    address: str,
    *,
    compression: Sequence[str] = (),
    isolation: Buffer | None = None,
    timeout: float = 30.0,
) -> AsyncRpc:
    """A service's client for asyncio, which connects when it is awaited or entered; see :func:`connect`."""

def seastar_result(value: object, returns: str) -> bytes:
    """What a handler has returned as the bytes of its reply."""

@final
class SpanReader:
    """Reads spans of streams as one Arrow stream, in the order of the spans: for Spark's workers.

    Rows are gathered into batches of 4,096 to 16,384. The consumer pulls without the interpreter lock. An error's text
    begins with ``[SBP-nnnn]`` and says everything, because Arrow carries nothing else.
    """

    def __new__(
        cls,
        servers: Client | str,
        spans: Sequence[tuple[int, int, int]],
        columns: Literal["records", "kafka", "arrow"] = "records",
        projection: Sequence[str] | None = None,
        include_headers: bool = False,
        include_metadata: bool = False,
        timeout: float = 30.0,
    ) -> Self:
        """``spans`` are (stream id, first offset, offset behind the last). Given servers, it makes its own client."""
    @property
    def schema(self) -> object:
        """The schema of what is read, as an Arrow capsule."""
    @property
    def error(self) -> BaseException | None:
        """Why the Arrow stream ended early, as an exception of ours; ``None`` if it did not."""
    def __arrow_c_schema__(self) -> object:
        """The same."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, once."""

@final
class PeerSpanReader:
    """Reads spans of what a service of another protocol holds as one Arrow stream of ``records`` columns: for Spark.

    ``tank_spans`` and ``pravega_spans`` make one. The spans come in their order. The consumer pulls without the
    interpreter lock. A service that is away, or does not serve what is wanted at the moment, is asked again until
    ``timeout`` seconds have brought nothing.
    """

    @property
    def covered(self) -> int:
        """How many numbers of the spans are done with: those of the records that were handed out up to now, and those
        in front of and between them that no record has: what compaction has left out, or the bytes of events. At the
        end of the stream it is all of them, unless a sealed segment is shorter than its span.
        """
    @property
    def error(self) -> BaseException | None:
        """Why the Arrow stream ended early, as an exception of ours, for the first that asks; else ``None``."""
    def __arrow_c_schema__(self) -> object:
        """The schema of what is read."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, once."""

@final
class BatchAppender:
    """Appends record batches with a bounded number on their way, many streams in a frame: for Spark's workers."""

    def __new__(
        cls,
        servers: str | Client,
        stream: str | None = None,
        body: Literal["records", "arrow"] = "records",
        timeout: float = 30.0,
        max_in_flight: int = 16,
        *,
        writer_id: bytes | None = None,
        epoch: int = 0,
        batch_rows: int = 10_000,
        batch_bytes: int = 1_048_576,
        compression: Literal["none", "lz4", "zstd"] | None = None,
        create_streams: bool = False,
        replicas: int | None = None,
        acks: int | None = None,
    ) -> Self:
        """With ``stream`` everything goes there; without, rows name their stream in ``stream`` or ``stream_id``.

        Batches end where the number or the bytes of their rows say so, however rows arrive. With a ``writer_id`` of 16
        bytes the same rows, appended once more in the same ``epoch``, are stored once; others in their place raise
        `SequenceError`.
        """
    def append(self, batch: _ArrowArray) -> None:
        """Takes one record batch; waits only while too much is on its way."""
    def finish(self) -> list[tuple[int, int, int, int]]:
        """Sends what is left and waits for every acknowledgement: (stream id, first offset, last offset, records).

        Offsets are -1 where the server no longer knows where it had stored a repeat.
        """
    def close(self) -> None:
        """Gives up on what is on its way."""

@final
class Bridge:
    """The completion bridge of one event loop. Internal."""

    def drain(self) -> None:
        """Takes what has arrived and resumes the tasks that wait for it."""
    def flush(self) -> None:
        """Hands this tick's appends to their clients."""
    def counts(self) -> tuple[int, int, int]:
        """Wake-ups, completions, operations on their way."""

def stream_bounds(
    client: Client, ids: Sequence[int], timeout: float | None = None
) -> tuple[dict[int, int], dict[int, int]]:
    """Where streams begin, and where they end, by id; streams that do not exist are left out. For Spark's driver."""

def stream_offsets_at(client: Client, ids: Sequence[int], time_ms: int, timeout: float | None = None) -> dict[int, int]:
    """What :meth:`Client.offsets_for_time` finds, by id; streams that do not exist are left out. For Spark's driver."""

def stream_list(
    client: Client, place: bytes, timeout: float | None = None
) -> tuple[list[tuple[int, str, bytes | None, str | None]], bytes]:
    """The streams (id, name, schema, identity) behind a place in the list of all, and the place to ask from next time:
    it shows the last of these again, and what was created meanwhile. An empty place is the beginning. For Spark's
    driver.
    """

def tank_bounds(
    broker: Broker, topics: Sequence[str], timeout: float | None = None
) -> list[list[tuple[int, int] | None] | None]:
    """Where partitions begin and end, a list for each topic: their first and last numbers, both 0 while there is none.

    ``None`` stands for a topic that there is not, and for a partition that nobody serves at the moment. For Spark's
    driver.
    """

def tank_numbers_at(
    broker: Broker, topic: str, partitions: Sequence[int], time_ms: int, timeout: float | None = None
) -> list[int | None]:
    """The number of the first message of each partition that has a time, in milliseconds since 1970, or a later one.

    Where none has, it is that of the next message to be produced; ``None`` stands for a partition that nobody serves at
    the moment. For Spark's driver.
    """

def tank_spans(
    broker: Broker,
    spans: Sequence[tuple[str, int, int, int]],
    projection: Sequence[str] | None = None,
    include_headers: bool = False,
    timeout: float = 30.0,
) -> PeerSpanReader:
    """Reads spans of partitions: each (topic, partition, first number, number behind the last). For Spark's tasks."""

def pravega_segments(client: Pravega, stream: str, timeout: float | None = None) -> list[tuple[str, list[str]]] | None:
    """The names of a stream's segments, each with the names of those that it follows, which stand before it.

    ``None``: there is no such stream. For Spark's driver.
    """

def pravega_bounds(
    client: Pravega, segments: Sequence[str], timeout: float | None = None
) -> list[tuple[int, int, bool] | None]:
    """Where segments begin and end, in bytes, and whether they are sealed; ``None`` for one that there is not.

    For Spark's driver.
    """

def pravega_event_end(client: Pravega, name: str, start: int, limit: int, timeout: float | None = None) -> int:
    """Where the last event of a segment ends that ends at byte ``limit`` or in front of it, of those from ``start`` on.

    Where the first one ends behind that byte, it is the end of that one. The events are read for it. For Spark's
    driver.
    """

def pravega_spans(
    client: Pravega,
    spans: Sequence[tuple[str, int, int]],
    projection: Sequence[str] | None = None,
    include_headers: bool = False,
    timeout: float = 30.0,
) -> PeerSpanReader:
    """Reads spans of segments: each (segment, first byte, byte behind the last), where events begin at both bytes.

    For Spark's tasks.
    """

def digest_rows(batch: _ArrowArray) -> int:
    """What the rows of a record batch hold, as one number of 64 bits. For the commits of Spark's sinks.

    It is the sum over the rows, modulo 2**64, so the order of the rows, of the columns and the limits of batches do not
    matter. A null counts for nothing. The same rows give the same number in every release.
    """

def pack_varints(numbers: Sequence[int]) -> bytes:
    """Numbers from 0 on as bytes, seven bits in each. For the offsets of Spark's queries."""

def unpack_varints(packed: bytes) -> list[int]:
    """What ``pack_varints`` packed."""

def after_fork_in_child() -> list[int]:
    """Starts a new generation; returns the descriptors that the child has to close. For the fork hook only."""

def stop_all() -> None:
    """Stops embedded servers and proxies that still run. For the exit hook only."""

def warn_unflushed() -> None:
    """Flushes writers, and warns of those and of clients with records not acknowledged. For the exit hook only."""

def shut_down() -> None:
    """Stops the I/O thread without waiting for it. For the exit hook only."""

def run_cli(arguments: Sequence[str]) -> int:
    """Runs the ``sbp`` command; ``arguments`` begin with the program's name. Returns the exit status."""

def error_codes() -> list[tuple[int, str, str, str, bool, str, str]]:
    """The error table: code, name, class, retry, whether it may have been done, what happened, what to do."""

def io_threads_attach() -> bool:
    """Has an I/O thread try to attach to the interpreter; ``True`` if it got in, which must not happen. For tests."""

def io_threads_drop(value: object) -> None:
    """Has an I/O thread drop a Python object, which ends the process. For tests."""
