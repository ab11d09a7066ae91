"""How a streaming query stands to its streams, without Spark and without a server."""

from __future__ import annotations

from sbp_native.spark.offsets import OffsetMap, spans_between
from sbp_native.spark.standing import stand


def test_what_is_there_is_read() -> None:
    found = stand(OffsetMap({1: 5, 2: 7}), {1, 2}, {1: 0, 2: 0}, {1: 9, 2: 7}, {})
    assert (found.starts, found.ends, found.records) == ({1: 5}, {1: 9}, 4)
    assert not found.lost
    assert found.end(OffsetMap({1: 5, 2: 7}), found.ends) == OffsetMap({1: 9, 2: 7})


def test_nothing_new_moves_nothing() -> None:
    here = OffsetMap({1: 5})
    assert stand(here, {1}, {1: 0}, {1: 5}, {}).end(here, {}) is None


def test_a_trimmed_stream_goes_over_the_gap_at_once() -> None:
    """Also when the limit lets no record of it into the batch: a gap is not records, and is told once."""
    begin = OffsetMap({1: 5})
    found = stand(begin, {1}, {1: 50}, {1: 60}, {})
    assert found.lost == [(1, 5, 50)]
    assert (found.starts, found.ends) == ({1: 50}, {1: 60})
    end = found.end(begin, {})
    assert end == OffsetMap({1: 50})
    assert spans_between(begin, end) == [(1, 5, 50)]
    assert found.end(begin, {1: 55}) == OffsetMap({1: 55})


def test_everything_trimmed() -> None:
    begin = OffsetMap({1: 5})
    found = stand(begin, {1}, {1: 60}, {1: 60}, {})
    assert (found.lost, found.records) == ([(1, 5, 60)], 0)
    assert found.end(begin, {}) == OffsetMap({1: 60})


def test_a_trim_behind_the_query_loses_nothing() -> None:
    assert not stand(OffsetMap({1: 60}), {1}, {1: 60}, {1: 60}, {}).lost
    assert not stand(OffsetMap({1: 60}), {1}, {1: 50}, {1: 60}, {}).lost


def test_a_trim_behind_the_target_loses_what_is_before_it() -> None:
    found = stand(OffsetMap({1: 5}), {1}, {1: 50}, {1: 60}, {}, target={1: 40})
    assert found.lost == [(1, 5, 40)]
    assert found.end(OffsetMap({1: 5}), {}) == OffsetMap({1: 40})
    assert not stand(OffsetMap({1: 40}), {1}, {1: 50}, {1: 60}, {}, target={1: 40}).lost


def test_a_deleted_stream_that_was_read() -> None:
    begin = OffsetMap({1: 5, 2: 0})
    found = stand(begin, {2}, {2: 0}, {2: 0}, {1: 5})
    assert (found.gone, found.lost, found.unknown) == ({1}, [], {})
    end = found.end(begin, {})
    assert end == OffsetMap({1: 5, 2: 0}, gone=frozenset({1}))
    assert stand(end, {2}, {2: 0}, {2: 0}, {1: 5}).end(end, {}) is None, "it is told once"


def test_a_deleted_stream_with_records_that_nobody_read() -> None:
    begin = OffsetMap({1: 5})
    found = stand(begin, set(), {}, {}, {1: 9})
    assert (found.gone, found.lost) == ({1}, [(1, 5, 9)])
    assert found.end(begin, {}) == OffsetMap({1: 9}, gone=frozenset({1}))


def test_a_deleted_stream_of_which_nothing_is_known() -> None:
    found = stand(OffsetMap({1: 5}), set(), {}, {}, {})
    assert (found.gone, found.lost, found.unknown) == ({1}, [], {1: 5})


def test_a_shorter_stream_begins_at_its_end() -> None:
    begin = OffsetMap({1: 12})
    found = stand(begin, {1}, {1: 0}, {1: 10}, {})
    assert found.lost == [(1, 10, 12)]
    assert found.end(begin, {}) == OffsetMap({1: 10}, discovered={1: 10})


def test_a_new_stream_is_read_from_its_first_record() -> None:
    begin = OffsetMap({1: 5})
    found = stand(begin, {1, 2}, {1: 0, 2: 3}, {1: 5, 2: 8}, {})
    assert (found.discovered, found.starts, found.lost) == ({2: 3}, {2: 3}, [])
    assert found.end(begin, {}) == OffsetMap({1: 5, 2: 3}, discovered={2: 3})
    assert found.end(begin, {2: 6}) == OffsetMap({1: 5, 2: 6}, discovered={2: 3})


def test_a_stream_behind_the_target_is_not_read() -> None:
    begin = OffsetMap({1: 5})
    assert stand(begin, {1, 2}, {1: 0, 2: 0}, {1: 9, 2: 4}, {}, target={1: 5}).end(begin, {}) is None


def test_a_stream_that_is_not_asked_for_stays() -> None:
    begin = OffsetMap({1: 5, 2: 3})
    found = stand(begin, {1}, {1: 0, 2: 0}, {1: 6, 2: 9}, {})
    assert found.end(begin, found.ends) == OffsetMap({1: 6, 2: 3})


def test_a_stream_that_is_another_one_is_read_from_its_first_record() -> None:
    begin = OffsetMap({1: 5, 2: 7}, tags={1: "aaaaaaaa", 2: "bbbbbbbb"})
    found = stand(begin, {1, 2}, {1: 0, 2: 0}, {1: 9, 2: 7}, {}, replaced={1})
    assert (found.unknown, found.lost) == ({1: 5}, [])
    assert (found.starts, found.ends, found.discovered) == ({1: 0}, {1: 9}, {1: 0})
    end = found.end(begin, {1: 4}, {1: "cccccccc", 2: "bbbbbbbb"})
    assert end is not None
    assert (end.next, end.discovered, end.tags) == ({1: 4, 2: 7}, {1: 0}, {1: "cccccccc", 2: "bbbbbbbb"})


def test_another_stream_without_records_is_told_once() -> None:
    begin = OffsetMap({1: 5}, tags={1: "aaaaaaaa"})
    found = stand(begin, {1}, {1: 3}, {1: 3}, {}, replaced={1})
    end = found.end(begin, {}, {1: "cccccccc"})
    assert end is not None
    assert (end.next, end.discovered, end.gone) == ({1: 3}, {1: 3}, frozenset())


def test_an_id_that_is_not_read_and_belongs_to_another_stream_now() -> None:
    begin = OffsetMap({1: 5, 2: 7}, tags={1: "aaaaaaaa"})
    found = stand(begin, {2}, {1: 0, 2: 0}, {1: 9, 2: 7}, {}, replaced={1})
    assert (found.unknown, found.gone, found.ends) == ({1: 5}, {1}, {})
    end = found.end(begin, {}, {})
    assert end is not None
    assert end.gone == {1}
    assert stand(end, {2}, {1: 0, 2: 0}, {1: 9, 2: 7}, {}, replaced={1}).end(end, {}) is None, "it is told once"


def test_another_stream_and_a_target() -> None:
    found = stand(OffsetMap({1: 5}), {1}, {1: 0}, {1: 9}, {}, {1: 4}, replaced={1})
    assert found.ends == {1: 4}
