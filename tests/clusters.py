"""A cluster whose range servers are processes of their own: they are killed, stopped, and ended in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, Self

import sbp_native as sbp
from sbp_native.testing import eventually

#: What can become of a server. Only the last one is told to it.
How = Literal["killed", "stopped", "ended"]

_WITHIN = 30.0


class Cluster:
    """A placement driver in this process and range servers in processes of their own, by their numbers from 0.

    Each has a directory and an address of its own, and keeps both when it is started again.
    """

    def __init__(self, place: Path, servers: int = 3, durability: Literal["fsync", "none"] = "fsync") -> None:
        """Starts them; directories and logs go below `place`."""
        self._place = place
        self._durability = durability
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._stopped: set[int] = set()
        self._addresses: dict[int, str] = {}
        self.driver = sbp.Server(place / "driver", role="placement-driver", durability="none")
        try:
            for number in range(servers):
                self._start(number, "127.0.0.1:0")
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The placement driver's: what a client connects to."""
        return self.driver.address

    def primary(self, stream: sbp.Stream) -> int:
        """The number of the server that takes the stream's appends, as the placement driver says."""
        return self.holders(stream)[0]

    def holders(self, stream: sbp.Stream) -> list[int]:
        """The numbers of the servers that hold the stream's open range, the primary first."""
        numbers = {address: number for number, address in self._addresses.items()}
        return [numbers[address] for address in stream.describe_ranges(timeout=_WITHIN)[-1].servers]

    def away(self, number: int, how: How) -> None:
        """Kills a server, stops it, or ends it in order. Returns when it does nothing more."""
        process = self._processes[number]
        if how == "stopped":
            # A signal that was sent is on its way: until every thread has taken it, a server goes on answering.
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            self._stopped.add(number)
            return
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        process.wait(_WITHIN)

    def back(self, number: int) -> None:
        """Has a stopped server go on, or starts one that has ended; returns when it has all that it is to have."""
        self.begin_again(number)
        eventually(self.is_whole, timeout=_WITHIN)

    def begin_again(self, number: int) -> None:
        """The same, and returns when it serves."""
        if number in self._stopped:
            self._stopped.remove(number)
            self._processes[number].send_signal(signal.SIGCONT)
        else:
            self._start(number, self._addresses[number])

    def is_whole(self) -> bool:
        """Whether no server may lack some of a range that it holds: one that was away is sent that when it is back."""
        sbp_command = str(Path(sys.executable).with_name("sbp"))
        with sbp.connect(self.address, timeout=_WITHIN) as client:
            names = [info.name for info in client.list_streams()]
        for name in names:
            command = [sbp_command, "range", "list", name, "--json", "--servers", self.address]
            listed = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN, check=True).stdout
            if any(json.loads(line)["incomplete"] for line in listed.splitlines()):
                return False
        return True

    def log(self, number: int) -> str:
        """What a server has said in all its lives."""
        return self._log(number).read_text(errors="replace")

    def close(self) -> None:
        """Ends everything."""
        for process in self._processes.values():
            process.kill()
            process.wait(_WITHIN)
            if process.stdout is not None:
                process.stdout.close()
        self.driver.close()

    def _start(self, number: int, listen: str) -> None:
        command = [str(Path(sys.executable).with_name("sbp")), "serve", "--log", "warn", "--role", "range-server"]
        command += ["--placement-driver", self.driver.address, "--durability", self._durability, "--listen", listen]
        command += ["--data-dir", str(self._place / f"range-server-{number}")]
        before = self._processes.get(number)
        if before is not None and before.stdout is not None:
            before.stdout.close()
        with self._log(number).open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self._processes[number] = process
        assert process.stdout is not None
        # It says where it listens when the placement driver knows of it.
        said = process.stdout.readline().split()
        assert said, f"range server {number} did not start: {self.log(number)}"
        self._addresses[number] = said[-1]

    def _log(self, number: int) -> Path:
        return self._place / f"range-server-{number}.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Pace:
    """When somebody got on, and how long he stood still at most."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._last = time.monotonic()

    def note(self, count: int = 1) -> None:
        """Something was done."""
        now = time.monotonic()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self.count += count

    def goes_on(self, by: int, within: float = 60.0) -> None:
        """Waits until so much more is done."""
        wanted = self.count + by
        eventually(lambda: self.count >= wanted, within)
