"""A streaming query whose driver is a process of its own, so that it can be killed: ``python -m tests.demo.driver``.

The driver prints a line of JSON for each micro-batch that is finished.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from . import session, streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

#: Seconds for one driver, from its start to its end.
_WITHIN = 300.0
#: Seconds until Spark has told of a query that ended.
_TOLD_WITHIN = 20.0
_ROOT = Path(__file__).resolve().parents[2]


def drive(job: streaming.Job, directory: Path, heard: Callable[[dict[str, Any]], bool]) -> bool:
    """Runs the query in a driver of its own until it ends; tells `heard` of each micro-batch.

    SIGKILL ends the driver as soon as `heard` says so, with its JVM and its workers, whatever they are about to do.
    Returns whether the query came to its end. Raises `RuntimeError` if it failed, with the end of what it said.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "driver.err"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.demo.driver", "--directory", str(directory), json.dumps(asdict(job))],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    overdue = threading.Timer(_WITHIN, _kill, [process])
    overdue.start()
    try:
        for progress in _reports(process):
            if heard(progress):
                return False
        code = process.wait()
    finally:
        overdue.cancel()
        _kill(process)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if code != 0:
        said = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise RuntimeError(f"the driver of {job.target} ended with {code}:\n{said}")
    return True


def _reports(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        # The JVM shares the output.
        if line.startswith('{"id"'):
            yield json.loads(line)


def _kill(process: subprocess.Popen[str]) -> None:
    # The whole group: the driver, its JVM, and the JVM's workers. Some of it may be left when the first has gone.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Listener(StreamingQueryListener):
    """Hands on the report of each micro-batch, and says when the last one came."""

    def __init__(self, heard: Callable[[dict[str, Any]], object]) -> None:
        self._heard = heard
        self._ended = threading.Event()

    def wait(self) -> None:
        """Returns when the query's end was told, which is after its last report."""
        if not self._ended.wait(_TOLD_WITHIN):
            raise RuntimeError(f"Spark did not tell of the query's end within {_TOLD_WITHIN:.0f} s")

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - the name is Spark's
        """Nothing to hand on."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """One micro-batch is finished."""
        self._heard(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to hand on."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The query came to its end."""
        self._ended.set()


def go_on(spark: SparkSession, job: streaming.Job, heard: Callable[[dict[str, Any]], object]) -> None:
    """Runs the query in this process until it ends; tells `heard` of each micro-batch.

    Raises `RuntimeError` if it does not end in time; what it fails with, it raises.
    """
    listener = Listener(heard)
    spark.streams.addListener(listener)
    try:
        query = streaming.start(spark, job)
        if not query.awaitTermination(int(_WITHIN)):
            query.stop()
            raise RuntimeError(f"the query of {job.target} did not end within {_WITHIN:.0f} s")
        listener.wait()
    finally:
        spark.streams.removeListener(listener)


def main() -> None:
    """The driver."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo.driver", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("job")
    arguments = parser.parse_args()
    job = streaming.Job(**json.loads(arguments.job))
    spark = session.start(arguments.directory)
    go_on(spark, job, lambda progress: print(json.dumps(progress), flush=True))
    spark.stop()


if __name__ == "__main__":
    main()
