"""Clients of other protocols in Spark's processes: made once for each, asked patiently, read as Arrow."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sbp_native.errors import SbpError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    import pyarrow as pa

    from sbp_native._native import PeerSpanReader

_C = TypeVar("_C")
_T = TypeVar("_T")

#: Seconds before a service is asked again that could not answer.
_PAUSE: Final = 0.1

_clients: dict[Hashable, Any] = {}


def patiently(key: Hashable, connect: Callable[[], _C], timeout: float, call: Callable[[_C, float], _T]) -> _T:
    """Makes a call, given the seconds that are left of `timeout`, until they are over or trying again does not help.

    The client is this process's for `key`, which `connect` makes at first use; a forked child makes its own.
    """
    deadline = time.monotonic() + timeout
    place = (os.getpid(), key)
    while True:
        left = max(deadline - time.monotonic(), _PAUSE)
        try:
            if place not in _clients:
                _clients[place] = connect()
            return call(_clients[place], left)
        except SbpError as error:
            if error.retriable is not True or time.monotonic() + _PAUSE >= deadline:
                raise
        time.sleep(_PAUSE)


def rows(reader: PeerSpanReader) -> Iterator[tuple[pa.RecordBatch | None, int]]:
    """What `Service.read` gives, of a reader."""
    import pyarrow as pa

    before = 0
    try:
        for batch in pa.RecordBatchReader.from_stream(reader):
            covered = reader.covered
            yield batch, covered - before
            before = covered
    except (pa.ArrowException, OSError):
        # Arrow's interface hands on a text alone; the reader keeps the error that it was.
        error = reader.error
        if error is not None:
            raise error from None
        raise
    yield None, reader.covered - before
