"""The rows as a Markdown table."""

from __future__ import annotations

import statistics

from tests.bench.report import machine
from tests.bench_python.table import Row


def _figure(runs: list[float]) -> str:
    if not runs:
        return ""
    middle = statistics.median(runs)
    digits = 0 if abs(middle) >= 100 else 1 if abs(middle) >= 10 else 2 if abs(middle) >= 0.1 else 3
    return f"{middle:,.{digits}f} ({min(runs):,.{digits}f} - {max(runs):,.{digits}f})"


def _of_pairs(row: Row) -> str:
    """The middle of the ratios of each run to the peer's run beside it: noise that meets both cancels."""
    if not row.beside or len(row.beside) != len(row.ours) or not all(row.ours) or not all(row.beside):
        return ""
    pairs = zip(row.ours, row.beside, strict=True)
    return f"{statistics.median(theirs / ours if row.less_is_better else ours / theirs for ours, theirs in pairs):.2f}"


def _bound(row: Row, bound: float | None) -> str:
    if bound is None:
        return ""
    return f"{bound:.3g}x" if row.of_ratio else f"{bound:g}"


def markdown(rows: list[Row], conditions: str) -> str:
    """A table of all rows, under the machine and the conditions."""
    lines = [
        f"{machine()}; {conditions}.",
        "",
        "| what | unit | median (spread) | beside it | ratio | of pairs | at least | aim | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        beside = f"{row.beside_name}: {_figure(row.beside)}" if row.beside else ""
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        bounds = (_bound(row, row.wanted), _bound(row, row.aim))
        cells = (row.what, row.unit, _figure(row.ours), beside, ratio, _of_pairs(row), *bounds, row.verdict)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
