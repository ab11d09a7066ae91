"""Every exception that sbp_native raises on its own account.

The tree has two halves below :class:`SbpError`, so that a caller can tell what became of an append:

* :class:`RejectedError`: certainly not done. Nothing was written.
* :class:`IndeterminateError`: perhaps done. Read the stream to find out, or make the append repeatable.

Where Python has the word, a class is also the built-in exception: ``except TimeoutError`` and
``except ConnectionError`` work as expected. The classes that a server's answer can become follow the error table of the
protocol; a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import Ack

__all__ = [
    "SbpError",
    "RejectedError",
    "IndeterminateError",
    "InvalidRequestError",
    "PayloadTooLargeError",
    "SchemaMismatchError",
    "BatchCorruptError",
    "UnsupportedError",
    "AccessDeniedError",
    "NotFoundError",
    "StreamNotFoundError",
    "StreamReplacedError",
    "RangeNotFoundError",
    "AlreadyExistsError",
    "PreconditionFailedError",
    "CursorTakenError",
    "SequenceError",
    "WriterFencedError",
    "RangeSealedError",
    "OffsetOutOfRangeError",
    "ThrottledError",
    "BackPressureError",
    "UnavailableError",
    "ConnectionFailedError",
    "TlsError",
    "StorageFullError",
    "DataCorruptedError",
    "DataLossError",
    "DeadlineExceededError",
    "ClosedError",
    "ForkedClientError",
    "ServerError",
    "LogFailedError",
    "ProtocolError",
    "ConnectionLostError",
    "OutcomeUnknownTimeoutError",
    "ServerStartError",
    "PortTakenError",
    "DirectoryLockedError",
    "ServerConfigError",
    "TankError",
    "TankFramingError",
    "TankLimitError",
    "TankCompressionError",
    "TankPeerError",
    "TankRefusedError",
    "TankLostError",
    "TankUnknownNameError",
    "TankOutOfRangeError",
    "SeastarError",
    "SeastarFramingError",
    "SeastarLimitError",
    "SeastarCompressionError",
    "SeastarPeerError",
    "SeastarRefusedError",
    "SeastarLostError",
    "SeastarUnknownVerbError",
    "SeastarOutOfRangeError",
    "PravegaError",
    "PravegaFramingError",
    "PravegaLimitError",
    "PravegaPeerError",
    "PravegaRefusedError",
    "PravegaLostError",
    "PravegaUnknownNameError",
    "PravegaOutOfRangeError",
]


class SbpError(Exception):
    """The root: what went wrong, where, and whether to try again.

    The message is one line: ``[SBP-code] what; stream, range, offset; server; attempts; retriable or not; what to do``.
    ``docs/errors.md`` lists all codes.
    """

    code: int
    """The server's error code; from 9000 on, one of this side's own."""
    retriable: bool
    """Whether the same call may succeed later without anything being changed."""
    indeterminate: bool
    """Whether the call may have taken effect in spite of the error."""
    stream: str | None
    """The stream's name, or its id where only that is known."""
    range: int | None
    """The range's index within the stream."""
    offset: int | None
    """The offset concerned; where a condition of an append does not hold, the stream's next offset."""
    endpoint: str | None
    """``host:port`` of the server that was asked last."""
    attempts: int
    """How many attempts were made; 0 when none could be."""
    acks: dict[str, Ack]
    """What an ``append_all`` did store before, or beside, the entry that failed."""

    def __init__(
        self,
        message: str = "",
        *,
        code: int = 0,
        retriable: bool = False,
        indeterminate: bool = False,
        stream: str | None = None,
        range: int | None = None,  # noqa: A002  (the protocol's word)
        offset: int | None = None,
        endpoint: str | None = None,
        attempts: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable
        self.indeterminate = indeterminate
        self.stream = stream
        self.range = range
        self.offset = offset
        self.endpoint = endpoint
        self.attempts = attempts
        self.acks = {}

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: value for name, value in self.__dict__.items() if name != "acks"}
        return type(self), self.args, facts


class RejectedError(SbpError):
    """Certainly not done: nothing was written."""


class IndeterminateError(SbpError):
    """Perhaps done: the call may have taken effect."""


class InvalidRequestError(RejectedError, ValueError):
    """The call itself is wrong; the message says which part of it."""


class PayloadTooLargeError(InvalidRequestError):
    """One batch is larger than a server takes (a little under 16 MiB)."""


class SchemaMismatchError(InvalidRequestError):
    """The data does not fit the stream's schema."""


class BatchCorruptError(InvalidRequestError):
    """A batch does not add up, or its checksum is wrong."""


class UnsupportedError(RejectedError):
    """The server does not serve this."""


class AccessDeniedError(RejectedError, PermissionError):
    """The server does not know the caller, or does not allow this to it."""


class NotFoundError(RejectedError, LookupError):
    """What was asked for is not there."""


class StreamNotFoundError(NotFoundError):
    """The stream is unknown, or was deleted."""


class StreamReplacedError(StreamNotFoundError):
    """The stream is gone, and another one has its number: the server lost its data, or was set up anew."""


class RangeNotFoundError(NotFoundError):
    """The range is not on the servers that were asked."""


class AlreadyExistsError(RejectedError):
    """The name is taken."""


class PreconditionFailedError(RejectedError):
    """Something that the call depended on is no longer so."""


class CursorTakenError(PreconditionFailedError):
    """Another holder of the cursor's name has committed; this one's commits are refused from now on."""


class SequenceError(RejectedError):
    """A writer's numbering has a gap or an overlap."""


class WriterFencedError(RejectedError):
    """A newer instance of this writer has taken over."""


class RangeSealedError(RejectedError):
    """The range takes no more records."""


class OffsetOutOfRangeError(RejectedError):
    """The offset lies outside what the stream holds."""


class ThrottledError(RejectedError):
    """The server asks for less."""


class BackPressureError(ThrottledError):
    """This client holds as much unfinished work as it may."""


class UnavailableError(RejectedError):
    """No server could serve the call."""


class ConnectionFailedError(UnavailableError, ConnectionError):
    """No server could be reached."""


class TlsError(ConnectionFailedError):
    """One side does not accept the other's certificate, or only one of them speaks TLS."""


class StorageFullError(RejectedError):
    """The server's disk is full."""


class DataCorruptedError(RejectedError):
    """What was read is damaged."""


class DataLossError(RejectedError):
    """Records that were asked for are gone."""


class DeadlineExceededError(RejectedError, TimeoutError):
    """The time was over before anything was done."""


class ClosedError(RejectedError):
    """The client, stream or server was closed."""


class ForkedClientError(ClosedError):
    """The object was made before a fork, by the parent process."""


class ServerError(IndeterminateError):
    """The server failed inside, or answered with a code that this client does not know."""


class LogFailedError(ServerError):
    """The server could not make data durable and takes no more."""


class ProtocolError(IndeterminateError):
    """The server broke the protocol."""


class ConnectionLostError(IndeterminateError, ConnectionError):
    """The connection broke before the answer came."""


class OutcomeUnknownTimeoutError(IndeterminateError, TimeoutError):
    """The time was over while the answer was awaited."""


class ServerStartError(RejectedError):
    """The embedded server did not start."""


class PortTakenError(ServerStartError, OSError):
    """Something else listens on the address."""


class DirectoryLockedError(ServerStartError, OSError):
    """Another server owns the data directory."""


class ServerConfigError(ServerStartError, ValueError):
    """The server was told something that cannot be."""


class TankError(RejectedError):
    """A call to a TANK broker failed; it was certainly not done."""


class TankFramingError(TankError):
    """A TANK broker's bytes are not those of its protocol."""


class TankLimitError(TankError, ValueError):
    """Something is longer than a TANK broker, or this side, takes."""


class TankCompressionError(TankError):
    """The compressed messages of a TANK broker's bundle are damaged."""


class TankPeerError(TankError):
    """A TANK broker answered something else than it was asked."""


class TankRefusedError(TankError):
    """A TANK broker did not do what was asked."""


class TankLostError(TankError, ConnectionError):
    """There is no connection to a TANK broker, or it was lost."""


class TankUnknownNameError(TankError, LookupError):
    """The TANK broker has no such topic or partition."""


class TankOutOfRangeError(TankError):
    """The message is not between the first one that the TANK broker keeps and the last one."""


class SeastarError(RejectedError):
    """A call to a Seastar RPC service failed, or was not sent."""


class SeastarFramingError(SeastarError):
    """A Seastar RPC peer's bytes are not those of the protocol, or not what the verb returns."""


class SeastarLimitError(SeastarError, ValueError):
    """Something is longer than a frame of Seastar RPC may be."""


class SeastarCompressionError(SeastarError):
    """A compressed frame of a Seastar RPC peer is damaged."""


class SeastarPeerError(SeastarError):
    """A Seastar RPC peer did what it should not, or a stream ended without its end."""


class SeastarRefusedError(SeastarError):
    """The handler of a verb has failed, and says why."""


class SeastarLostError(SeastarError, ConnectionError):
    """There is no connection to a Seastar RPC service, or it was lost."""


class SeastarUnknownVerbError(SeastarError, LookupError):
    """The Seastar RPC service has no such verb."""


class SeastarOutOfRangeError(SeastarError, ValueError):
    """A number is none that its type can have."""


class PravegaError(RejectedError):
    """A call to Pravega failed; it was certainly not done."""


class PravegaFramingError(PravegaError):
    """A Pravega server's bytes are not those of its protocol, or a segment's bytes are no events."""


class PravegaLimitError(PravegaError, ValueError):
    """Something is longer than Pravega, or this side, takes."""


class PravegaPeerError(PravegaError):
    """A Pravega server answered something else than it was asked."""


class PravegaRefusedError(PravegaError):
    """A Pravega server did not do what was asked."""


class PravegaLostError(PravegaError, ConnectionError):
    """There is no connection to a Pravega server, or it was lost."""


class PravegaUnknownNameError(PravegaError, LookupError):
    """Pravega has no such scope, stream or segment."""


class PravegaOutOfRangeError(PravegaError):
    """The events are before the first byte that the segment keeps."""
