"""What lives once per process: the client, and a worker's garbage collector settings.

Spark pickles the source, its readers and writers into other processes. They carry options only; whoever needs a client
asks here, in the process in which it works.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from .errors import UNAVAILABLE, SbpSparkError, explained

if TYPE_CHECKING:
    import sbp_native

    from .options import SbpOptions

_clients: dict[tuple[int, str, float], sbp_native.Client] = {}
_prepared_by: int | None = None


def native() -> object:
    """The extension module.

    Raises `SbpSparkError` if it is not installed in this process's environment, which on a cluster means: not on
    this executor.
    """
    try:
        from sbp_native import _native
    except ImportError as error:
        raise SbpSparkError(
            UNAVAILABLE,
            f"the native part of sbp-native cannot be loaded here ({error}): install the wheel for this Python on the "
            "driver and on every executor",
        ) from error
    return _native


def client(options: SbpOptions) -> sbp_native.Client:
    """This process's client for these servers; made at first use and kept.

    A forked child has another process id and so makes its own.
    """
    native()
    import sbp_native

    key = (os.getpid(), options.servers, options.timeout)
    found = _clients.get(key)
    if found is None:
        with explained("connecting", options.servers):
            found = sbp_native.connect(options.servers, timeout=options.timeout)
        _clients[key] = found
    return found


def prepare_worker() -> None:
    """Once per worker process: takes what is loaded by now out of the garbage collector's sight.

    Spark's worker collects after every task, and with pyspark, pandas and pyarrow loaded that costs 40 ms of CPU for
    nothing each time.
    """
    global _prepared_by
    if _prepared_by != os.getpid():
        _prepared_by = os.getpid()
        gc.collect()
        gc.freeze()
