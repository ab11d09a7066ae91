"""Filters that choose what is read: alone, and through Spark with its switch on and off."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from sbp_native.spark import SbpDataSource
from sbp_native.spark.filters import FilterPush, Narrowed
from sbp_native.spark.schema import column_set
from sbp_native.spark.streams import StreamHead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    import sbp_native as sbp
    from sbp_native.spark.options import Columns

HEADS = [StreamHead(1, "flights/UA"), StreamHead(2, "flights/DL"), StreamHead(10, "weather")]
STREAM, ID, OFFSET, TIME = ("stream",), ("stream_id",), ("offset",), ("timestamp",)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NOON_MS = 1_767_268_800_000


def push(*filters: Filter, kind: Columns = "records", gaps: bool = False) -> tuple[Narrowed, list[Filter]]:
    narrowed = Narrowed()
    left = FilterPush(kind, narrowed, gaps)(list(filters))
    return narrowed, list(left)


def kept(*filters: Filter, kind: Columns = "records") -> list[int]:
    """The streams that the filters leave, which they must have seen to in full."""
    narrowed, left = push(*filters, kind=kind)
    assert left == []
    return [head.id for head in HEADS if narrowed.keeps_stream(head)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EqualTo(STREAM, "weather"), [10]),
        (EqualNullSafe(STREAM, "weather"), [10]),
        (Not(EqualTo(STREAM, "weather")), [1, 2]),
        (In(STREAM, ("weather", "flights/UA")), [1, 10]),
        (Not(In(STREAM, ("weather", "flights/UA"))), [2]),
        (StringStartsWith(STREAM, "flights/"), [1, 2]),
        (Not(StringStartsWith(STREAM, "flights/")), [10]),
        (StringEndsWith(STREAM, "/DL"), [2]),
        (StringContains(STREAM, "t"), [1, 2, 10]),
        (GreaterThan(STREAM, "flights/UA"), [10]),
        (EqualTo(ID, 2), [2]),
        (GreaterThanOrEqual(ID, 2), [2, 10]),
        (LessThan(ID, 2), [1]),
        (Not(LessThanOrEqual(ID, 2)), [10]),
        (In(ID, (1, 99)), [1]),
        (IsNotNull(STREAM), [1, 2, 10]),
        (Not(IsNull(ID)), [1, 2, 10]),
    ],
)
def test_filters_on_streams_are_seen_to(wanted: Filter, expected: list[int]) -> None:
    assert kept(wanted) == expected


def test_all_of_several_filters_hold() -> None:
    assert kept(StringStartsWith(STREAM, "flights/"), GreaterThan(ID, 1)) == [2]
    assert kept(EqualTo(("topic",), "weather"), kind="kafka") == [10]
    assert kept(EqualTo(("_stream",), "weather"), kind="arrow") == [10]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EqualTo(OFFSET, 7), (7, 8)),
        (GreaterThan(OFFSET, 7), (8, 20)),
        (GreaterThanOrEqual(OFFSET, 7), (7, 20)),
        (LessThan(OFFSET, 7), (5, 7)),
        (LessThanOrEqual(OFFSET, 7), (5, 8)),
        (GreaterThan(OFFSET, 100), (20, 20)),
        (LessThan(OFFSET, 0), (5, 5)),
        (LessThan(OFFSET, -3), (5, 5)),
    ],
)
def test_filters_on_offsets_cut_spans(wanted: Filter, expected: tuple[int, int]) -> None:
    narrowed, left = push(wanted)
    assert left == []
    assert narrowed.clip(5, 20) == expected


def test_a_choice_of_offsets_is_left_to_spark_within_its_span() -> None:
    wanted = In(OFFSET, (9, 12))
    narrowed, left = push(wanted, GreaterThan(OFFSET, 9))
    assert left == [wanted]
    assert narrowed.clip(0, 20) == (10, 13)


@pytest.mark.parametrize(
    "wanted",
    [
        EqualTo(STREAM, None),
        Not(EqualTo(STREAM, None)),
        In(STREAM, ("weather", None)),
        EqualTo(ID, True),
        EqualTo(STREAM, 5),
        IsNull(STREAM),
        IsNotNull(TIME),
        Not(EqualTo(OFFSET, 7)),
        EqualTo(OFFSET, None),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        LessThan(TIME, NOON),
        EqualTo(TIME, None),
    ],
)
def test_what_is_not_understood_is_left_to_spark_and_narrows_nothing(wanted: Filter) -> None:
    narrowed, left = push(wanted)
    assert left == [wanted]
    assert narrowed.keeps == []
    assert narrowed.since_ms is None
    assert narrowed.clip(0, 20) == (0, 20)


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_times_move_the_start_and_are_left_to_spark(kind: type) -> None:
    wanted = kind(TIME, NOON)
    narrowed, left = push(wanted, GreaterThan(TIME, NOON - dt.timedelta(days=1)))
    assert left[0] is wanted
    assert len(left) == 2
    assert narrowed.since_ms == NOON_MS


def test_columns_of_a_stream_s_own_are_not_taken_for_places() -> None:
    wanted = [EqualTo(("offset",), 5), EqualTo(("stream",), "weather"), EqualTo(("_offset",), 5)]
    narrowed, left = push(*wanted, kind="arrow")
    assert left == wanted[:2]
    assert narrowed.clip(0, 20) == (5, 6)


def test_gaps_that_are_rows_are_not_cut() -> None:
    wanted = [GreaterThan(OFFSET, 5), GreaterThan(TIME, NOON), EqualTo(ID, 2)]
    narrowed, left = push(*wanted, gaps=True)
    assert left == wanted[:2]
    assert narrowed.clip(0, 20) == (0, 20)


def test_the_check_of_spark_sees_no_method_of_ours() -> None:
    """Else every query would fail while Spark's setting is off; see also the tests through Spark."""
    assert FilterPush("records", Narrowed(), False).__func__ is DataSourceReader.pushFilters


def test_filters_choose_spans(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """A reader without Spark: what is planned is less."""
    names = [f"{name}/a", f"{name}/b"]
    for each in names:
        stream = client.create_stream(each)
        for batch in range(10):
            stream.append([b"x"] * 10, timestamp=1_000_000 * (batch + 1))
    ids = [client.stream(each).id for each in names]
    heads = [StreamHead(ids[0], names[0]), StreamHead(ids[1], names[1])]

    def planned(*filters: Filter) -> list[tuple[int, int, int]]:
        source = SbpDataSource({"servers": server.address, "streams": ",".join(names), "pushFilters": "true"})
        reader = source.reader(column_set(heads, source._options).default())
        reader.pushFilters(list(filters))
        return [span for partition in reader.partitions() for span in partition.spans]

    assert planned() == [(ids[0], 0, 100), (ids[1], 0, 100)]
    assert planned(EqualTo(STREAM, names[1])) == [(ids[1], 0, 100)]
    assert planned(EqualTo(ID, ids[0]), GreaterThan(OFFSET, 41), LessThan(OFFSET, 50)) == [(ids[0], 42, 50)]
    since = dt.datetime.fromtimestamp(7_000, dt.UTC)
    assert planned(GreaterThanOrEqual(TIME, since)) == [(ids[0], 60, 100), (ids[1], 60, 100)]
    assert planned(GreaterThan(TIME, since + dt.timedelta(days=1))) == []


@pytest.fixture(params=["true", "false"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Spark's switch, on and off."""
    key = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, request.param)
    yield request.param == "true"
    spark.conf.set(key, before)


def test_the_same_rows_with_the_switch_on_and_off(
    pushdown: bool, client: sbp.Client, read: Callable, name: str
) -> None:
    one, two = two_streams(client, name)
    fourth = "TIMESTAMP '1970-01-01 00:50:00 UTC'"
    for condition, expected in {
        f"stream = '{name}/a' AND offset >= 15": [(one, offset) for offset in range(15, 20)],
        f"stream_id IN ({two}, 12345678) AND timestamp > {fourth}": [(two, offset) for offset in range(12, 20)],
        f"timestamp = {fourth} AND offset <> 9": [(n, offset) for n in (one, two) for offset in (8, 10, 11)],
        f"stream_id = {one} OR offset = 3": [*((one, offset) for offset in range(20)), (two, 3)],
    }.items():
        frame = read(pushFilters="true").load(f"{name}/a,{name}/b").where(condition).select("stream_id", "offset")
        assert sorted(tuple(row) for row in frame.collect()) == sorted(expected), (condition, pushdown)
    planned = read(pushFilters="true").load(f"{name}/a").where("offset >= 15")
    text = planned._jdf.queryExecution().executedPlan().toString()
    # What was pushed in full, Spark does not look at again.
    assert ("Filter (" not in text) is pushdown, text


def test_one_frame_for_several_queries(pushdown: bool, client: sbp.Client, read: Callable, name: str) -> None:
    """As everybody does it: Spark would mix up the filters of these queries, so none may be pushed by default."""
    one, _ = two_streams(client, name)
    frame = read().load(f"{name}/a,{name}/b")
    assert frame.where("offset < 3").count() == 6
    assert frame.count() == 40
    both = frame.where(f"stream_id = {one}").unionAll(frame.where("offset >= 15"))
    assert sorted(row.offset for row in both.select("offset").collect()) == sorted(
        [*range(20), *range(15, 20), *range(15, 20)]
    )


def two_streams(client: sbp.Client, name: str) -> tuple[int, int]:
    """Two streams of twenty records, four of each time; their ids."""
    streams = [client.create_stream(f"{name}/a"), client.create_stream(f"{name}/b")]
    for stream in streams:
        for batch in range(5):
            stream.append([b"%d" % batch] * 4, timestamp=1_000_000 * (batch + 1))
    return streams[0].id, streams[1].id
