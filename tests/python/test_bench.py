"""A benchmark keeps what it has measured, whatever becomes of those that it measures."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.bench_python import paced
from tests.bench_python.table import Row, Runs, alternate, collected, repeated, save, show


def fails_on(runs: set[int], figure: float) -> Callable[[], float]:
    """A peer that does not keep up in some of its runs, counted from 0."""
    counted = itertools.count()

    def measure() -> float:
        if next(counted) in runs:
            raise RuntimeError("only 12 records came through")
        return figure

    return measure


def part(theirs: Callable[[], float]) -> Iterator[Row]:
    """A part with three rows, the second beside that peer, which breaks off behind the third."""
    yield Row("alone", "us", repeated(lambda: 4.0, 3))
    yield Row("beside it", "us", *alternate(lambda: 5.0, theirs, 3), "peer", 1, 2, of_ratio=True, less_is_better=True)
    yield Row("behind it", "us", repeated(lambda: 6.0, 3), wanted=7, less_is_better=True)
    raise OSError("no broker")


def test_a_peer_that_does_not_keep_up_costs_its_own_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(collected("peers", part(fails_on({1}, 10.0))))
    assert [row.what for row in rows] == ["alone", "beside it", "behind it", "peers broke off here"]
    alone, beside, behind, broken = rows
    assert (beside.ours, beside.beside, beside.ratio) == ([5.0] * 3, [10.0] * 2, 2.0)
    assert beside.failures == ["peer: RuntimeError: only 12 records came through"]
    assert beside.verdict == "aim reached, 1 runs failed"
    assert (alone.verdict, alone.failures, behind.verdict) == ("", [], "held")
    assert (broken.median, broken.failures) == (None, ["ours: OSError: no broker"])
    save(rows, tmp_path / "report.json")
    kept = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["median"] for row in kept] == [4.0, 5.0, 6.0, None]
    assert kept[1]["beside"] == [10.0, 10.0]
    assert kept[1]["failures"] == beside.failures
    show(rows, "the title")
    shown = capsys.readouterr().out
    for text in ("alone", "behind it", "1 runs failed", "only 12 records came through", "no broker"):
        assert text in shown


def test_a_peer_that_never_keeps_up_leaves_our_figure(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(collected("peers", part(fails_on({0, 1, 2}, 10.0))))
    beside = rows[1]
    assert (beside.median, beside.beside, beside.ratio) == (5.0, [], None)
    assert beside.verdict == "not measured, 3 runs failed"
    show(rows, "the title")
    assert "3 failed; peer: RuntimeError" in capsys.readouterr().out


def test_who_falls_behind_at_a_steady_rate_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "SECONDS", 0.3)
    monkeypatch.setattr(paced, "WARM_UP", 0.1)
    sent: list[bytes] = []

    def values(stop: threading.Event, *, every: int) -> Iterable[bytes]:
        seen = 0
        while not stop.is_set():
            if seen < len(sent):
                seen += 1
                if seen % every == 0:
                    yield sent[seen - 1]
            else:
                stop.wait(0.0005)

    def median(every: int) -> float:
        sent.clear()
        return paced.measure(sent.append, partial(values, every=every)).p50

    figures = Runs()
    for every in (1, 3):
        figures.take(partial(median, every))
    assert len(figures) == 1
    assert "records came through" in figures.failures[0]
