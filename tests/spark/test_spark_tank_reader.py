"""``format("tank")`` against a scripted broker, driven as Spark drives it but in this process: no JVM is needed."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from sbp_native import tank
from sbp_native.spark import SbpDataSource
from sbp_native.spark.errors import SbpSparkError
from sbp_native.spark.lag import lag_of
from sbp_native.spark.offsets import OffsetMap
from sbp_native.spark.planning import PlanBounds, plan
from sbp_native.spark.tank.options import TankOptions
from sbp_native.spark.tank.source import TankDataSource
from sbp_native.testing import eventually
from spark.tank_support import BrokerProcess, TankQuery, add, load, make, produce, sparse, wanted
from tank.broker import Partition, Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def running() -> Iterator[Running]:
    with Running() as broker:
        yield broker


def rows(found: list[dict[str, Any]]) -> list[tuple[str, int, bytes]]:
    return [(row["stream"], row["offset"], row["value"]) for row in found]


def error(call: Any) -> str:
    """The line of what must fail."""
    with pytest.raises(SbpSparkError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_reading_begins_and_ends_at_a_time(running: Running) -> None:
    make(running.address, "orders", 2)
    with tank.connect(running.address) as broker:
        for number in range(1, 31):
            broker.produce("orders", 0, [b"%d" % number], timestamp=1_000 * number)
        for number in range(1, 11):
            broker.produce("orders", 1, [b"%d" % number], timestamp=10_000 + 1_000 * number)

    def numbers(**options: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in load(running.address, **{"topics": "orders", **options}):
            found.setdefault(row["stream"], []).append(row["offset"])
        return found

    since = numbers(startingTimestamp="14500")
    assert since == {"orders/0": list(range(15, 31)), "orders/1": list(range(5, 11))}
    between = numbers(startingTimestamp="14500", endingTimestamp="17000")
    assert between == {"orders/0": [15, 16], "orders/1": [5, 6]}
    each = {"startingOffsetsByTimestamp": json.dumps({"orders/0": "29000", "orders/1": "29000"})}
    assert "orders/1 has no record of that time or later" in error(lambda: numbers(**each))
    assert numbers(**each, startingOffsetsByTimestampStrategy="latest") == {"orders/0": [29, 30]}
    query = TankQuery(running.address, topics="orders", startingTimestamp="20000")
    query.drain()
    assert query.rows() == Counter(
        [*(("orders/0", number, b"%d" % number) for number in range(20, 31)), ("orders/1", 10, b"10")]
    )


def test_a_batch_is_records_of_partitions(running: Running) -> None:
    make(running.address, "orders", 2)
    produce(running.address, "orders", 1, 1, 26)
    with tank.connect(running.address) as broker:
        broker.produce("orders", 0, [(b"key", b"a")], timestamp=1_700_000_000_123)
    found = load(running.address, topics="orders")
    assert rows(found) == [("orders/0", 1, b"a"), *wanted("orders", 1, 1, 26)]
    assert [row["stream_id"] for row in found] == [0] + [1] * 25
    assert found[0]["key"] == b"key"
    assert found[0]["headers"] == []
    assert found[0]["timestamp"].timestamp() == 1_700_000_000.123
    assert rows(load(running.address, path="orders/1")) == wanted("orders", 1, 1, 26)
    [row] = load(running.address, topics="orders/0", includeHeaders="false")
    assert list(row) == ["stream", "stream_id", "offset", "timestamp", "key", "value"]
    assert load(running.address, "value", topics="orders/0") == [{"value": b"a"}]
    assert load(running.address, "timestamp,stream", topics="orders/0")[0]["stream"] == "orders/0"


def test_places(running: Running) -> None:
    for topic, partitions in (("orders", 2), ("pay", 1)):
        make(running.address, topic, partitions)
        for partition in range(partitions):
            produce(running.address, topic, partition, 1, 31)

    def read(**places: str) -> list[tuple[str, int, bytes]]:
        return rows(load(running.address, topics="orders,pay", **places))

    assert read(startingOffsets="latest-2") == [
        *wanted("orders", 0, 29, 31),
        *wanted("orders", 1, 29, 31),
        *wanted("pay", 0, 29, 31),
    ]
    each = json.dumps({"orders/0": 30, "orders/1": -2, "pay": "latest-1"})
    end = json.dumps({"orders": 3, "orders/0": 31, "pay/0": -1})
    assert read(startingOffsets=each, endingOffsets=end) == [
        *wanted("orders", 0, 30, 31),
        *wanted("orders", 1, 1, 3),
        *wanted("pay", 0, 30, 31),
    ]
    assert "leaves out stream pay/0" in error(lambda: read(startingOffsets='{"orders": 1}'))
    assert "names 'ordres', which is not read here" in error(lambda: read(startingOffsets='{"ordres": 1, "pay": 1}'))
    line = error(lambda: read(startingOffsets='{"orders": 99, "pay": 1}'))
    assert "gives stream orders/0 the offset 99, it holds [1, 31)" in line
    line = error(lambda: read(startingOffsets='{"orders": 9, "pay": 9}', endingOffsets='{"orders": 5, "pay": 5}'))
    assert "stream orders/0 would be read from 9 back to 5" in line


def test_a_pattern_matches_topics(running: Running) -> None:
    for topic in ("orders-eu", "orders-us", "pay"):
        make(running.address, topic)
        produce(running.address, topic, 0, 1, 4)
    found = load(running.address, topicsPattern="orders-.*")
    assert rows(found) == wanted("orders-eu", 0, 1, 4) + wanted("orders-us", 0, 1, 4)
    assert load(running.address, topicsPattern="orders") == []


OPTIONS: list[tuple[dict[str, str], str]] = [
    ({}, "[SBP-9203] option 'broker' is missing"),
    ({"broker": "a"}, "option 'broker' is 'a': it must be 'host:port'"),
    ({"broker": "sbp://a:1"}, "it must be 'host:port'"),
    ({"broker": "a:1,b:1"}, "name one broker"),
    ({"broker": "a:1"}, "no topic is named: use load('orders')"),
    ({"broker": "a:1", "topics": "x,x"}, "'x' is listed twice"),
    ({"broker": "a:1", "topics": "x,x/1"}, "'x/1' is a part of 'x', which is listed too"),
    ({"broker": "a:1", "topics": "x/70000"}, "'x/70000' names neither a topic nor a partition"),
    ({"broker": "a:1", "topics": "x/01"}, "'x/01' names neither a topic nor a partition"),
    ({"broker": "a:1", "topics": "x", "path": "y"}, "topics are given twice"),
    ({"broker": "a:1", "topics": "x", "topicsPattern": "y"}, "topics are given twice"),
    ({"broker": "a:1", "topicsPattern": "("}, "it must be a regular expression"),
    ({"broker": "a:1", "topics": "x", "columns": "kafka"}, "option 'columns' is 'kafka'"),
    ({"broker": "a:1", "topics": "x", "startingTimestamp": "soon"}, "option 'startingTimestamp' is 'soon'"),
    ({"servers": "a:1"}, "it is called 'broker' here"),
    ({"broker": "a:1", "subscribe": "x"}, "it is called 'topics' here"),
    ({"broker": "a:1", "streamsPattern": "x"}, "it is called 'topicsPattern' here"),
    ({"broker": "a:1", "tlsCa": "x"}, "TANK has neither TLS nor users"),
    ({"broker": "a:1", "tokenFile": "x"}, "TANK has neither TLS nor users"),
    ({"broker": "a:1", "maxAttempts": "3"}, "a call is made again until 'timeout' is over"),
    ({"broker": "a:1", "client.maxInFlightCalls": "3"}, "a call is made again until 'timeout' is over"),
    ({"broker": "a:1", "kafka.group.id": "x"}, "there are no consumer groups"),
    ({"broker": "a:1", "createStreams": "true"}, 'format("tank") only reads'),
    ({"broker": "a:1", "failOnDataLos": "true"}, "did you mean 'failOnDataLoss'?"),
    ({"broker": "a:1", "topics": "x", "onDataLoss": "rows"}, "does nothing while a read fails on loss"),
    ({"broker": "a:1", "topics": "x", "maxTriggerDelay": "1s"}, "does nothing without 'minOffsetsPerTrigger'"),
    ({"broker": "a:1", "topics": "x", "minPartitions": "9", "maxPartitions": "3"}, "is 9, above 'maxPartitions', 3"),
    ({"broker": "a:1", "topics": "x", "endingOffsets": "earliest"}, "cannot be 'earliest'"),
]


@pytest.mark.parametrize(("options", "line"), OPTIONS, ids=[line for _, line in OPTIONS])
def test_options_are_judged_at_load(options: dict[str, str], line: str) -> None:
    told = error(lambda: TankDataSource(options).schema())
    assert line in told
    assert re.match(r"\[SBP-920[13457]\] ", told)


def test_options_of_the_other_kind_of_read_are_refused(running: Running) -> None:
    make(running.address, "t")
    schema = TankDataSource({"broker": running.address, "topics": "t"}).schema()
    limited = TankDataSource({"broker": running.address, "topics": "t", "maxOffsetsPerTrigger": "5"})
    assert "is for a streaming read" in error(lambda: limited.reader(schema))
    ended = TankDataSource({"broker": running.address, "topics": "t", "endingOffsets": "latest"})
    assert "is for a batch read" in error(ended.streamReader(schema).initialOffset)
    latest = TankDataSource({"broker": running.address, "topics": "t", "startingOffsets": "latest"})
    assert "a batch read that starts at the end reads nothing" in error(lambda: latest.reader(schema))
    with pytest.raises(SbpSparkError, match="there is no column 'body'"):
        TankDataSource({"broker": running.address, "topics": "t"}).reader(schema.add("body", "binary"))


def test_names_that_do_not_exist_have_a_hint(running: Running) -> None:
    make(running.address, "orders", 2)
    assert "[SBP-1404] there is no topic 'ordres'" in error(lambda: load(running.address, topics="ordres"))
    assert "did you mean 'orders'?" in error(lambda: load(running.address, topics="ordres/1"))
    assert "has no partition 'orders/2': it has 2, from 0 on" in error(lambda: load(running.address, topics="orders/2"))


def test_a_write_is_refused_whatever_its_options_are() -> None:
    source = TankDataSource({"servers": "a:1"})
    for refused in (source.writer, source.streamWriter):
        line = error(lambda refused=refused: refused(None, False))
        assert line.startswith('[SBP-9207] format("tank") only reads: write to streams with format("sbp")')


def test_numbers_without_a_message_are_no_loss(running: Running) -> None:
    make(running.address, "t")
    add(running, "t", sparse(1, 2))
    add(running, "t", sparse(5, 9, 20))
    add(running, "t", sparse(40, 41))
    running.do(lambda: running.partition(b"t", 0).compact(40))
    found = load(running.address, topics="t")
    assert [row["offset"] for row in found] == [1, 2, 5, 9, 20]
    assert [row["value"] for row in found] == [b"1", b"2", b"5", b"9", b"20"]
    assert load(running.address, "value", topics="t") == [{"value": row["value"]} for row in found]
    # Tasks begin and end between messages, and some have none.
    spans = [("t/0", 1, 42)]
    options = TankOptions.parse({"broker": running.address, "topics": "t"})
    schema = TankDataSource({"broker": running.address, "topics": "t"}).schema()
    reader = TankDataSource({"broker": running.address, "topics": "t"}).reader(schema)
    for size in range(1, 43):
        parts = plan(spans, PlanBounds(max_records=size))
        again = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert again == found, size
    assert options.of == "tank"


def test_a_limit_counts_numbers_and_every_partition_moves(running: Running) -> None:
    make(running.address, "t", 3)
    for partition, count in enumerate((90, 30, 6)):
        produce(running.address, "t", partition, 1, count + 1)
    query = TankQuery(running.address, topics="t", maxOffsetsPerTrigger=21)
    query.drain()
    assert len(query.batches) == 6
    assert all(len(batch) == 21 for batch in query.batches)
    assert {row["stream"] for row in query.batches[0]} == {"t/0", "t/1", "t/2"}
    assert query.rows() == Counter(wanted("t", 0, 1, 91) + wanted("t", 1, 1, 31) + wanted("t", 2, 1, 7))


def test_new_partitions_and_topics_are_read_from_their_first_message(running: Running) -> None:
    make(running.address, "orders-eu")
    produce(running.address, "orders-eu", 0, 1, 5)
    by_name = TankQuery(running.address, topics="orders-eu", startingOffsets="latest")
    by_pattern = TankQuery(running.address, topicsPattern="orders-.*")
    for query in (by_name, by_pattern):
        query.drain()
    running.do(lambda: running.broker.topics[b"orders-eu"].append(Partition()))
    produce(running.address, "orders-eu", 1, 1, 4)
    make(running.address, "orders-us")
    produce(running.address, "orders-us", 0, 1, 3)
    for query in (by_name, by_pattern):
        query.drain()
        query.restart()
        assert not query.step()
    assert by_name.rows() == Counter(wanted("orders-eu", 1, 1, 4))
    every = wanted("orders-eu", 0, 1, 5) + wanted("orders-eu", 1, 1, 4) + wanted("orders-us", 0, 1, 3)
    assert by_pattern.rows() == Counter(every)
    assert by_pattern.place is not None
    assert json.loads(by_pattern.place)["o"] == {"orders-eu/0": 5, "orders-eu/1": 4, "orders-us/0": 3}


def test_a_pattern_may_match_nothing_yet(running: Running) -> None:
    query = TankQuery(running.address, topicsPattern="later")
    assert not query.step()
    assert query.place is not None
    assert json.loads(query.place) == {"v": 1, "of": "tank", "init": True, "o": {}}
    make(running.address, "later")
    produce(running.address, "later", 0, 1, 4)
    query.drain()
    assert query.rows() == Counter(wanted("later", 0, 1, 4))


def test_messages_that_are_gone_fail_a_query_or_are_told(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    make(running.address, "t")
    produce(running.address, "t", 0, 1, 11)
    strict = TankQuery(running.address, topics="t")
    lax = TankQuery(running.address, topics="t", failOnDataLoss="false")
    telling = TankQuery(running.address, topics="t", failOnDataLoss="false", onDataLoss="rows")
    for query in (strict, lax, telling):
        query.drain()
    produce(running.address, "t", 0, 11, 41)
    running.do(lambda: running.partition(b"t", 0).trim(31))
    line = error(strict.step)
    assert line.startswith("[SBP-9013] records of this query are not there: stream t/0 [11, 31), broker ")
    assert "not retriable, set failOnDataLoss=false" in line
    with caplog.at_level(logging.WARNING, "sbp_native.spark"):
        lax.drain()
    assert "stream t/0 [11, 31)" in caplog.text
    telling.drain()
    left = wanted("t", 0, 1, 11) + wanted("t", 0, 31, 41)
    assert lax.rows() == Counter(left)
    assert telling.rows() == Counter([*left, ("t/0", 11, 31)])
    [gap] = [row for row in telling.batches[-1] if row["gap_end"] is not None]
    assert (gap["stream_id"], gap["value"], gap["timestamp"]) == (0, None, None)
    report = telling.reader.reportLatestOffset()
    progress = {"sources": [{"endOffset": json.loads(telling.place or ""), "latestOffset": report}]}
    lag = lag_of(progress)
    assert lag is not None
    [stream] = lag.streams
    assert (stream.id, stream.name, stream.behind, stream.lost) == ("t/0", "t/0", 0, 20)
    assert lag.gaps == (("t/0", 11, 31),)


@pytest.mark.parametrize("rows_of_gaps", [False, True])
def test_a_task_that_meets_a_loss(running: Running, rows_of_gaps: bool) -> None:
    """What the broker drops between the plan and the task."""
    make(running.address, "t", 2)
    for partition in range(2):
        produce(running.address, "t", partition, 1, 31)
    more = {"onDataLoss": "rows"} if rows_of_gaps else {}
    strict, lax = ({"broker": running.address, "topics": "t", "failOnDataLoss": word} for word in ("true", "false"))
    readers = []
    for options in (strict, {**lax, **more}):
        source = TankDataSource(options)
        readers.append(source.reader(source.schema()))
    plans = [reader.partitions() for reader in readers]
    running.do(lambda: running.partition(b"t", 1).trim(21))
    line = error(lambda: [list(readers[0].read(part)) for part in plans[0]])
    assert "[SBP-9013] records of this query are not there any more: stream t/1 [1, 21), broker" in line
    found = [row for part in plans[1] for batch in readers[1].read(part) for row in batch.to_pylist()]
    kept = [row for row in found if row.get("gap_end") is None]
    assert rows(kept) == wanted("t", 0, 1, 31) + wanted("t", 1, 21, 31)
    assert [(row["stream"], row["offset"], row["gap_end"]) for row in found if row.get("gap_end") is not None] == (
        [("t/1", 1, 21)] if rows_of_gaps else []
    )


def test_a_partition_that_is_shorter_than_it_was(running: Running) -> None:
    """A broker that was set up anew under the same address."""
    make(running.address, "t")
    produce(running.address, "t", 0, 1, 21)
    strict = TankQuery(running.address, topics="t")
    lax = TankQuery(running.address, topics="t", failOnDataLoss="false")
    for query in (strict, lax):
        query.drain()
    running.do(lambda: running.broker.topics.update({b"t": [Partition()]}))
    produce(running.address, "t", 0, 1, 6)
    assert "records of this query are not there: stream t/0 [6, 21)" in error(strict.step)
    lax.drain()
    produce(running.address, "t", 0, 6, 9)
    lax.drain()
    assert lax.rows() == Counter(wanted("t", 0, 1, 21) + wanted("t", 0, 6, 9))


def test_a_topic_that_goes_and_comes_back(running: Running) -> None:
    make(running.address, "t")
    make(running.address, "u")
    produce(running.address, "t", 0, 1, 6)
    query = TankQuery(running.address, topicsPattern="t|u")
    query.drain()
    kept = running.do(lambda: running.broker.topics.pop(b"t"))
    query.drain()
    assert query.place is not None
    assert json.loads(query.place)["gone"] == ["t/0"]
    running.do(lambda: running.broker.topics.update({b"t": kept}))
    produce(running.address, "t", 0, 6, 9)
    query.drain()
    assert "gone" not in json.loads(query.place)
    assert query.rows() == Counter(wanted("t", 0, 1, 9))
    # Gone again, now with messages that were seen and not read.
    produce(running.address, "t", 0, 9, 12)
    query.reader.reportLatestOffset()
    query.reader._watch.look()  # type: ignore[attr-defined]
    running.do(lambda: running.broker.topics.pop(b"t"))
    assert "stream t/0 [9, 12)" in error(query.step)


def test_a_partition_that_nobody_serves_is_waited_for(running: Running) -> None:
    make(running.address, "t", 2)
    produce(running.address, "t", 0, 1, 6)
    query = TankQuery(running.address, topics="t", timeout="1s")
    patient = TankQuery(running.address, topics="t", timeout="40s")
    single = TankQuery(running.address, topics="t/0")
    for each in (query, patient):
        each.drain()

    def leader(broker: Running, address: tuple[str, int] | None) -> None:
        broker.do(lambda: setattr(broker.partition(b"t", 1), "leader", address))

    with Running() as other:
        make(other.address, "t", 2)
        # Each says that the other one leads it.
        leader(running, ("127.0.0.1", other.port))
        leader(other, ("127.0.0.1", running.port))
        line = error(query.step)
        assert line.startswith("[SBP-9305] asking for the offsets of 2 streams"), line
        assert "nobody serves t/1 at the moment" in line
        assert "can be tried again" in line
        single.drain()
        assert single.rows() == Counter(wanted("t", 0, 1, 6)), "who does not read it need not wait"
        back = threading.Timer(0.5, leader, (running, None))
        back.start()
        assert not patient.step()
        back.join(30)


def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make(broker.address, "t", 2)
        for partition in range(2):
            produce(broker.address, "t", partition, 1, 201)
        query = TankQuery(broker.address, topics="t", maxOffsetsPerTrigger=100)
        hasty = TankQuery(broker.address, topics="t", timeout="500ms")
        assert query.step()
        broker.kill()
        line = error(hasty.step)
        assert re.match(r"\[SBP-(9306|90\d\d)\] (listing the|asking for the offsets of 2) streams", line), line
        assert "can be tried again" in line
        starter = threading.Timer(0.5, broker.start)
        starter.start()
        query.drain()
        starter.join(30)
        hasty.drain()
        every = Counter(wanted("t", 0, 1, 201) + wanted("t", 1, 1, 201))
        assert query.rows() == every
        assert hasty.rows() == every


def test_a_broker_that_is_killed_under_a_task(tmp_path: Path) -> None:
    """A task has read a part of its span; it goes on behind that, with nothing twice."""
    with BrokerProcess(tmp_path) as broker:
        make(broker.address, "t")
        with tank.connect(broker.address, timeout=20) as client:
            # More than is read ahead.
            for _ in range(24):
                client.produce("t", 0, [b"%d" % n + bytes(1 << 20) for n in range(1)], timestamp=5)
        source = TankDataSource({"broker": broker.address, "topics": "t"})
        reader = source.reader(source.schema())
        [part] = reader.partitions()
        batches = reader.read(part)
        found = [next(batches)]
        broker.kill()
        starter = threading.Timer(0.5, broker.start)
        starter.start()
        found += list(batches)
        starter.join(30)
        assert [row["offset"] for batch in found for row in batch.to_pylist()] == list(range(1, 25))


def test_checkpoints_are_of_one_format(running: Running, server: sbp.Server, client: sbp.Client, name: str) -> None:
    make(running.address, "t")
    produce(running.address, "t", 0, 1, 3)
    client.create_stream(name).append(b"x")
    ours = TankQuery(running.address, topics="t")
    ours.drain()
    theirs = SbpDataSource({"servers": server.address, "streams": name, "startingOffsets": "earliest"})
    reader = theirs.streamReader(theirs.schema())
    place = json.loads(ours.place or "")
    line = error(lambda: reader.latestOffset(place, reader.getDefaultReadLimit()))
    assert "[SBP-9205] the checkpoint holds offsets of format('tank'), and this query reads with format('sbp')" in line
    begun = reader.initialOffset()
    line = error(lambda: ours.reader.latestOffset(begun, ours.reader.getDefaultReadLimit()))
    assert "the checkpoint holds offsets of format('sbp')" in line


@pytest.mark.parametrize(
    "edited",
    [
        {"v": 1, "of": "tank", "o": {"t": 1}},
        {"v": 1, "of": "tank", "o": {"t/00": 1}},
        {"v": 1, "of": "tank", "o": {"t/0": -1}},
        {"v": 1, "of": "tank", "o": {"17": 1}},
        {"v": 1, "of": "tank", "o": {}, "gone": [3]},
        {"v": 1, "of": "other", "o": {}},
        {"v": 3, "of": "tank", "o": {"t/0": 1}, "id": "00000000"},
        {"v": 1, "o": {"t/0": 1}},
    ],
    ids=json.dumps,
)
def test_offsets_that_cannot_be_are_refused(edited: dict[str, Any]) -> None:
    assert error(lambda: OffsetMap.from_json(edited)).startswith("[SBP-9205]")


def test_offsets_name_partitions() -> None:
    here = OffsetMap({"t/10": 5, "t/2": 7}, initial=True, of="tank")
    assert here.to_json() == {"v": 1, "of": "tank", "init": True, "o": {"t/10": 5, "t/2": 7}}
    assert OffsetMap.from_json(here.to_json()) == here
    moved = here.advanced({"t/2": 9}, {"u/0": 1}, frozenset({"t/10"}))
    assert OffsetMap.from_json(json.loads(json.dumps(moved.to_json()))) == moved


def test_times_that_spark_cannot_show_are_told(running: Running) -> None:
    make(running.address, "t", 2)
    produce(running.address, "t", 0, 1, 6)
    odd = bytes([1 << 2, 0]) + (2**60).to_bytes(8, "little") + b"\x01x"
    running.do(lambda: running.partition(b"t", 1).add(odd))
    line = error(lambda: load(running.address, topics="t"))
    assert "the record at offset 1 of stream t/1 has the time" in line
    assert load(running.address, "value", topics="t/1") == [{"value": b"x"}]


def test_a_damaged_bundle_is_told_with_its_place(running: Running) -> None:
    make(running.address, "t")
    produce(running.address, "t", 0, 1, 6)
    running.do(lambda: running.partition(b"t", 0).add(bytes([3 << 2, 0, 1, 2])))
    line = error(lambda: load(running.address, topics="t"))
    assert line.startswith("[SBP-9302] reading stream t/0 [1, 9)")
    assert "offset 6" in line


def test_nothing_is_kept_open(running: Running) -> None:
    make(running.address, "t")
    produce(running.address, "t", 0, 1, 6)
    load(running.address, topics="t")
    load(running.address, topics="t")
    eventually(lambda: len(running.broker.connections) == 1)
