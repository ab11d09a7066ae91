"""Rows of the report: our figure, the one beside it, and what was wanted."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.report import machine


@dataclass(frozen=True)
class Row:
    """One figure. `wanted` and `aim` bound the figure itself, or its ratio to what stands beside it."""

    what: str
    unit: str
    ours: list[float]
    beside: list[float] = field(default_factory=list)
    beside_name: str = ""
    wanted: float | None = None
    aim: float | None = None
    of_ratio: bool = False
    less_is_better: bool = False

    @property
    def median(self) -> float:
        """Ours: the middle run."""
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float | None:
        """Ours over theirs; for times the other way round, so that more is always better."""
        if not self.beside:
            return None
        theirs = statistics.median(self.beside)
        if self.less_is_better:
            return theirs / self.median if self.median else None
        return self.median / theirs if theirs else None

    def reaches(self, bound: float | None) -> bool | None:
        """Whether the figure, or its ratio, is at least as good as `bound`."""
        if bound is None:
            return None
        if self.of_ratio:
            return self.ratio is not None and self.ratio >= bound
        return self.median <= bound if self.less_is_better else self.median >= bound

    @property
    def verdict(self) -> str:
        """Against what was wanted."""
        if self.wanted is None:
            return ""
        if self.reaches(self.aim):
            return "aim reached"
        return "held" if self.reaches(self.wanted) else "missed"


def alternate(ours: Callable[[], float], theirs: Callable[[], float], runs: int) -> tuple[list[float], list[float]]:
    """Both in turns, so that they meet the same machine."""
    pairs = [(ours(), theirs()) for _ in range(runs)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _figure(runs: list[float]) -> str:
    if not runs:
        return ""
    digits = 0 if statistics.median(runs) >= 100 else 1 if statistics.median(runs) >= 10 else 3
    return f"{statistics.median(runs):,.{digits}f} ({min(runs):,.{digits}f} - {max(runs):,.{digits}f})"


def _bound(row: Row, bound: float | None) -> str:
    if bound is None:
        return ""
    return f"{bound:g}x" if row.of_ratio else f"{bound:,g}"


def show(rows: list[Row], title: str) -> None:
    """Print the rows as one table."""
    table = Table(title=f"{title}; {machine()}", title_justify="left")
    for column in ("what", "unit", "ours: median (spread)", "beside it", "ratio", "at least", "aim", ""):
        table.add_column(column)
    for row in rows:
        beside = f"{row.beside_name}: {_figure(row.beside)}" if row.beside else ""
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        bounds = (_bound(row, row.wanted), _bound(row, row.aim))
        table.add_row(escape(row.what), row.unit, _figure(row.ours), beside, ratio, *bounds, row.verdict)
    Console(width=200).print(table)


def save(rows: list[Row], path: Path) -> None:
    """The rows as JSON, for the page about performance."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = [asdict(row) | {"median": row.median, "ratio": row.ratio, "verdict": row.verdict} for row in rows]
    path.write_text(json.dumps({"machine": machine(), "rows": report}, indent=1) + "\n")
