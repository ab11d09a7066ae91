"""The offsets of a streaming query, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sbp_native._native import pack_varints, unpack_varints
from sbp_native.spark import wide
from sbp_native.spark.errors import SbpSparkError
from sbp_native.spark.offsets import WIDE, OffsetMap, spans_between

KEPT = OffsetMap({1: 22, 4: 12345}, initial=True, began={3: 0}, discovered={1: 31}, gone=frozenset({1}))


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
        OffsetMap({1: 5, 2: 6}, gone=frozenset({1})),
        OffsetMap({1: 5, 2: 6}, tags={1: "9f86d081", 2: "00000001"}),
        OffsetMap({1: 5, 2: 6, 30: 0}, initial=True, tags={2: "ffffffff"}),
        OffsetMap({1: 5, 2: 6}, began={1: 4}, discovered={2: 0}, gone=frozenset({1}), tags={1: "9f86d081"}),
        OffsetMap({number: 2**40 + number for number in range(1, 2 * WIDE, 3)}),
        OffsetMap(dict.fromkeys(range(1, WIDE + 3), 7), gone=frozenset({3}), tags={2: "9f86d081", WIDE: "0000000a"}),
        OffsetMap({number: number % 7 for number in range(5, WIDE + 7)}, initial=True),
        OffsetMap(
            dict.fromkeys(range(1, WIDE + 3), 2**63 - 1),
            began={1: 0, WIDE: 9},
            discovered={2: 2**62},
            gone=frozenset({1, WIDE}),
        ),
    ],
)
def test_round_trip(offsets: OffsetMap) -> None:
    assert OffsetMap.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


def test_identities_in_the_text() -> None:
    """Version 3, read for ever too. Nothing is known of a stream's identity: the text is what it always was."""
    offsets = OffsetMap({23: 88, 4: 7, 117: 0}, tags={117: "9f86d081", 4: "00c0ffee"})
    text = json.dumps(offsets.to_json(), separators=(",", ":"))
    assert text == '{"v":3,"o":{"4":7,"23":88,"117":0},"id":"00c0ffee000000009f86d081"}'
    kept = {"v": 3, "z": "KLUv/SAVqQAAAQIBAxa5YAEDAAEBHwEBAIGhm/wJ"}
    assert OffsetMap.from_json({"v": 1, "o": {"4": 7}}).tags == {}
    assert OffsetMap.from_json(kept) == replace(KEPT, tags={4: "9f86d081"})


def test_identities_are_taken_up_and_kept() -> None:
    old = OffsetMap({1: 5, 2: 6, 3: 7})
    end = old.advanced({1: 9}, {4: 0}, tags={1: "aaaaaaaa", 4: "bbbbbbbb", 9: "cccccccc"})
    assert end.tags == {1: "aaaaaaaa", 4: "bbbbbbbb"}
    later = end.advanced({}, {1: 0}, frozenset({4}), tags={1: "dddddddd"})
    assert later.tags == {1: "dddddddd", 4: "bbbbbbbb"}
    assert later.advanced({}, {4: 2}, tags={4: "eeeeeeee"}).gone == frozenset()


@pytest.mark.parametrize("text", [None, "", "9f86d081", "9f86d0819f86d08", "9f86d0819F86D081", "9f86d081 9f86d08"])
def test_identities_that_were_edited(text: object) -> None:
    with pytest.raises(
        SbpSparkError, match=r"\[SBP-9205\] part 'id' of an offset .* 2 streams: was the checkpoint edited"
    ):
        OffsetMap.from_json({"v": 3, "o": {"1": 2, "2": 2}, "id": text})
    with pytest.raises(SbpSparkError, match=r"unknown parts \['id'\]"):
        OffsetMap.from_json({"v": 1, "o": {"1": 2}, "id": "9f86d081"})


def test_a_later_version_is_named() -> None:
    with pytest.raises(SbpSparkError, match=r"\[SBP-9205\].*version 4, this release of sbp-native reads up to 3"):
        OffsetMap.from_json({"v": 4, "z": "..."})


def test_the_packed_form_is_read_for_ever() -> None:
    """Text that this release wrote: a later one has to read it, whatever its compressor makes of the same numbers."""
    kept = "KLUv/SAPeQAAAQIBAxa5YAEDAAEBHwEB"
    assert OffsetMap.from_json({"v": 2, "z": kept}) == KEPT
    assert wide.unpack(wide.pack(True, (KEPT.next, KEPT.began, KEPT.discovered), [1])) == wide.unpack(kept)


def test_many_streams_are_packed_and_short() -> None:
    offsets = OffsetMap({number: 1_000_000 + number % 100 for number in range(1, 100_001)})
    out = offsets.to_json()
    assert out.keys() == {"v", "z"}
    assert len(out["z"]) < 200_000
    assert OffsetMap(dict.fromkeys(range(1, WIDE + 1), 0)).to_json()["v"] == 1


@pytest.mark.parametrize("text", [7, None, "", "not base64!", "AAAA", "KLUv/SAPeQAAAQIBAxa5YAEDAAEB"])
def test_packed_text_that_was_edited(text: object) -> None:
    with pytest.raises(
        SbpSparkError, match=r"\[SBP-9205\] a packed offset cannot be read .*: was the checkpoint edited"
    ):
        OffsetMap.from_json({"v": 2, "z": text})


@pytest.mark.parametrize("numbers", [[], [0], [2, 0, 0, 0, 0], [0, 5, 1], [0, 0, 0, 0, 0, 1]])
def test_packed_numbers_that_are_not_offsets(numbers: list[int]) -> None:
    import base64

    import pyarrow as pa

    text = base64.b64encode(pa.Codec("zstd").compress(pack_varints(numbers), asbytes=True)).decode()
    with pytest.raises(ValueError, match=r"it ends early|more in it|not enough values|it is no"):
        wide.unpack(text)


def test_varints() -> None:
    numbers = [0, 1, 127, 128, 300, 2**40, 2**63 - 1]
    packed = pack_varints(numbers)
    assert packed[:5] == b"\x00\x01\x7f\x80\x01"
    assert unpack_varints(packed) == numbers
    with pytest.raises(OverflowError):
        pack_varints([-1])
    for cut in (b"\x80", b"\xff" * 12):
        with pytest.raises(ValueError, match="no numbers"):
            unpack_varints(cut)


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
        {"v": 1, "o": {"1": 1, "\u0662": 1}},
        {"v": 1, "o": {"1": 1, "2": "2"}},
        {"v": 1, "o": {}, "gone": {}},
        {"v": 1, "o": {}, "gone": ["1"]},
        {"v": 2, "o": {}},
        {"v": 2.0, "z": ""},
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


def test_a_stream_that_is_shorter_than_it_was_begins_anew() -> None:
    """As after a server was restored from an old copy: the query goes on from its end, when losses are allowed."""
    end = OffsetMap({1: 12, 2: 5}).advanced({1: 14}, {1: 10})
    assert spans_between(OffsetMap({1: 12, 2: 5}), end) == [(1, 10, 14)]
    waiting = OffsetMap({1: 12}).advanced({}, {1: 10})
    assert waiting.next == {1: 10}
    assert spans_between(OffsetMap({1: 12}), waiting) == []


def test_what_is_gone_stays_so() -> None:
    end = OffsetMap({1: 10, 2: 3}).advanced({}, {}, frozenset({1}))
    later = end.advanced({2: 4}, {})
    assert later.gone == {1}
    assert later.next == {1: 10, 2: 4}
    assert json.dumps(later.to_json(), separators=(",", ":")) == '{"v":1,"o":{"1":10,"2":4},"gone":[1]}'


def test_backwards_is_refused() -> None:
    with pytest.raises(SbpSparkError, match="stream 1 would be read from 10 back to 9"):
        spans_between(OffsetMap({1: 10}), OffsetMap({1: 9}))


def test_an_end_without_a_beginning_is_refused() -> None:
    with pytest.raises(SbpSparkError, match="stream 2 has an end 9 but no beginning"):
        spans_between(OffsetMap({1: 10}), OffsetMap({1: 10, 2: 9}))
