"""CPU seconds of processes, from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    #: Its own CPU, and that of children that have ended and were waited for.
    seconds: float


def _all() -> dict[int, _Process]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            ticks = sum(int(field) for field in fields[11:15])
            found[int(entry.name)] = _Process(int(entry.name), int(fields[1]), ticks / _TICKS)
    return found


def _below(root: int, processes: dict[int, _Process]) -> list[_Process]:
    tree = [processes[root]] if root in processes else []
    for process in tree:
        tree += [child for child in processes.values() if child.parent == process.pid]
    return tree


def tree_seconds(roots: Iterable[int]) -> float:
    """CPU of these processes and of all below them."""
    processes = _all()
    return sum(process.seconds for root in roots for process in _below(root, processes))


def worker_seconds(jvm: int) -> float:
    """CPU of the Python processes below a JVM."""
    processes = _all()
    return sum(process.seconds for process in _below(jvm, processes) if process.pid != jvm)
