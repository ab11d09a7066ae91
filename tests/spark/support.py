"""What several of these tests need."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

import sbp_native as sbp
from sbp_native.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_SERVE = "import sys; from sbp_native import _cli; sys.exit(_cli.main())"


def failure(call: Callable[[], object]) -> str:
    """Calls what must fail; returns the line of Spark's error text that is ours."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by where it failed
        call()
    lines = [line for line in str(caught.value).splitlines() if "[SBP-" in line]
    assert lines, str(caught.value)
    return lines[-1]


def values(client: sbp.Client, name: str) -> list[bytes | None]:
    """Every value that a stream holds, in its order."""
    stream = client.stream(name)
    return [value for batch in stream.read(start="earliest", end="latest") for value in batch.values]


def forget_last_commit(checkpoint: str) -> None:
    """Makes Spark repeat the last batch: as if it had crashed between the sink's commit and its own."""
    commits = sorted(
        (path for path in (Path(checkpoint) / "commits").iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    commits[-1].unlink()


@dataclass(frozen=True)
class Process:
    """A process of this machine, as `/proc` shows it."""

    pid: int
    parent: int
    command: str

    @property
    def is_daemon(self) -> bool:
        """Whether it is one of Spark's Python daemons, or was forked by one."""
        match self.command.split():
            case [program, "-m", module, *_]:
                # Not the JVM: it is told the daemon's name too.
                return "python" in program and module.endswith("daemon")
        return False

    def is_gone(self) -> bool:
        """Whether it has ended and its parent knows."""
        return not Path(f"/proc/{self.pid}").exists()

    def threads(self) -> int:
        """How many threads it has."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def stands_still(self) -> bool:
        """Whether all of its threads are stopped, or it is gone: a signal that was sent is only on its way."""
        try:
            stats = [(task / "stat").read_text() for task in Path(f"/proc/{self.pid}/task").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            return self.is_gone()
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_bytes(self) -> int:
        """Its memory, with what it shares."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def processes() -> list[Process]:
    """Everything that runs."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in brackets may hold spaces and brackets of its own.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it is gone
        found.append(Process(int(entry.name), parent, command))
    return found


def descendants(pid: int) -> list[Process]:
    """The children of a process, theirs, and so on."""
    every = processes()
    below, parents = [], {pid}
    while parents:
        children = [process for process in every if process.parent in parents]
        below += children
        parents = {child.pid for child in children}
    return below


def task_workers(pid: int) -> list[Process]:
    """The Python workers of tasks below a driver: what the daemon for ``pyspark.worker`` has forked."""
    below = descendants(pid)
    daemons = {process.pid for process in below if process.is_daemon}
    # A process that is ending has no command line any more.
    return [
        process for process in below if process.parent in daemons and process.command.split()[-1:] == ["pyspark.worker"]
    ]


class ServerProcess:
    """``sbp serve`` in a process of its own, to be killed; it keeps its port and its data over a restart."""

    def __init__(self, place: Path, *options: str) -> None:
        self._data, self._log = place / "data", place / "server.log"
        self._options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        command = [sys.executable, "-c", _SERVE, "serve", "--data-dir", str(self._data), "--listen", self.address]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(self._answers)

    def kill(self) -> None:
        """SIGKILL: it gets no chance to write anything more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")
        try:
            with sbp.connect(self.address, timeout=2) as client:
                client.list_streams()
        except sbp.SbpError:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
