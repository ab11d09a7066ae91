"""Rows of the report: our figure, the one beside it, and what was wanted."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tests.bench.report import figure, machine, terminal_table


class Runs(list[float]):
    """The figures of the runs that came to their end, and in words why others did not."""

    def __init__(self, figures: Iterable[float] = (), failures: Iterable[str] = ()) -> None:
        super().__init__(figures)
        self.failures = list(failures)

    def take(self, measure: Callable[[], float]) -> None:
        """One run more. Who does not keep up, or breaks down, costs this run and nothing else."""
        try:
            self.append(measure())
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")


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
    def median(self) -> float | None:
        """Ours: the middle run; none when no run came to its end."""
        return statistics.median(self.ours) if self.ours else None

    @property
    def failures(self) -> list[str]:
        """Why runs of ours, or of what stands beside it, did not come to their end."""
        named = (("ours", self.ours), (self.beside_name, self.beside))
        return [f"{name}: {why}" for name, runs in named if isinstance(runs, Runs) for why in runs.failures]

    @property
    def ratio(self) -> float | None:
        """Ours over theirs; for times the other way round, so that more is always better."""
        mine = self.median
        if not self.beside or mine is None:
            return None
        theirs = statistics.median(self.beside)
        if self.less_is_better:
            return theirs / mine if mine else None
        return mine / theirs if theirs else None

    def reaches(self, bound: float | None) -> bool | None:
        """Whether the figure, or its ratio, is at least as good as `bound`."""
        found = self.ratio if self.of_ratio else self.median
        if bound is None or found is None:
            return None
        return found <= bound if self.less_is_better and not self.of_ratio else found >= bound

    @property
    def verdict(self) -> str:
        """Against what was wanted; with runs that failed, how many."""
        if self.wanted is None:
            judged = ""
        elif self.reaches(self.wanted) is None:
            judged = "not measured"
        elif self.reaches(self.aim):
            judged = "aim reached"
        else:
            judged = "held" if self.reaches(self.wanted) else "missed"
        failed = f"{len(self.failures)} runs failed" if self.failures else ""
        return ", ".join(filter(None, (judged, failed)))


def repeated(measure: Callable[[], float], runs: int) -> Runs:
    """One figure, so often."""
    taken = Runs()
    for _ in range(runs):
        taken.take(measure)
    return taken


def alternate(ours: Callable[[], float], theirs: Callable[[], float], runs: int) -> tuple[Runs, Runs]:
    """Both in turns, so that they meet the same machine."""
    mine, beside = Runs(), Runs()
    for _ in range(runs):
        mine.take(ours)
        beside.take(theirs)
    return mine, beside


def collected(part: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows of one part, as far as they come; where it breaks off, a row that says why."""
    try:
        yield from rows
    except Exception as error:
        yield Row(f"{part} broke off here", "", Runs(failures=[f"{type(error).__name__}: {error}"]))


def bound(row: Row, value: float | None) -> str:
    """What the row's figure or ratio is held against."""
    if value is None:
        return ""
    return f"{value:.3g}x" if row.of_ratio else f"{value:,g}"


def cells(row: Row) -> tuple[str, ...]:
    """What, unit, ours, what stands beside it, and their ratio."""
    beside = f"{row.beside_name}: {figure(row.beside)}" if row.beside else ""
    return (row.what, row.unit, figure(row.ours), beside, "" if row.ratio is None else f"{row.ratio:.2f}")


def show(rows: list[Row], title: str) -> None:
    """Print the rows as one table."""
    columns = ("what", "unit", "ours: median (spread)", "beside it", "ratio", "at least", "aim", "")
    shown = ((*cells(row), bound(row, row.wanted), bound(row, row.aim), row.verdict) for row in rows)
    console = Console(width=200)
    console.print(terminal_table(f"{title}; {machine()}", columns, shown))
    for row in rows:
        for why, times in Counter(row.failures).items():
            console.print(escape(f"{row.what}: {times} failed; {why}"), highlight=False)


def save(rows: list[Row], path: Path) -> None:
    """The rows as JSON, for the page about performance."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = [_shown(row) for row in rows]
    path.write_text(json.dumps({"machine": machine(), "rows": report}, indent=1) + "\n")


def _shown(row: Row) -> dict[str, object]:
    figures = {"median": row.median, "ratio": row.ratio, "verdict": row.verdict, "failures": row.failures}
    return {field.name: getattr(row, field.name) for field in fields(row)} | figures
