"""Repetition, spread and tables for the benchmarks."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
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

    @property
    def spread(self) -> str:
        """Lowest and highest run."""
        return f"{min(self.runs):,.1f} - {max(self.runs):,.1f}"


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


def show(figures: list[Figure]) -> None:
    """Print the figures as one table."""
    table = Table(title=machine(), title_justify="left")
    for column in ("figure", "median", "spread", "unit", "floor of the same run", "ratio", "note"):
        table.add_column(column, justify="right" if column in ("median", "spread", "ratio") else "left")
    for figure in figures:
        floor = "" if figure.floor is None else f"{figure.floor_name}: {figure.floor:,.1f}"
        ratio = "" if not figure.floor else f"{figure.median / figure.floor:.2f}"
        table.add_row(figure.name, f"{figure.median:,.1f}", figure.spread, figure.unit, floor, ratio, figure.note)
    Console(width=180).print(table)
