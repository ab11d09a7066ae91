"""The durable server as a process of its own: started, killed, started again on the same directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import sbp_native as sbp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_READY_WITHIN = 20.0
_STOPPED_WITHIN = 20.0


class ServerProcess:
    """``sbp serve``, with fsync unless said otherwise, on a free loopback port that it keeps over a restart."""

    def __init__(self, data_dir: Path, log: Path) -> None:
        self._data_dir = data_dir
        self._log = log
        self.durability = "fsync"
        #: The command `sbp` that it is: the one of this environment, unless said otherwise before a start.
        self.sbp_command = Path(sys.executable).with_name("sbp")
        #: Further options of the command.
        self.options: Sequence[str] = ()
        #: What clients are given beside its address: a token, certificates.
        self.connecting: dict[str, Any] = {}
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Starts the server and waits until it answers; returns the seconds that took.

        Raises `RuntimeError` with the end of the server's log if it ends or does not answer in time.
        """
        started = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while time.monotonic() - started < _READY_WITHIN:
            if self._process.poll() is not None:
                raise RuntimeError(f"sbp serve ended with code {self._process.returncode}:\n{self._end_of_log()}")
            try:
                with sbp.connect(self.address, timeout=2, **self.connecting) as client:
                    client.list_streams()
                return time.monotonic() - started
            except (sbp.SbpError, OSError):
                time.sleep(0.02)
        raise RuntimeError(f"sbp serve did not answer at {self.address} in time:\n{self._end_of_log()}")

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, at once: the process gets no chance to write anything more."""
        assert self._process is not None, "the server was not started"
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(_STOPPED_WITHIN)

    def stop(self) -> None:
        """Asks the server to end, and makes it end if it does not."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()

    def lose_disk(self) -> None:
        """Deletes the directory of a server that was killed: it starts empty."""
        shutil.rmtree(self._data_dir)

    def stored_bytes(self) -> int:
        """The size of everything in the data directory."""
        return sum(path.stat().st_size for path in self._data_dir.rglob("*") if path.is_file())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        return [
            str(self.sbp_command),
            "serve",
            "--data-dir",
            str(self._data_dir),
            "--listen",
            self.address,
            "--durability",
            self.durability,
            *self.options,
        ]

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


def free_port() -> int:
    """A port of the loopback interface that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
