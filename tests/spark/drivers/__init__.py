"""Spark drivers in processes of their own: with other settings than the shared session's, and to be killed.

A driver is a Python process with a JVM. It is told by name which job of `jobs` to run, and answers with what the job
returns, which must be JSON. One conversation, one thing at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sbp_native.testing import eventually
from spark.support import descendants, task_workers

if TYPE_CHECKING:
    from types import TracebackType

#: Seconds until a driver has its session. The machine may be busy.
_READY_WITHIN = 200.0
_TESTS = Path(__file__).resolve().parents[2]


class JobError(Exception):
    """What a job raised, as text: Spark's whole message."""


class Driver:
    """One driver process. Leaving its ``with`` block kills it and everything that it started."""

    def __init__(self, place: Path, master: str = "local[2,4]", settings: dict[str, str] | None = None) -> None:
        """Starts it; files go below `place`."""
        place.mkdir(parents=True, exist_ok=True)
        self._log = place / "driver.log"
        ours, theirs = socket.socketpair()
        search = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": search, "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
        command = [sys.executable, "-m", "spark.drivers", str(theirs.fileno()), str(place), master]
        command += [f"{name}={value}" for name, value in (settings or {}).items()]
        with self._log.open("ab") as log, theirs:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                cwd=place,
                start_new_session=True,
            )
        self._socket = ours
        self._answers = ours.makefile("r")
        try:
            self.jvm: int = self.answer(_READY_WITHIN)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The Python process; the JVM and all workers are below it."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def start(self, job: str, **arguments: Any) -> None:
        """Has the driver run a job; `answer` waits for it."""
        self._socket.sendall(json.dumps([job, arguments]).encode() + b"\n")

    def answer(self, within: float = 240.0) -> Any:
        """Waits for what the job returns. Raises `JobError` for what it raised, `AssertionError` if it takes long."""
        self._socket.settimeout(within)
        try:
            line = self._answers.readline()
        except TimeoutError:
            raise AssertionError(f"no answer within {within} s\n{self._end_of_log()}") from None
        if not line:
            raise AssertionError(f"the driver is gone\n{self._end_of_log()}")
        what, value = json.loads(line)
        if what == "raised":
            raise JobError(value)
        return value

    def run(self, job: str, within: float = 240.0, **arguments: Any) -> Any:
        """Runs a job to its end."""
        self.start(job, **arguments)
        return self.answer(within)

    def kill_workers(self) -> None:
        """SIGKILL for the Python workers of tasks, those that wait for one among them.

        The JVM is stopped meanwhile: it gives a task to a waiting worker that is still there, and one that is killed is
        for as long as it takes to end. All of a task's attempts could fail so, one after the other.
        """
        os.kill(self.jvm, signal.SIGSTOP)
        try:
            killed = task_workers(self.pid)
            for process in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            eventually(lambda: all(process.is_gone() for process in killed))
        finally:
            os.kill(self.jvm, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL for the driver and its JVM, and then for whatever outlives them."""
        below = [process.pid for process in descendants(self.pid)]
        for pid in [self.pid, *below]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(30)
        self._socket.close()
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])
