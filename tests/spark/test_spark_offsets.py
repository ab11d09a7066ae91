"""The offsets of a streaming query, without Spark."""

from __future__ import annotations

import json

import pytest

from sbp_native.spark.errors import SbpSparkError
from sbp_native.spark.offsets import OffsetMap, spans_between


def test_canonical_text() -> None:
    """The text is compared and kept for ever: ids in numeric order, parts in one order, nothing that is empty."""
    offsets = OffsetMap({23: 88, 4: 7, 117: 0}, began={23: 1, 4: 0}, discovered={117: 0})
    text = json.dumps(offsets.to_json(), separators=(",", ":"))
    assert text == '{"v":1,"o":{"4":7,"23":88,"117":0},"from":{"4":0,"23":1},"new":{"117":0}}'
    assert json.dumps(OffsetMap({17: 1000}, initial=True).to_json(), separators=(",", ":")) == (
        '{"v":1,"init":true,"o":{"17":1000}}'
    )


@pytest.mark.parametrize(
    "offsets",
    [
        OffsetMap({}),
        OffsetMap({1: 0}),
        OffsetMap({1: 2**63 - 1}, initial=True),
        OffsetMap({1: 5, 2: 6}, began={1: 4}, discovered={2: 0}),
    ],
)
def test_round_trip(offsets: OffsetMap) -> None:
    assert OffsetMap.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


def test_a_later_version_is_named() -> None:
    with pytest.raises(SbpSparkError, match=r"\[SBP-9205\].*version 2, this release of sbp-native reads up to 1"):
        OffsetMap.from_json({"v": 2, "z": "..."})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"o": {"1": 1}},
        {"v": "1", "o": {}},
        {"v": 0, "o": {}},
        {"v": True, "o": {}},
        {"v": 1},
        {"v": 1, "o": []},
        {"v": 1, "o": {"01": 1}},
        {"v": 1, "o": {"0": 1}},
        {"v": 1, "o": {"-1": 1}},
        {"v": 1, "o": {"a": 1}},
        {"v": 1, "o": {"1": -1}},
        {"v": 1, "o": {"1": 1.0}},
        {"v": 1, "o": {"1": True}},
        {"v": 1, "o": {"1": 2**63}},
        {"v": 1, "o": {}, "init": 1},
        {"v": 1, "o": {}, "extra": 1},
    ],
)
def test_refused(value: dict[str, object]) -> None:
    with pytest.raises(SbpSparkError, match=r"\[SBP-9205\]"):
        OffsetMap.from_json(value)


def test_the_first_end_remembers_where_the_query_began() -> None:
    """A restart before the first commit asks for the initial offset again, and "latest" lies further on by then."""
    began = OffsetMap({1: 100, 2: 50}, initial=True)
    end = began.advanced({1: 110}, {})
    assert end.began == {1: 100, 2: 50}
    assert end.next == {1: 110, 2: 50}
    anew = OffsetMap({1: 500, 2: 70}, initial=True)
    assert spans_between(anew, end) == spans_between(began, end) == [(1, 100, 110)]


def test_later_ends_do_not() -> None:
    second = OffsetMap({1: 110}).advanced({1: 120}, {})
    assert second.began == {}
    assert spans_between(OffsetMap({1: 110}), second) == [(1, 110, 120)]


def test_a_discovered_stream_begins_where_it_was_met() -> None:
    end = OffsetMap({1: 10}).advanced({1: 12, 2: 5}, {2: 3})
    assert end.discovered == {2: 3}
    assert spans_between(OffsetMap({1: 10}), end) == [(1, 10, 12), (2, 3, 5)]


def test_a_discovered_stream_that_is_not_read_yet_keeps_its_place() -> None:
    assert OffsetMap({1: 10}).advanced({1: 12}, {2: 3}).next == {1: 12, 2: 3}


def test_nothing_between_equal_offsets() -> None:
    here = OffsetMap({1: 10, 2: 20})
    assert spans_between(here, here) == []


def test_backwards_is_refused() -> None:
    with pytest.raises(SbpSparkError, match="stream 1 would be read from 10 back to 9"):
        spans_between(OffsetMap({1: 10}), OffsetMap({1: 9}))


def test_an_end_without_a_beginning_is_refused() -> None:
    with pytest.raises(SbpSparkError, match="stream 2 has an end 9 but no beginning"):
        spans_between(OffsetMap({1: 10}), OffsetMap({1: 10, 2: 9}))
