"""What the machine did while a test hung: did it wait for the disk, for the processor, or for one of our threads?"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

#: Where it is written. `make` shows it below a failed run.
REPORT = Path(__file__).resolve().parents[1] / "target" / "stalls.txt"

_MEMORY = ("MemAvailable", "Dirty", "Writeback")


class Watch:
    """Writes a report if it is not stopped in time."""

    def __init__(self, what: str, limit: float) -> None:
        self._timer = threading.Timer(limit, report, (what, limit))
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """The test is over."""
        self._timer.cancel()


def report(what: str, seconds: float) -> None:
    """Adds what can be seen of this process and its machine from outside its locks."""
    lines = [f"== {what} had not ended after {seconds:.0f} s", *_machine(), *_threads()]
    REPORT.parent.mkdir(exist_ok=True)
    with REPORT.open("a") as file:
        file.write("\n".join([*lines, ""]))


def _machine() -> list[str]:
    memory = [line for line in _read("/proc/meminfo").splitlines() if line.startswith(_MEMORY)]
    pressure = [f"{kind}: {_read(f'/proc/pressure/{kind}').splitlines()[:1]}" for kind in ("cpu", "io", "memory")]
    free = shutil.disk_usage(REPORT.parents[1]).free >> 20
    return [f"load {os.getloadavg()}, {os.cpu_count()} cores, {free} MiB free", *memory, *pressure]


def _threads() -> list[str]:
    """A line for each thread: its name, whether it runs, sleeps or waits for the disk, and where in the kernel."""
    return [
        f"{_read(task / 'comm'):<16} {_state(task)} {_read(task / 'wchan')} {_read(task / 'syscall')}"
        for task in sorted(Path("/proc/self/task").iterdir())
    ]


def _state(task: Path) -> str:
    return next((line.split()[1] for line in _read(task / "status").splitlines() if line.startswith("State")), "?")


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:  # not given to everybody, or the thread is gone
        return "-"
