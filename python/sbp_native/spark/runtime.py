"""What lives once per process: the client, and a worker's garbage collector settings.

Spark pickles the source, its readers and writers into other processes. They carry options only; whoever needs a client
asks here, in the process in which it works.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import sbp_native

from .errors import explained

if TYPE_CHECKING:
    from .options import SbpOptions

_clients: dict[tuple[object, ...], sbp_native.Client] = {}
_prepared_by: int | None = None


def client(options: SbpOptions) -> sbp_native.Client:
    """This process's client for these servers; made at first use and kept.

    A forked child has another process id and so makes its own.
    """
    settings = options.connect_settings()
    key = (os.getpid(), options.servers, *sorted(settings.items()))
    found = _clients.get(key)
    if found is None:
        with explained("connecting", options.servers):
            found = sbp_native.connect(options.servers, **settings)
        _clients[key] = found
    return found


def prepare_worker(freeze: bool = True) -> None:
    """Once per worker process: takes what is loaded by now out of the garbage collector's sight.

    Spark's worker collects after every task, and its Python processes on the driver after every call: twice in each
    micro-batch of a sink. With pyspark, pandas and pyarrow loaded that costs 40 ms of CPU for nothing each time.
    """
    global _prepared_by
    if freeze and _prepared_by != os.getpid():
        _prepared_by = os.getpid()
        gc.collect()
        gc.freeze()
