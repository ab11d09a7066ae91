"""``format("pravega")`` against a scripted store and controller, driven as Spark drives it but in this process."""

from __future__ import annotations

import json
import logging
import re
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pravega.controller import Controller
from pravega.store import Running, Segment
from sbp_native import pravega
from sbp_native.spark.errors import SbpSparkError
from sbp_native.spark.lag import lag_of
from sbp_native.spark.naming import number_of
from sbp_native.spark.offsets import OffsetMap
from sbp_native.spark.planning import PlanBounds, plan
from sbp_native.spark.pravega.source import PravegaDataSource
from spark.pravega_support import PravegaQuery, content, load, place, put, restarted, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(60)

S0, S1 = "sc/st/0.#epoch.0", "sc/st/1.#epoch.0"


@pytest.fixture
def store() -> Iterator[Running]:
    """A store with a stream of two segments."""
    with Running() as running:
        running.segments.update({S0: Segment(), S1: Segment()})
        yield running


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as running:
        yield running


def rows(found: list[dict[str, Any]]) -> list[tuple[str, int, bytes]]:
    return [(row["stream"], row["offset"], row["value"]) for row in found]


def error(call: Any) -> str:
    """The line of what must fail."""
    with pytest.raises(SbpSparkError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


def shown(query: PravegaQuery) -> dict[str, Any]:
    """Where a query stands, as its checkpoint has it."""
    found: dict[str, Any] = json.loads(query.place or "")
    return found


def test_a_batch_is_events_of_segments(store: Running) -> None:
    put(store, S0, 0, 20)
    put(store, S1, 0, 5)
    found = load(segmentStore=store.address, streams="sc/st")
    assert rows(found) == wanted(S0, 0, 20) + wanted(S1, 0, 5)
    assert [row["stream_id"] for row in found] == [0] * 20 + [1] * 5
    assert {(row["key"], row["timestamp"].timestamp()) for row in found} == {(None, 0.0)}
    assert found[0]["headers"] == []
    assert rows(load(segmentStore=store.address, path=S1)) == wanted(S1, 0, 5)
    [row] = load(
        segmentStore=store.address, streams=S1, includeHeaders="false", endingOffsets=json.dumps({S1: place(S1, 1)})
    )
    assert list(row) == ["stream", "stream_id", "offset", "timestamp", "key", "value"]
    assert load("value", segmentStore=store.address, streams=S1) == [{"value": content(S1, n)} for n in range(5)]


def test_what_a_writer_wrote(store: Running) -> None:
    with pravega.connect(segment_store=store.address) as client, client.writer("sc/st") as writer:
        writer.append_many([("k1", b"a"), ("k2", b"b"), ("k1", b"")])
        writer.append(bytes(3 << 20), key="k1")
    found = load(segmentStore=store.address, streams="sc/st")
    by_segment = [(row["stream"], len(row["value"])) for row in found]
    assert by_segment == [(S0, 1), (S0, 0), (S0, 3 << 20), (S1, 1)]


def test_places(store: Running) -> None:
    put(store, S0, 0, 20)
    put(store, S1, 0, 20)

    def read(**places: str) -> list[tuple[str, int, bytes]]:
        return rows(load(segmentStore=store.address, streams="sc/st", **places))

    each = json.dumps({S0: place(S0, 7), "sc/st": -2})
    end = json.dumps({S0: "latest", S1: place(S1, 3)})
    assert read(startingOffsets=each, endingOffsets=end) == wanted(S0, 7, 20) + wanted(S1, 0, 3)
    assert f"leaves out stream {S1}" in error(lambda: read(startingOffsets=json.dumps({S0: 0})))
    whole = place(S0, 20)
    line = error(lambda: read(startingOffsets=json.dumps({S0: 9999, S1: 0})))
    assert f"gives stream {S0} the offset 9999, it holds [0, {whole})" in line
    # A byte at which no event begins is no event, or none that there was.
    line = error(lambda: read(startingOffsets=json.dumps({S0: 3, S1: -2})))
    assert re.search(r"\[SBP-950[12]\] reading stream sc/st/0.#epoch.0", line), line


OPTIONS: list[tuple[dict[str, str], str]] = [
    ({}, "[SBP-9203] option 'controller' is missing"),
    ({"controller": "a"}, "option 'controller' is 'a': it must be 'host:port'"),
    ({"controller": "a:1", "segmentStore": "a:2"}, "give 'controller' or 'segmentStore', not both"),
    ({"segmentStore": "tcp://a:1"}, "it must be 'host:port'"),
    ({"controller": "a:1,b:1"}, "name one server"),
    ({"controller": "a:1"}, "no stream is named: use load('scope/stream')"),
    ({"controller": "a:1", "streams": "x"}, "'x' names neither a stream nor a segment"),
    ({"controller": "a:1", "streams": "a/b/c"}, "'a/b/c' names neither a stream nor a segment"),
    ({"controller": "a:1", "streams": "a/b/00.#epoch.0"}, "names neither a stream nor a segment"),
    ({"controller": "a:1", "streams": "a/b/"}, "names neither a stream nor a segment"),
    ({"controller": "a:1", "streams": "a/b/4294967296.#epoch.0"}, "names neither a stream nor a segment"),
    ({"controller": "a:1", "streams": "a/b,a/b"}, "'a/b' is listed twice"),
    ({"controller": "a:1", "streams": "a/b,a/b/0.#epoch.0"}, "is a part of 'a/b', which is listed too"),
    ({"controller": "a:1", "streams": "a/b", "path": "a/c"}, "streams are given twice"),
    ({"controller": "a:1", "streams": "a/b", "streamsPattern": "y"}, "streams are given twice"),
    ({"segmentStore": "a:1", "streamsPattern": "a/.*"}, "'streamsPattern' needs a controller"),
    ({"controller": "a:1", "streamsPattern": "("}, "it must be a regular expression"),
    ({"controller": "a:1", "streams": "a/b", "columns": "kafka"}, "option 'columns' is 'kafka'"),
    ({"controller": "a:1", "streams": "a/b", "startingOffsets": "latest-5"}, "Pravega counts bytes"),
    ({"controller": "a:1", "streams": "a/b", "endingOffsets": '{"a/b": "latest-5"}'}, "Pravega counts bytes"),
    ({"controller": "a:1", "startingTimestamp": "-10m"}, "events of Pravega have no time"),
    ({"controller": "a:1", "maxBytesPerTrigger": "0"}, "option 'maxBytesPerTrigger' is '0'"),
    ({"controller": "a:1", "maxOffsetsPerTrigger": "5"}, "it is called 'maxBytesPerTrigger' here"),
    ({"servers": "a:1"}, "it is called 'controller' here"),
    ({"segment_store": "a:1"}, "it is called 'segmentStore' here"),
    ({"controller": "a:1", "minPartitions": "5"}, "a segment is read by one task"),
    ({"controller": "a:1", "pushFilters": "true"}, "filters do not choose what is read"),
    ({"controller": "a:1", "tlsCa": "x"}, "TLS and users of Pravega are not supported"),
    ({"controller": "a:1", "tokenFile": "x"}, "given as text, with 'token'"),
    ({"controller": "a:1", "maxAttempts": "3"}, "a call is made again until 'timeout' is over"),
    ({"controller": "a:1", "readerGroup": "x"}, "there are no reader groups"),
    ({"controller": "a:1", "createStreams": "true"}, 'format("pravega") only reads'),
    ({"controller": "a:1", "failOnDataLos": "true"}, "did you mean 'failOnDataLoss'?"),
    ({"controller": "a:1", "streams": "a/b", "onDataLoss": "rows"}, "does nothing while a read fails on loss"),
    ({"controller": "a:1", "streams": "a/b", "endingOffsets": "earliest"}, "cannot be 'earliest'"),
]


@pytest.mark.parametrize(("options", "line"), OPTIONS, ids=[line for _, line in OPTIONS])
def test_options_are_judged_at_load(options: dict[str, str], line: str) -> None:
    told = error(lambda: PravegaDataSource(options).schema())
    assert line in told
    assert re.match(r"\[SBP-920[13457]\] ", told)


def test_a_write_is_refused_whatever_its_options_are() -> None:
    source = PravegaDataSource({"servers": "a:1"})
    for refused in (source.writer, source.streamWriter):
        line = error(lambda refused=refused: refused(None, False))
        assert line.startswith('[SBP-9207] format("pravega") only reads: write to streams with format("sbp")')


def test_names_that_do_not_exist_have_a_hint(controller: Controller, store: Running) -> None:
    controller.create("shop/orders", 2)
    ask = controller.address
    line = error(lambda: load(controller=ask, streams="shop/ordres"))
    assert line.startswith(
        f"[SBP-1404] there is no stream 'shop/ordres', controller {ask}: did you mean 'shop/orders'?"
    )
    line = error(lambda: load(controller=ask, streams="shop/orders/2.#epoch.0"))
    assert "has no segment 'shop/orders/2.#epoch.0'" in line
    line = error(lambda: load(segmentStore=store.address, streams="sc/other"))
    assert "there is no stream 'sc/other', segment store" in line


def test_a_task_for_each_segment_up_to_a_bound() -> None:
    spans = [(f"a/b/{number}.#epoch.0", 0, 10 * (number + 1)) for number in range(6)]
    each = plan([*spans, ("a/b/7.#epoch.0", 5, 5)], PlanBounds(whole=True))
    assert [part.spans for part in each] == [(span,) for span in spans]
    few = plan(spans, PlanBounds(max_partitions=4, whole=True))
    assert [len(part.spans) for part in few] == [2, 2, 2]
    assert [part.spans for part in plan([], PlanBounds(whole=True))] == [()]


def test_a_stream_that_was_scaled_is_read_whole(controller: Controller) -> None:
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    controller.scale("sc/st", [(0, 0.5), (0.5, 1)])
    left, right = "sc/st/1.#epoch.1", "sc/st/2.#epoch.1"
    put(controller.store, left, 0, 3)
    put(controller.store, right, 0, 4)
    found = load(controller=controller.address, streams="sc/st")
    assert rows(found) == wanted(S0, 0, 10) + wanted(left, 0, 3) + wanted(right, 0, 4)
    assert [row["stream_id"] for row in found] == [0] * 10 + [(1 << 32) + 1] * 3 + [(1 << 32) + 2] * 4
    assert number_of(right) == (1 << 32) + 2
    by_pattern = load(controller=controller.address, streamsPattern="sc/.*")
    assert by_pattern == found
    assert load(controller=controller.address, streamsPattern="sc") == []


def test_a_limit_counts_bytes_and_cuts_between_events(store: Running) -> None:
    put(store, S0, 0, 60)
    put(store, S1, 0, 20)
    query = PravegaQuery(segmentStore=store.address, streams="sc/st", maxBytesPerTrigger=400)
    query.drain()
    assert query.rows() == Counter(wanted(S0, 0, 60) + wanted(S1, 0, 20))
    sizes = [sum(8 + len(row["value"]) for row in batch) for batch in query.batches]
    assert max(sizes) <= 400
    assert len(sizes) <= 9
    assert {row["stream"] for row in query.batches[0]} == {S0, S1}
    # An event that is longer than its share comes all the same.
    tiny = PravegaQuery(segmentStore=store.address, streams="sc/st", maxBytesPerTrigger=10)
    assert tiny.step()
    assert {row["stream"] for row in tiny.batches[0]} == {S0, S1}
    assert len(tiny.batches[0]) == 2


def test_segments_that_follow_begin_in_the_next_micro_batch(controller: Controller) -> None:
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    query = PravegaQuery(controller=controller.address, streams="sc/st")
    limited = PravegaQuery(controller=controller.address, streams="sc/st", maxBytesPerTrigger=100)
    assert query.step()
    controller.scale("sc/st", [(0, 0.5), (0.5, 1)])
    left, right = "sc/st/1.#epoch.1", "sc/st/2.#epoch.1"
    put(controller.store, left, 0, 3)
    controller.scale("sc/st", [(0, 1)])
    merged = "sc/st/3.#epoch.2"
    put(controller.store, merged, 0, 5)
    assert query.step()
    assert rows(query.batches[1]) == wanted(left, 0, 3)
    query.restart()
    query.drain()
    assert rows(query.batches[2]) == wanted(merged, 0, 5)
    ends = {S0: place(S0, 10), left: place(left, 3), right: 0, merged: place(merged, 5)}
    assert shown(query)["o"] == ends
    assert shown(query)["gone"] == [S0, left, right]
    limited.drain()
    assert limited.rows() == query.rows() == Counter(wanted(S0, 0, 10) + wanted(left, 0, 3) + wanted(merged, 0, 5))
    order = [row["stream"] for batch in limited.batches for row in batch]
    assert order == sorted(order, key=[S0, left, merged].index)
    assert len(limited.batches) > 5


def test_a_query_that_begins_at_the_end_reads_nothing_of_before(controller: Controller) -> None:
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    controller.scale("sc/st", [(0, 1)])
    new = "sc/st/1.#epoch.1"
    put(controller.store, new, 0, 3)
    query = PravegaQuery(controller=controller.address, streams="sc/st", startingOffsets="latest")
    assert not query.step()
    put(controller.store, new, 3, 5)
    query.restart()
    query.drain()
    assert query.rows() == Counter(wanted(new, 3, 5))


def test_a_stream_that_was_truncated_where_it_had_been_read(controller: Controller) -> None:
    """Segments that were read to their ends, and are deleted while no driver runs, are no loss."""
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    query = PravegaQuery(controller=controller.address, streams="sc/st")
    query.drain()
    controller.scale("sc/st", [(0, 1)])
    new = "sc/st/1.#epoch.1"
    put(controller.store, new, 0, 3)
    query.drain()
    controller.truncate("sc/st", {1 << 32 | 1: place(new, 3)})
    put(controller.store, new, 3, 6)
    query.restart()
    query.drain()
    assert query.rows() == Counter(wanted(S0, 0, 10) + wanted(new, 0, 6))


def test_truncation_that_was_faster_fails_a_query_or_is_told(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    ask = {"controller": controller.address, "streams": "sc/st"}
    strict = PravegaQuery(**ask)
    lax = PravegaQuery(**ask, failOnDataLoss="false")
    telling = PravegaQuery(**ask, failOnDataLoss="false", onDataLoss="rows")
    for query in (strict, lax, telling):
        query.drain()
    put(controller.store, S0, 10, 40)
    first, last = place(S0, 10), place(S0, 30)
    controller.truncate("sc/st", {0: last})
    line = error(strict.step)
    said = f"[SBP-9013] records of this query are not there: stream {S0} [{first}, {last}), controller "
    assert line.startswith(said)
    with caplog.at_level(logging.WARNING, "sbp_native.spark"):
        lax.drain()
    assert f"stream {S0} [{first}, {last})" in caplog.text
    telling.drain()
    left = wanted(S0, 0, 10) + wanted(S0, 30, 40)
    assert lax.rows() == Counter(left)
    assert telling.rows() == Counter([*left, (S0, first, last)])
    [gap] = [row for row in telling.batches[-1] if row["gap_end"] is not None]
    assert (gap["stream_id"], gap["value"], gap["timestamp"]) == (0, None, None)
    report = telling.reader.reportLatestOffset()
    lag = lag_of({"sources": [{"endOffset": shown(telling), "latestOffset": report}]})
    assert lag is not None
    [stream] = lag.streams
    assert (stream.id, stream.behind, stream.lost) == (S0, 0, last - first)


def test_a_segment_that_is_gone_before_it_was_read(controller: Controller) -> None:
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    ask = {"controller": controller.address, "streams": "sc/st", "maxBytesPerTrigger": place(S0, 4)}
    strict, lax = PravegaQuery(**ask), PravegaQuery(**ask, failOnDataLoss="false")
    for query in (strict, lax):
        assert query.step()
    controller.scale("sc/st", [(0, 1)])
    new = "sc/st/1.#epoch.1"
    put(controller.store, new, 0, 3)
    controller.truncate("sc/st", {1 << 32 | 1: 0})
    assert f"stream {S0} [{place(S0, 4)}, {place(S0, 10)})" in error(strict.step)
    strict.restart()
    assert f"stream {S0} was deleted, and what it held from offset {place(S0, 4)} on" in error(strict.step)
    lax.drain()
    assert lax.rows() == Counter(wanted(S0, 0, 4) + wanted(new, 0, 3))


@pytest.mark.parametrize("rows_of_gaps", [False, True])
def test_a_task_that_meets_a_loss(store: Running, rows_of_gaps: bool) -> None:
    """What is truncated between the plan and the task."""
    put(store, S0, 0, 10)
    put(store, S1, 0, 10)
    strict, lax = (
        {"segmentStore": store.address, "streams": "sc/st", "failOnDataLoss": word} for word in ("true", "false")
    )
    more = {"onDataLoss": "rows"} if rows_of_gaps else {}
    readers = []
    for options in (strict, {**lax, **more}):
        source = PravegaDataSource(options)
        readers.append(source.reader(source.schema()))
    plans = [reader.partitions() for reader in readers]
    cut = place(S1, 6)
    with store.grown:
        store.segments[S1].start = cut
    line = error(lambda: [list(readers[0].read(part)) for part in plans[0]])
    assert f"[SBP-9013] records of this query are not there any more: stream {S1} [0, {cut}), segment store" in line
    found = [row for part in plans[1] for batch in readers[1].read(part) for row in batch.to_pylist()]
    kept = [row for row in found if row.get("gap_end") is None]
    assert rows(kept) == wanted(S0, 0, 10) + wanted(S1, 6, 10)
    gaps = [(row["stream"], row["offset"], row["gap_end"]) for row in found if row.get("gap_end") is not None]
    assert gaps == ([(S1, 0, cut)] if rows_of_gaps else [])


def test_a_segment_that_ends_before_its_plan(store: Running) -> None:
    """It was deleted, made anew and sealed between the plan and the task: that is told, not taken for all there was."""
    put(store, S0, 0, 10)
    source = PravegaDataSource({"segmentStore": store.address, "streams": S0})
    reader = source.reader(source.schema())
    [part] = reader.partitions()
    with store.grown:
        store.segments[S0] = Segment(sealed=True)
    put(store, S0, 0, 4)
    line = error(lambda: list(reader.read(part)))
    assert f"{place(S0, 4)} of {place(S0, 10)} records were delivered" in line


def test_a_stream_that_was_deleted_and_made_anew(controller: Controller) -> None:
    """A controller does not give numbers again: segments of the second life are others, read from the first byte."""
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    strict = PravegaQuery(controller=controller.address, streams="sc/st")
    lax = PravegaQuery(controller=controller.address, streams="sc/st", failOnDataLoss="false")
    for query in (strict, lax):
        query.drain()
    controller.delete("sc/st")
    controller.create("sc/st")
    new = "sc/st/1.#epoch.0"
    put(controller.store, new, 0, 3)
    # All that was seen had been read.
    strict.drain()
    assert strict.rows() == Counter(wanted(S0, 0, 10) + wanted(new, 0, 3))
    # A driver that starts then does not know what there was.
    lax.restart()
    lax.drain()
    assert lax.rows() == strict.rows()


def test_a_segment_of_the_same_name(store: Running) -> None:
    """Without a controller the segments of a second life have the names of the first."""
    put(store, S0, 0, 10)
    strict = PravegaQuery(segmentStore=store.address, streams="sc/st")
    lax = PravegaQuery(segmentStore=store.address, streams="sc/st", failOnDataLoss="false")
    for query in (strict, lax):
        query.drain()
    with store.grown:
        store.segments[S0] = Segment()
    put(store, S0, 0, 4)
    line = error(strict.step)
    assert f"stream {S0} is another one than that of the checkpoint" in line
    assert f"from offset {place(S0, 10)} on is not known" in line
    lax.drain()
    assert lax.rows() == Counter(wanted(S0, 0, 10) + wanted(S0, 0, 4))
    put(store, S0, 4, 6)
    lax.drain()
    assert lax.rows() == Counter(wanted(S0, 0, 10) + wanted(S0, 0, 6))


def test_a_sealed_segment_that_is_made_anew(store: Running) -> None:
    """It was read to its end and is not looked for again; one of its name is another one, and read from the first."""
    put(store, S0, 0, 10)
    query = PravegaQuery(segmentStore=store.address, streams="sc/st")
    query.drain()
    with store.grown:
        store.segments[S0].sealed = True
    query.drain()
    assert shown(query)["gone"] == [S0]
    assert not query.step()
    with store.grown:
        store.segments[S0] = Segment()
    put(store, S0, 0, 12)
    query.restart()
    query.drain()
    assert query.rows() == Counter(wanted(S0, 0, 10) + wanted(S0, 0, 12))


def test_a_checkpoint_that_is_put_back(controller: Controller) -> None:
    """What it says was not read is read again, over a scaling too."""
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    query = PravegaQuery(controller=controller.address, streams="sc/st")
    query.drain()
    kept = query.place
    put(controller.store, S0, 10, 20)
    query.drain()
    controller.scale("sc/st", [(0, 1)])
    new = "sc/st/1.#epoch.1"
    put(controller.store, new, 0, 3)
    query.drain()
    again = PravegaQuery(controller=controller.address, streams="sc/st")
    again.place = kept
    again.drain()
    assert again.rows() == Counter(wanted(S0, 10, 20) + wanted(new, 0, 3))


def test_a_stream_that_is_sealed_ends(controller: Controller) -> None:
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    query = PravegaQuery(controller=controller.address, streams="sc/st")
    controller.seal("sc/st")
    assert query.step()
    assert not query.step()
    controller.delete("sc/st")
    assert not query.step()
    assert query.rows() == Counter(wanted(S0, 0, 10))


def test_streams_that_a_pattern_finds_later(controller: Controller) -> None:
    controller.create("a/x")
    put(controller.store, "a/x/0.#epoch.0", 0, 3)
    query = PravegaQuery(controller=controller.address, streamsPattern="[ab]/.*")
    query.drain()
    controller.create("b/y")
    put(controller.store, "b/y/0.#epoch.0", 0, 4)
    controller.create("c/z")
    put(controller.store, "c/z/0.#epoch.0", 0, 4)
    query.drain()
    assert query.rows() == Counter(wanted("a/x/0.#epoch.0", 0, 3) + wanted("b/y/0.#epoch.0", 0, 4))


def test_available_now_reads_what_there_was(controller: Controller) -> None:
    """The segments that follow too, and nothing that came later."""
    controller.create("sc/st")
    put(controller.store, S0, 0, 10)
    controller.scale("sc/st", [(0, 1)])
    new = "sc/st/1.#epoch.1"
    put(controller.store, new, 0, 3)
    query = PravegaQuery(controller=controller.address, streams="sc/st")
    query.reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    put(controller.store, new, 3, 9)
    query.drain()
    assert query.rows() == Counter(wanted(S0, 0, 10) + wanted(new, 0, 3))


def test_a_server_that_comes_back(store: Running) -> None:
    put(store, S0, 0, 200)
    query = PravegaQuery(segmentStore=store.address, streams="sc/st", maxBytesPerTrigger=2000, timeout="30s")
    hasty = PravegaQuery(segmentStore=store.address, streams="sc/st", timeout="500ms")
    assert query.step()
    store.stop()
    line = error(hasty.step)
    assert re.match(r"\[SBP-(9506|90\d\d)\] (listing the|asking for the offsets of 2) streams", line), line
    assert "can be tried again" in line
    back: list[Running] = []
    starter = threading.Timer(0.5, lambda: back.append(restarted(store)))
    starter.start()
    try:
        query.drain()
        starter.join(30)
        hasty.drain()
    finally:
        starter.join(30)
        back[0].stop()
    assert query.rows() == hasty.rows() == Counter(wanted(S0, 0, 200))


def test_a_task_goes_on_when_connections_are_lost(store: Running) -> None:
    """With nothing twice: it asks on behind what it has handed out."""
    big = bytes(1 << 20)
    with store.grown:
        for _ in range(40):
            store.segments[S0].data += struct.pack(">ii", 0, len(big)) + big
    source = PravegaDataSource({"segmentStore": store.address, "streams": S0})
    reader = source.reader(source.schema())
    [part] = reader.partitions()
    found = []
    for batch in reader.read(part):
        found += [row["offset"] for row in batch.to_pylist()]
        if len(found) in (4, 20):
            store.hang_up()
    assert found == [number * (8 + len(big)) for number in range(40)]


def test_bytes_that_are_no_events_are_told(store: Running) -> None:
    put(store, S0, 0, 3)
    with store.grown:
        store.segments[S0].data += struct.pack(">ii", 7, 7) + b"no event"
    line = error(lambda: load(segmentStore=store.address, streams=S0))
    assert line.startswith(f"[SBP-9501] reading stream {S0} [0, ")
    assert f"offset {place(S0, 3)};" in line


@pytest.mark.parametrize(
    "edited",
    [
        {"v": 1, "of": "pravega", "o": {"sc/st": 1}},
        {"v": 1, "of": "pravega", "o": {"sc/st/0": 1}},
        {"v": 1, "of": "pravega", "o": {"st/0.#epoch.0": 1}},
        {"v": 1, "of": "pravega", "o": {"sc/st/00.#epoch.0": 1}},
        {"v": 1, "of": "pravega", "o": {S0: -1}},
        {"v": 1, "of": "pravega", "o": {}, "gone": ["x"]},
        {"v": 3, "of": "pravega", "o": {S0: 1}, "id": "00000000"},
    ],
    ids=json.dumps,
)
def test_offsets_that_cannot_be_are_refused(edited: dict[str, Any]) -> None:
    assert error(lambda: OffsetMap.from_json(edited)).startswith("[SBP-9205]")


def test_offsets_name_segments() -> None:
    here = OffsetMap({S1: 7, S0: 5}, gone=frozenset({S0}), of="pravega")
    assert here.to_json() == {"v": 1, "of": "pravega", "o": {S0: 5, S1: 7}, "gone": [S0]}
    assert OffsetMap.from_json(here.to_json()) == here
    with pytest.raises(SbpSparkError, match=r"was the checkpoint edited\?"):
        OffsetMap.from_json({**here.to_json(), "of": "tank"})
