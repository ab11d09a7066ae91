"""Use of the package in Spark's workers and in children that a user's function forks: each use appends one record."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING

import sbp_native as sbp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Seconds for one child; who needs more hangs.
_WITHIN = 30.0

#: The clients that a user keeps in a module, by process. A process that forks hands them to its child.
_kept: dict[int, sbp.Client] = {}

#: In the order in which a worker does them.
USES = ("worker", "the parent's client", "a client of its own", "multiprocessing", "worker again")


def run(spark: SparkSession, servers: str, stream: str) -> list[list[str]]:
    """Two tasks that do all of it at the same time; (use, outcome) of each."""

    def uses(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for _ in range(batch.num_rows):
                outcomes = [in_worker(servers, stream, use) for use in USES]
                yield pa.RecordBatch.from_pydict({"use": list(USES), "outcome": outcomes})

    rows = spark.range(0, 2, numPartitions=2).mapInArrow(uses, "use string, outcome string").collect()
    return [[row.use, row.outcome] for row in rows]


def in_worker(servers: str, stream: str, use: str) -> str:
    """One use, in the process that calls; "ok", or what went wrong."""
    match use:
        case "worker" | "worker again":
            return _tried(lambda: _append(kept(servers), stream, use))
        case "the parent's client":
            return _child(lambda: _one_refused(stream))
        case "a client of its own":
            return _child(lambda: _append_alone(servers, stream, use))
        case _:
            process = multiprocessing.get_context("fork").Process(target=_append_alone, args=(servers, stream, use))
            process.start()
            process.join(_WITHIN)
            if process.exitcode is None:
                process.kill()
                return "hangs"
            return "ok" if process.exitcode == 0 else f"ended with {process.exitcode}"


def kept(servers: str) -> sbp.Client:
    """The client that this process keeps."""
    if os.getpid() not in _kept:
        _kept[os.getpid()] = sbp.connect(servers, timeout=10)
    return _kept[os.getpid()]


def check_inherited(stream: str) -> int:
    """Sees to it that clients of other processes are refused here; how many there are."""
    inherited = [client for pid, client in _kept.items() if pid != os.getpid()]
    for client in inherited:
        try:
            client.stream(stream)
        except sbp.ForkedClientError:
            continue
        raise AssertionError("a process could use its parent's client")
    return len(inherited)


def _one_refused(stream: str) -> None:
    assert check_inherited(stream) >= 1


def _append(client: sbp.Client, stream: str, use: str) -> None:
    client.stream(stream).append(use.encode())


def _append_alone(servers: str, stream: str, use: str) -> None:
    with sbp.connect(servers, timeout=10) as client:
        _append(client, stream, use)


def _tried(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


def _child(call: Callable[[], object]) -> str:
    """Does it in a forked child, which gets a limited time."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _tried(call) == "ok" else 1)
    deadline = time.monotonic() + _WITHIN
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return "ok" if status == 0 else f"ended with {status}"
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"
