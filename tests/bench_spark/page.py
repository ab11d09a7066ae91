"""The rows as a Markdown table."""

from __future__ import annotations

import statistics

from tests.bench.report import machine, markdown_table
from tests.bench_python.table import Row, bound, cells


def _of_pairs(row: Row) -> str:
    """The middle of the ratios of each run to the peer's run beside it: noise that meets both cancels."""
    if not row.beside or len(row.beside) != len(row.ours) or not all(row.ours) or not all(row.beside):
        return ""
    pairs = zip(row.ours, row.beside, strict=True)
    return f"{statistics.median(theirs / ours if row.less_is_better else ours / theirs for ours, theirs in pairs):.2f}"


def markdown(rows: list[Row], conditions: str) -> str:
    """A table of all rows, under the machine and the conditions."""
    columns = ("what", "unit", "median (spread)", "beside it", "ratio", "of pairs", "at least", "aim", "")
    shown = ((*cells(row), _of_pairs(row), bound(row, row.wanted), bound(row, row.aim), row.verdict) for row in rows)
    return f"{machine()}; {conditions}.\n\n" + markdown_table(columns, shown)
