"""What the user sees while the demo works: a bar for each long step, and what it came to."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Screen:
    """Prints steps and keeps their durations for the report."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.seconds: dict[str, float] = {}

    def title(self, text: str) -> None:
        """A heading."""
        self.console.print(f"[bold]{text}[/bold]")

    def note(self, text: str) -> None:
        """A line of its own, below the step it belongs to."""
        self.console.print(f"    {text}", markup=False, soft_wrap=True)

    def table(self, title: str, rows: list[tuple[str, ...]]) -> None:
        """A table, its headings first."""
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for heading in rows[0]:
            table.add_column(heading, overflow="fold")
        for row in rows[1:]:
            table.add_row(*row)
        self.console.print(table)

    @contextmanager
    def step(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Callable[[int], None]]:
        """One step: yields a function that reports how much more of `total` is done; times it under `name`."""
        columns = [SpinnerColumn(finished_text="[green]✓[/green]"), TextColumn("{task.description:<40}")]
        if total is not None:
            columns += [BarColumn(bar_width=10), TextColumn("{task.completed:>7,.0f} " + unit)]
        columns.append(TimeElapsedColumn())
        started = time.perf_counter()
        with Progress(*columns, console=self.console, refresh_per_second=8) as progress:
            task = progress.add_task(name, total=total if total is not None else 1)
            yield lambda amount: progress.advance(task, amount)
            progress.update(task, completed=total if total is not None else 1)
        self.seconds[name] = time.perf_counter() - started
