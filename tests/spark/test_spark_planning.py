"""The plan of a query, without Spark."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import pytest

from sbp_native.spark.planning import MAX_RECORDS, MIN_RECORDS, PlanBounds, SbpInputPartition, plan

if TYPE_CHECKING:
    pass


def covered(partitions: list[SbpInputPartition]) -> list[tuple[int, int, int]]:
    """The spans of a plan, with neighbours joined again."""
    joined: list[tuple[int, int, int]] = []
    for partition in partitions:
        for stream, start, end in partition.spans:
            if joined and joined[-1][0] == stream and joined[-1][2] == start:
                joined[-1] = (stream, joined[-1][1], end)
            else:
                joined.append((stream, start, end))
    return joined


def test_nothing_is_one_empty_task() -> None:
    assert plan([]) == [SbpInputPartition([])]
    assert plan([(1, 5, 5)]) == [SbpInputPartition([])]


def test_small_spans_share_a_task_in_order() -> None:
    assert plan([(9, 0, 10), (2, 5, 7), (4, 1, 1)]) == [SbpInputPartition([(2, 5, 7), (9, 0, 10)])]


def test_a_large_span_is_split() -> None:
    partitions = plan([(1, 0, 3_200_000)])
    assert [partition.records for partition in partitions] == [200_000] * 16
    assert covered(partitions) == [(1, 0, 3_200_000)]


def test_bounds_of_a_task() -> None:
    assert max(partition.records for partition in plan([(1, 0, 250_000)])) == MIN_RECORDS
    assert max(partition.records for partition in plan([(1, 0, 40_000_000)])) == MAX_RECORDS


def test_never_more_tasks_than_allowed() -> None:
    partitions = plan([(stream, 0, 10_000_000) for stream in range(1, 101)])
    assert len(partitions) == 256
    assert len(plan([(1, 0, 40_000_000)], PlanBounds(max_partitions=3))) == 3


@pytest.mark.parametrize("least", [1, 7, 100, 1_000])
def test_as_many_tasks_as_asked(least: int) -> None:
    spans = [(1, 5, 1_000), (2, 0, 100_003), (3, 7, 7)]
    partitions = plan(spans, PlanBounds(min_partitions=least))
    assert len(partitions) >= max(least, 2)
    assert len(partitions) <= 2 * least + 1
    assert covered(partitions) == [(1, 5, 1_000), (2, 0, 100_003)]


def test_no_more_tasks_than_records() -> None:
    assert plan([(1, 0, 3)], PlanBounds(min_partitions=10)) == [
        SbpInputPartition([(1, 0, 1)]),
        SbpInputPartition([(1, 1, 2)]),
        SbpInputPartition([(1, 2, 3)]),
    ]


def test_a_bound_on_records_wins_over_the_one_on_tasks() -> None:
    spans = [(1, 0, 10_000_000)]
    partitions = plan(spans, PlanBounds(max_records=10_000, max_partitions=4))
    assert len(partitions) == 1_000
    assert max(partition.records for partition in partitions) == 10_000
    # Not asked for, it gives way.
    assert len(plan([(1, 0, 10**9)])) == 256
    assert len(plan([(1, 0, 10**9)], PlanBounds(max_partitions=1_000))) == 1_000


def test_ten_thousand_streams() -> None:
    spans = [(stream, 0, 50) for stream in range(1, 10_001)]
    partitions = plan(spans)
    assert len(partitions) == 5
    assert covered(partitions) == spans


@pytest.mark.parametrize("seed", range(20))
def test_every_record_once(seed: int) -> None:
    seeded = random.Random(seed)
    spans = []
    for stream in range(1, seeded.randrange(2, 60)):
        start = seeded.randrange(10**6)
        spans.append((stream, start, start + seeded.choice([0, 1, 99, 10**5, 10**7])))
    shuffled = seeded.sample(spans, len(spans))
    partitions = plan(shuffled)
    assert covered(partitions) == [span for span in spans if span[2] > span[1]]
    assert len(partitions) <= 256
    assert plan(spans) == partitions


def test_partitions_travel() -> None:
    partition = SbpInputPartition([(1, 2, 3)])
    assert pickle.loads(pickle.dumps(partition)) == partition
