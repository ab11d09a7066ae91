"""How far limited micro-batches go, without Spark and without a server."""

from __future__ import annotations

import random
from bisect import bisect_left
from typing import TYPE_CHECKING

import pytest

from sbp_native.spark.limits import Cut, Patience, advance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Timed:
    """Streams whose records have times, for `advance` to look up: per stream a list of times in order."""

    def __init__(self, times: Mapping[int, list[int]]) -> None:
        self.times = times
        self.lookups = 0
        self.start = dict.fromkeys(times, 0)
        self.available = {stream: len(each) for stream, each in times.items()}

    def locate(self, time: int) -> dict[int, int]:
        self.lookups += 1
        return {stream: bisect_left(each, time) for stream, each in self.times.items()}

    def batches(self, limit: int) -> Iterator[dict[int, tuple[int, int]]]:
        """Everything, batch by batch: per stream the times that the batch begins and ends with."""
        start, last = dict(self.start), Cut({})
        while (last := advance(start, self.available, limit, self.locate, last)).ends:
            assert 0 < sum(end - start[stream] for stream, end in last.ends.items()) <= limit
            yield {
                stream: (self.times[stream][start[stream]], self.times[stream][end - 1])
                for stream, end in last.ends.items()
            }
            start |= last.ends
        assert start == self.available


def test_all_when_the_limit_allows() -> None:
    assert advance({1: 5, 2: 0, 3: 4}, {1: 10, 2: 1, 3: 4}, 6) == Cut({1: 10, 2: 1})
    assert advance({1: 5}, {1: 5}, 6) == Cut({})


@pytest.mark.parametrize("seed", range(20))
def test_no_stream_runs_ahead(seed: int) -> None:
    """Whatever a batch takes is older than what any later batch takes, however different the rates are."""
    seeded = random.Random(seed)
    rates = [1, 3, 30, 300, 3_000, seeded.randrange(1, 5_000)]
    timed = Timed({s: sorted(seeded.sample(range(10**6), rate)) for s, rate in enumerate(rates, 1)})
    newest = -1
    for batch in timed.batches(seeded.randrange(1, 900)):
        assert min(first for first, _ in batch.values()) >= newest
        newest = max(last for _, last in batch.values())


def test_a_moment_larger_than_the_limit_is_shared() -> None:
    timed = Timed({1: [7] * 90, 2: [7] * 10})
    assert advance(timed.start, timed.available, 20, timed.locate).ends == {1: 17, 2: 3}


@pytest.mark.parametrize(("base", "rate"), [(0, 1), (1_700_000_000_000, 1), (1_700_000_000_000, 40), (2**50, 1)])
def test_a_good_cut_is_found_in_few_questions(base: int, rate: int) -> None:
    """The first from nowhere, the others from where the last one was."""
    timed = Timed({1: [base + number // rate for number in range(100_000)], 2: [base + number for number in range(50)]})
    batches = timed.batches(1_000)
    next(batches)
    assert timed.lookups <= 64
    before = timed.lookups
    following = [next(batches) for _ in range(10)]
    assert (timed.lookups - before) / len(following) <= 6


def test_a_gap_in_time_is_jumped() -> None:
    """Records of one hour, nothing for ten years, and then more."""
    later = 10 * 365 * 86_400_000
    timed = Timed({1: [*range(5_000), *range(later, later + 5_000)], 2: [later + 2_500]})
    assert len(list(timed.batches(1_000))) <= 14
    assert timed.lookups <= 140


def test_an_older_stream_comes_up() -> None:
    """A stream that was met late, with records from long before the last cut, goes first."""
    timed = Timed({1: list(range(10_000, 20_000)), 2: list(range(1_000))})
    cut = advance({1: 5_000, 2: 0}, timed.available, 500, timed.locate, Cut({}, 15_000, 500))
    assert cut.ends.keys() == {2}
    assert 450 <= cut.ends[2] <= 500


def test_in_proportion_without_times() -> None:
    assert advance({1: 0, 2: 0}, {1: 100, 2: 300}, 40).ends == {1: 10, 2: 30}


def test_in_proportion_every_stream_moves() -> None:
    moved = advance(dict.fromkeys(range(10), 0), {**dict.fromkeys(range(9), 1), 9: 10_000}, 20).ends
    assert moved == {**dict.fromkeys(range(9), 1), 9: 11}


def test_in_proportion_never_over_the_limit() -> None:
    moved = advance(dict.fromkeys(range(10), 0), dict.fromkeys(range(10), 5), 3).ends
    assert sum(moved.values()) == 3


def test_patience() -> None:
    patience = Patience(100, 60.0)
    assert not patience.waits(0, now=0.0)
    assert patience.waits(5, now=10.0)
    assert patience.waits(99, now=69.9)
    assert not patience.waits(99, now=70.0)
    assert patience.waits(5, now=80.0)
    assert not patience.waits(100, now=81.0)
    assert patience.waits(5, now=200.0), "the clock runs from the first record that waits"
    assert not Patience(None, 60.0).waits(1, now=0.0)
