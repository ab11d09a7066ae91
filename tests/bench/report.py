"""Repetition, spread and tables for the benchmarks."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured figure: the median of its runs, their spread, and the floor it is held against."""

    name: str
    unit: str
    runs: list[float]
    floor_name: str = ""
    floor: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The middle run."""
        return statistics.median(self.runs)


def repeat(measure: Callable[[], float], runs: int) -> list[float]:
    """The figure of `runs` runs, one after the other."""
    return [measure() for _ in range(runs)]


def machine() -> str:
    """Cores, memory, kernel and processor, in one line."""
    cores = len([line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")])
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
    return f"{cores} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"


def figure(runs: list[float]) -> str:
    """The middle run, and the lowest and highest, with as many digits as mean something."""
    if not runs:
        return ""
    middle = statistics.median(runs)
    digits = 0 if abs(middle) >= 100 else 1 if abs(middle) >= 10 else 2 if abs(middle) >= 0.1 else 3
    return f"{middle:,.{digits}f} ({min(runs):,.{digits}f} - {max(runs):,.{digits}f})"


def terminal_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table for `Console.print`. Cells are shown as they are."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)) + "\n"


def show(figures: list[Figure]) -> None:
    """Print the figures as one table."""
    rows = []
    for shown in figures:
        floor = "" if shown.floor is None else f"{shown.floor_name}: {shown.floor:,.1f}"
        ratio = "" if not shown.floor else f"{shown.median / shown.floor:.2f}"
        rows.append((shown.name, figure(shown.runs), shown.unit, floor, ratio, shown.note))
    columns = ("figure", "median (spread)", "unit", "floor of the same run", "ratio", "note")
    Console(width=180).print(terminal_table(machine(), columns, rows))
