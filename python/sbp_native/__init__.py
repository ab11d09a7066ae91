"""The Streaming Batch Protocol for Python: a client, blocking and for asyncio, and a durable server in one package.

    import sbp_native as sbp

    with sbp.Server() as server, sbp.connect(server.address) as client:
        orders = client.create_stream("orders")
        orders.append([b"first", b"second"])
        for batch in orders.read():
            print(batch.payloads)

Importing the package starts no thread and opens no socket. Arrow data goes in and out without pyarrow being needed;
:meth:`Batch.to_arrow` imports it when it is called.
"""

from __future__ import annotations

from . import _fork, aio, errors
from ._native import (
    Ack,
    AsyncBatches,
    AsyncClient,
    AsyncStream,
    Batch,
    Batches,
    Client,
    ClusterInfo,
    ClusterMember,
    Operation,
    Payload,
    Positions,
    Proxy,
    RangeInfo,
    Record,
    Relative,
    Server,
    Stream,
    StreamInfo,
    __version__,
    connect,
)
from .errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BackPressureError,
    BatchCorruptError,
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    CursorTakenError,
    DataCorruptedError,
    DataLossError,
    DeadlineExceededError,
    DirectoryLockedError,
    ForkedClientError,
    IndeterminateError,
    InvalidRequestError,
    LogFailedError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutcomeUnknownTimeoutError,
    PayloadTooLargeError,
    PortTakenError,
    PreconditionFailedError,
    ProtocolError,
    RangeNotFoundError,
    RangeSealedError,
    RejectedError,
    SbpError,
    SchemaMismatchError,
    SequenceError,
    ServerConfigError,
    ServerError,
    ServerStartError,
    StorageFullError,
    StreamNotFoundError,
    ThrottledError,
    UnavailableError,
    UnsupportedError,
    WriterFencedError,
)

__all__ = [
    # Talking to a server.
    "connect",
    "aio",
    "Client",
    "AsyncClient",
    "Stream",
    "AsyncStream",
    "StreamInfo",
    "RangeInfo",
    "ClusterInfo",
    "ClusterMember",
    "Positions",
    "Relative",
    # What comes back.
    "Ack",
    "Batch",
    "Batches",
    "AsyncBatches",
    "Record",
    "Payload",
    "Operation",
    # Being a server, and a bad network.
    "Server",
    "Proxy",
    # What goes wrong.
    "errors",
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
    "__version__",
]

_fork.install()
