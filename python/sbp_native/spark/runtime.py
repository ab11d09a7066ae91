"""What lives once per process: the client, and a worker's garbage collector settings.

Spark pickles the source, its readers and writers into other processes. They carry options only; whoever needs a client
asks here, in the process in which it works.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Final

import sbp_native

from .errors import explained

if TYPE_CHECKING:
    from .options import SbpOptions

_clients: dict[tuple[object, ...], sbp_native.Client] = {}

#: So many new ones are worth another freeze: pandas is hundreds, what a user's function imports is a few.
_MANY_MODULES: Final = 32
#: The process that froze what it had, and how many modules that was.
_frozen: tuple[int, int] = (0, 0)


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
    """Takes what a worker process has loaded out of the garbage collector's sight, and again when much has come since.

    Spark's worker collects after every task, and its Python processes on the driver after every call: twice in each
    micro-batch of a sink. With pyspark, pandas and pyarrow loaded that costs 40 ms of CPU for nothing each time. A part
    of it is loaded behind the first task's rows, as the second one finds.
    """
    global _frozen
    pid, modules = _frozen
    if freeze and (pid != os.getpid() or len(sys.modules) >= modules + _MANY_MODULES):
        gc.collect()
        gc.freeze()
        _frozen = (os.getpid(), len(sys.modules))
