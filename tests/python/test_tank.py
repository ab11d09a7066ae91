"""Topics of TANK brokers, read and written through the package, against a scripted broker."""

from __future__ import annotations

import asyncio
import functools
import pickle
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import prometheus_client
import pyarrow as pa
import pytest

import sbp_native as sbp
from sbp_native import tank
from sbp_native.errors import ClosedError, IndeterminateError, InvalidRequestError
from sbp_native.metrics import BrokerCollector
from tank.broker import CONSUME, PARTITIONS, PRODUCE, Running

PAGE = Path(__file__).parents[2] / "docs" / "tank.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
#: What its examples print, one after the other with the same broker.
PRINTS = [
    "[b'a', b'b']\n",
    "1 None b'a'\n2 b'key' b'b'\n",
    "0 1 2\n2 {'messages': 2, 'skipped': 0, 'lost': 0}\n",
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOW = datetime(2026, 5, 4, 3, 2, 1, 500_000, tzinfo=UTC)
NOW_US = int(NOW.timestamp() * 1_000_000)


@pytest.fixture
def running() -> Iterator[Running]:
    """A broker with a topic of one partition."""
    with Running() as broker, tank.connect(broker.address, timeout=20) as client:
        client.create_topic("t")
        yield broker


@pytest.fixture
def broker(running: Running) -> Iterator[tank.Broker]:
    """A client of it."""
    with tank.connect(running.address, timeout=20) as client:
        yield client


def sparse(*numbered: tuple[int, bytes]) -> bytes:
    """A bundle of at least two messages with numbers of their own, by hand from the page."""
    first, last = numbered[0][0], numbered[-1][0]
    bundle = bytes([0x40 | len(numbered) << 2]) + first.to_bytes(8, "little") + bytes([last - first - 1])
    before = first
    for place, (number, content) in enumerate(numbered):
        inner = 0 < place < len(numbered) - 1
        bundle += bytes([0x02 if place else 0]) + (bytes([number - before - 1]) if inner else b"")
        bundle += (1_000).to_bytes(8, "little") if place == 0 else b""
        bundle += bytes([len(content)]) + content
        before = number
    return bundle


def add(running: Running, bundle: bytes) -> None:
    """Has the broker keep a bundle as it is."""
    running.do(lambda: running.partition(b"t", 0).add(bundle))


def test_a_message_comes_back_as_a_batch(broker: tank.Broker) -> None:
    broker.produce("t", 0, [b"a", (b"key", b"b"), bytearray(b"c"), (None, memoryview(b"d"))], timestamp=NOW)
    [batch] = broker.read("t", start="earliest", end="latest")
    assert isinstance(batch, sbp.Batch)
    assert (batch.stream, batch.stream_id, batch.base_offset, batch.last_offset, len(batch)) == ("t/0", 0, 1, 4, 4)
    assert batch.values == [b"a", b"b", b"c", b"d"]
    assert [bytes(payload) for payload in batch.payloads if payload is not None] == batch.values
    assert batch.keys == [None, b"key", None, None]
    assert batch.timestamps == [NOW_US] * 4
    assert batch.offsets == range(1, 5)
    assert batch.headers == [[]] * 4
    assert [(record.offset, record.key, record.value) for record in batch] == list(
        zip(batch.offsets, batch.keys, batch.values, strict=True)
    )
    table = batch.to_arrow()
    table.validate(full=True)
    assert table.schema.names == ["offset", "timestamp", "key", "value", "headers"]
    assert table["value"].to_pylist() == batch.values
    assert table["timestamp"].to_pylist() == [NOW] * 4
    assert "t/0" in repr(batch)
    assert "4 records" in batch._repr_html_()


def test_a_place_is_found_by_its_time(broker: tank.Broker) -> None:
    broker.create_topic("timed", 2)
    for partition in (0, 1):
        for number in range(30):
            at = NOW + timedelta(minutes=number // 3)
            broker.produce("timed", partition, [b"%d" % number], timestamp=at)

    def first(**places: Any) -> list[int | None]:
        seen: dict[str, int] = {}
        for batch in broker.read("timed", end="latest", **places):
            seen.setdefault(batch.stream, int(batch.values[0] or b""))
        return [seen.get("timed/0"), seen.get("timed/1")]

    assert first(start=NOW) == [0, 0]
    assert first(start=NOW + timedelta(seconds=1)) == [3, 3]
    assert first(start={0: NOW + timedelta(minutes=9), 1: "latest-1"}) == [27, 29]
    assert first(start=NOW + timedelta(minutes=10)) == [None, None]
    # Everything is older than an hour.
    assert first(start=timedelta(hours=1)) == [None, None]


def test_a_topic_is_an_arrow_stream(broker: tank.Broker) -> None:
    broker.create_topic("wide", 3)
    for partition in range(3):
        broker.produce("wide", partition, [b"%d-%d" % (partition, n) for n in range(20)])
    table = pa.table(broker.read("wide", end="latest"))
    assert sorted(table["value"].to_pylist()) == sorted(b"%d-%d" % (p, n) for p in range(3) for n in range(20))
    assert pa.table(broker.read("wide", [1], end="latest"))["value"].to_pylist() == [b"1-%d" % n for n in range(20)]
    assert pa.table(broker.read("t", end="latest")).num_rows == 0


def test_what_there_is_is_told(broker: tank.Broker) -> None:
    broker.create_topic("wide", partitions=3)
    broker.produce("wide", 1, [b"a", b"b"])
    topics = {topic.name: topic for topic in broker.topics()}
    assert (topics["wide"].partitions, topics["wide"].enabled) == (3, True)
    assert repr(topics["wide"]) == 'TopicInfo(name="wide", partitions=3, enabled=True)'
    told = [(info.partition, info.first, info.high_water) for info in broker.partitions("wide")]
    assert told == [(0, 0, 0), (1, 1, 2), (2, 0, 0)]
    assert broker.partitions("wide")[1] == broker.partitions("wide")[1]
    assert len(set(broker.partitions("wide"))) == 3


def read(broker: tank.Broker, *arguments: object, **places: object) -> list[bytes | None]:
    """The contents of messages."""
    return [value for batch in broker.read("t", *arguments, end="latest", **places) for value in batch.values]  # type: ignore[arg-type]


def test_places(broker: tank.Broker) -> None:
    for n in range(5):
        broker.produce("t", 0, [b"%d" % (2 * n), b"%d" % (2 * n + 1)])
    assert read(broker) == [b"%d" % n for n in range(10)]
    assert read(broker, start=4) == [b"%d" % n for n in range(3, 10)]
    assert read(broker, start="latest") == []
    assert read(broker, start="latest-3") == [b"7", b"8", b"9"]
    assert read(broker, start="earliest+8") == [b"8", b"9"]
    assert read(broker, start={0: 9}) == [b"8", b"9"]
    assert read(broker, 0, start=10) == [b"9"]
    assert [batch.values for batch in broker.read("t", start=2, end=4)] == [[b"1", b"2"]]
    assert [batch.values for batch in broker.read("t", end={0: 3})] == [[b"0", b"1"]]
    refused: list[dict[str, Any]] = [
        {"end": NOW},
        {"end": "earliest"},
        {"start": -1},
        {"partitions": []},
        {"partitions": -1},
    ]
    for places in refused:
        with pytest.raises(InvalidRequestError):
            broker.read("t", **places)
    with pytest.raises(TypeError, match="no place is named for partition 1"):
        broker.read("t", [0, 1], start={0: 1})
    with pytest.raises(TypeError, match="no place is named for partition 1"):
        broker.read("t", start={0: 1}, end={0: 2, 1: 2})


def test_numbers_with_gaps_are_those_of_the_records_and_are_counted(running: Running, broker: tank.Broker) -> None:
    broker.produce("t", 0, [b"first"])
    add(running, sparse((10, b"a"), (13, b"b"), (20, b"c")))
    broker.produce("t", 0, [b"d"])
    [batch] = broker.read("t", start=2, end="latest")
    assert batch.offsets == (10, 13, 20, 21)
    assert batch.values == [b"a", b"b", b"c", b"d"]
    assert (batch.base_offset, batch.last_offset, len(batch)) == (10, 21, 4)
    assert batch.to_arrow()["offset"].to_pylist() == [10, 13, 20, 21]
    assert [record.offset for record in batch.records()] == [10, 13, 20, 21]
    # 2 to 9, 11 and 12, 14 to 19.
    assert broker.stats() == {"messages": 4, "skipped": 16, "lost": 0}
    [part] = broker.read("t", start=11, end=21)
    assert (part.offsets, part.values) == ((13, 20), [b"b", b"c"])


def test_the_figures_of_a_broker_are_those_of_a_registry(running: Running, broker: tank.Broker) -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(BrokerCollector(broker, name="orders"))
    for n in range(4):
        broker.produce("t", 0, [b"%d" % n])
    running.do(lambda: running.partition(b"t", 0).trim(3))
    add(running, sparse((10, b"a"), (12, b"b")))
    batches = broker.read("t", start=1, end="latest")
    with pytest.raises(tank.TankOutOfRangeError):
        next(batches)
    assert sum(len(batch) for batch in batches) == 4
    assert broker.stats() == {"messages": 4, "skipped": 6, "lost": 2}
    figures = ("messages", "skipped_numbers", "lost_messages")
    told = [registry.get_sample_value(f"sbp_tank_{name}_total", {"client": "orders"}) for name in figures]
    assert told == [4, 6, 2]
    assert len(list(BrokerCollector(broker).collect())) == len(broker.stats()), "every figure has its metric"


def test_reading_goes_on_and_waits(running: Running, broker: tank.Broker) -> None:
    batches = broker.read("t", start="latest", timeout=20)
    for n in range(3):
        later = threading.Timer(0.05 * n, lambda n=n: broker.produce("t", 0, [b"%d" % n]))
        later.start()
        assert next(batches).values == [b"%d" % n]
        later.join()
    with pytest.raises(TimeoutError) as caught:
        next(broker.read("t", start="latest", timeout=0.1))
    assert caught.value.code == 9003  # type: ignore[attr-defined]
    batches.close()
    assert list(batches) == []


def test_a_broker_that_is_away_is_waited_for() -> None:
    with Running() as first:
        broker = tank.connect(first.address, timeout=20)
        broker.create_topic("t")
        broker.produce("t", 0, [b"before"])
        batches = broker.read("t", timeout=20)
        assert next(batches).values == [b"before"]
    with pytest.raises(tank.TankLostError):
        broker.topics()
    again = Running()
    again.port, again.broker.topics = first.port, first.broker.topics
    with broker, again:
        broker.produce("t", 0, [b"after"])
        assert next(batches).values == [b"after"]


def test_a_signal_ends_a_wait_and_nothing_is_lost(broker: tank.Broker) -> None:
    batches = broker.read("t", start="latest")

    class Alarmed(Exception):
        pass

    def alarm(*_: object) -> None:
        raise Alarmed

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarmed):
            next(batches)
    finally:
        signal.signal(signal.SIGALRM, before)
    broker.produce("t", 0, [b"a"])
    assert next(batches).values == [b"a"]


def test_asyncio(running: Running) -> None:
    async def main() -> None:
        async with tank.aio.connect(running.address, timeout=20) as broker:
            batches = broker.read("t", start="earliest")
            step = batches.__anext__()
            await broker.create_topic("other", 2)
            assert {topic.name for topic in await broker.topics()} == {"t", "other"}
            assert len(await broker.partitions("other")) == 2
            await asyncio.gather(*(broker.produce("t", 0, [b"%d" % n]) for n in range(4)))
            found = (await step).values
            while len(found) < 4:
                found += (await batches.__anext__()).values
            assert sorted(value for value in found if value) == [b"0", b"1", b"2", b"3"]
            # A step that is cancelled loses nothing.
            step = batches.__anext__()
            step.cancel()
            await broker.produce("t", 0, [b"last"])
            assert (await batches.__anext__()).values == [b"last"]
            assert broker.stats()["messages"] == 5
            batches.close()
            assert [value async for batch in broker.read("t", start=5, end="latest") for value in batch.values] == [
                b"last"
            ]
            with pytest.raises(tank.TankUnknownNameError):
                await broker.produce("none", 0, [b"x"])
        with pytest.raises(ClosedError):
            await broker.topics()

    asyncio.run(main())


def test_several_partitions_are_read_side_by_side(broker: tank.Broker) -> None:
    # More than one request may name.
    broker.create_topic("many", 300)
    for partition in (0, 7, 255, 299):
        broker.produce("many", partition, [b"%d" % partition])
    batches = broker.read("many", timeout=20)
    assert {next(batches).stream for _ in range(4)} == {"many/0", "many/7", "many/255", "many/299"}
    for partition in (299, 0):
        broker.produce("many", partition, [b"again"])
        batch = next(batches)
        assert (batch.stream, batch.stream_id, batch.values) == (f"many/{partition}", partition, [b"again"])


def test_another_leader_is_asked_once(running: Running, broker: tank.Broker) -> None:
    with Running() as leader, tank.connect(leader.address) as direct:
        direct.create_topic("t")
        host, port = leader.address.split(":")
        running.do(lambda: setattr(running.partition(b"t", 0), "leader", (host, int(port))))
        direct.produce("t", 0, [b"before"])
        assert [info.high_water for info in broker.partitions("t")] == [1]
        batches = broker.read("t", timeout=20)
        broker.produce("t", 0, [b"there"])
        assert running.partition(b"t", 0).bundles == []
        found: list[bytes | None] = []
        while len(found) < 2:
            found += next(batches).values
        assert found == [b"before", b"there"]
        # The partition moves back, and what its leader had goes with it.
        kept = leader.do(lambda: leader.partition(b"t", 0).bundles)
        running.do(lambda: setattr(running.partition(b"t", 0), "bundles", list(kept)))
        running.do(lambda: setattr(running.partition(b"t", 0), "leader", None))
        leader.do(lambda: setattr(leader.partition(b"t", 0), "leader", ("127.0.0.1", running.port)))
        broker.produce("t", 0, [b"back"])
        assert next(batches).values == [b"back"]


@pytest.mark.provokes(9305, by="peer")
def test_leaders_that_name_each_other_are_not_followed(running: Running, broker: tank.Broker) -> None:
    here = ("127.0.0.1", running.port)
    batches = broker.read("t", start=1)
    running.do(lambda: setattr(running.partition(b"t", 0), "leader", here))
    with pytest.raises(tank.TankRefusedError, match="names another one"):
        next(batches)
    with pytest.raises(tank.TankRefusedError, match="has to be asked") as caught:
        broker.produce("t", 0, [b"x"])
    assert not caught.value.retriable
    with pytest.raises(tank.TankRefusedError, match="nobody serves the partition") as caught:
        broker.read("t", start=1)
    assert (caught.value.stream, caught.value.endpoint) == ("t/0", running.address)
    assert running.broker.asked.count(PRODUCE) == 2


@pytest.mark.provokes(9305, by="peer")
def test_a_topic_that_exists(running: Running, broker: tank.Broker) -> None:
    with pytest.raises(tank.TankRefusedError, match="exists") as caught:
        broker.create_topic("t")
    assert (caught.value.stream, caught.value.endpoint) == ("t", running.address)


@pytest.mark.provokes(9307, by="peer")
def test_names_that_there_are_not(running: Running, broker: tank.Broker) -> None:
    for topic, partition in (("none", 0), ("t", 7)):
        with pytest.raises(tank.TankUnknownNameError) as caught:
            broker.produce(topic, partition, [b"x"])
        assert (caught.value.stream, caught.value.endpoint) == (f"{topic}/{partition}", running.address)
        assert isinstance(caught.value, LookupError)
        assert not caught.value.indeterminate
    for wrong in (lambda: broker.read("none"), lambda: broker.read("t", 7), lambda: broker.partitions("none")):
        with pytest.raises(tank.TankUnknownNameError):
            wrong()


@pytest.mark.provokes(9308, by="peer")
def test_messages_that_are_gone_are_told_and_reading_goes_on(running: Running, broker: tank.Broker) -> None:
    for n in range(6):
        broker.produce("t", 0, [b"%d" % n])
    running.do(lambda: running.partition(b"t", 0).trim(4))
    batches = broker.read("t", start=2, end="latest")
    with pytest.raises(tank.TankOutOfRangeError, match="message 2 is not there: the first is 4, the last 6") as caught:
        next(batches)
    error = caught.value
    assert (error.stream, error.offset, error.endpoint) == ("t/0", 2, running.address)
    assert [value for batch in batches for value in batch.values] == [b"3", b"4", b"5"]
    assert broker.stats() == {"messages": 3, "skipped": 0, "lost": 2}
    # Beyond the end there is nothing to go on with.
    with pytest.raises(tank.TankOutOfRangeError) as caught:
        next(broker.read("t", start=9))
    assert caught.value.offset == 9


@pytest.mark.provokes(9308, by="peer")
def test_messages_that_go_while_they_are_followed(running: Running, broker: tank.Broker) -> None:
    broker.produce("t", 0, [b"a"])
    batches = broker.read("t", timeout=20)
    assert next(batches).values == [b"a"]

    def lose() -> None:
        partition = running.partition(b"t", 0)
        for content in (b"b", b"c", b"d"):
            partition.add(bytes([4, 0]) + (5).to_bytes(8, "little") + bytes([len(content)]) + content)
        partition.trim(4)

    running.do(lose)
    with pytest.raises(tank.TankOutOfRangeError, match="message 2 is not there"):
        next(batches)
    assert next(batches).values == [b"d"]


def test_an_end_behind_messages_that_compaction_has_left_out(running: Running, broker: tank.Broker) -> None:
    for n in range(6):
        broker.produce("t", 0, [b"%d" % n])
    running.do(lambda: running.partition(b"t", 0).compact(5))
    assert [info.high_water for info in broker.partitions("t")] == [6]
    assert read(broker) == [b"0", b"1", b"2", b"3"]
    assert read(broker, start=5) == []
    # What is behind the end shows it too, and belongs to a reading that goes on.
    add(running, sparse((7, b"6"), (9, b"7")))
    assert [batch.values for batch in broker.read("t", start=5, end=7)] == []
    assert [batch.values for batch in broker.read("t", start=5, end=8)] == [[b"6"]]
    batch = next(broker.read("t", start=5, timeout=20))
    assert (batch.offsets, batch.values) == ((7, 9), [b"6", b"7"])


def test_ends_of_several_partitions_behind_what_compaction_has_left_out(running: Running, broker: tank.Broker) -> None:
    broker.create_topic("wide", 4)
    for partition in range(4):
        broker.produce("wide", partition, [b"%d" % partition])
        broker.produce("wide", partition, [b"gone"])
    for partition in (0, 1, 3):
        compacted = running.partition(b"wide", partition)
        running.do(functools.partial(compacted.compact, 2))
    found = sorted(value for batch in broker.read("wide", end="latest") for value in batch.values if value)
    assert found == [b"0", b"1", b"2", b"3", b"gone"]


def test_a_broker_that_does_not_wait_for_messages_is_asked_with_pauses(running: Running, broker: tank.Broker) -> None:
    running.do(lambda: setattr(running.broker, "waits", False))
    begun = time.monotonic()
    batches = broker.read("t", start="latest", timeout=1)
    with pytest.raises(TimeoutError):
        next(batches)
    # Pauses of 20, 40, 80, 160, 320 and 640 ms, and of a second from then on.
    assert running.broker.asked.count(CONSUME) <= 8 + time.monotonic() - begun
    broker.produce("t", 0, [b"x"])
    [values] = {tuple(batch.values) for batch in broker.read("t", end="latest")}
    assert values == (b"x",)


def test_a_broker_that_hangs_up_on_who_reads_is_asked_with_pauses(running: Running, broker: tank.Broker) -> None:
    batches = broker.read("t", start=1, timeout=1)
    running.do(lambda: setattr(running.broker, "spoil", lambda message, whole: None if message == CONSUME else whole))
    running.do(lambda: setattr(running.broker, "waits", False))
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        next(batches)
    # Each request is sent three times, and there are pauses between requests.
    assert running.broker.asked.count(CONSUME) <= 3 * (8 + time.monotonic() - begun)


@pytest.mark.provokes(9301, by="peer")
def test_a_bundle_that_is_damaged_is_read_again_behind_those_before_it(running: Running, broker: tank.Broker) -> None:
    broker.produce("t", 0, [b"whole"])
    add(running, bytes([4, 0, 1, 2]))
    batches = broker.read("t", end="latest")
    assert next(batches).values == [b"whole"]
    for _ in range(2):
        with pytest.raises(tank.TankFramingError, match="a bundle cannot be read: it ends") as caught:
            next(batches)
        assert (caught.value.stream, caught.value.offset) == ("t/0", 2)

    def mend() -> None:
        running.partition(b"t", 0).bundles[1] = (2, 2, bytes([4, 0]) + (5).to_bytes(8, "little") + b"\x01m")

    running.do(mend)
    assert next(batches).values == [b"m"]
    assert list(batches) == []


@pytest.mark.provokes(9303, by="peer")
def test_a_bundle_that_cannot_be_decompressed(running: Running, broker: tank.Broker) -> None:
    add(running, bytes([5, 200, 200]))
    with pytest.raises(tank.TankCompressionError) as caught:
        next(broker.read("t", end="latest"))
    assert (caught.value.stream, caught.value.offset, caught.value.endpoint) == ("t/0", 1, running.address)


@pytest.mark.provokes(9302, by="peer")
def test_an_answer_over_its_limit(running: Running, broker: tank.Broker) -> None:
    running.do(lambda: setattr(running.broker, "spoil", lambda message, _: bytes([message]) + b"\xff\xff\xff\xff"))
    with pytest.raises(tank.TankLimitError, match="4294967295 bytes") as caught:
        broker.topics()
    assert caught.value.endpoint == running.address
    # Whether the messages are stored the broker alone knows.
    with pytest.raises(IndeterminateError) as doubtful:
        broker.produce("t", 0, [b"x"])
    assert (doubtful.value.code, doubtful.value.stream) == (9302, "t/0")
    running.do(lambda: setattr(running.broker, "spoil", None))
    assert broker.topics()


@pytest.mark.provokes(9302, by="client")
def test_keys_have_255_bytes_at_most(broker: tank.Broker) -> None:
    broker.produce("t", 0, [(b"k" * 255, b"x")])
    with pytest.raises(tank.TankLimitError, match="a key of 256 bytes"):
        broker.produce("t", 0, [(b"k" * 256, b"x")])
    assert read(broker) == [b"x"]


@pytest.mark.provokes(9304, by="peer")
def test_an_answer_to_something_else(running: Running, broker: tank.Broker) -> None:
    running.do(lambda: setattr(running.broker, "spoil", lambda _, frame: bytes([PARTITIONS]) + frame[1:]))
    with pytest.raises(tank.TankPeerError) as caught:
        broker.topics()
    assert caught.value.endpoint == running.address


@pytest.mark.provokes(9306, by="client")
def test_a_broker_that_is_not_there() -> None:
    with Running() as gone:
        address = gone.address
    with pytest.raises(tank.TankLostError, match="cannot connect") as caught:
        tank.connect(address)
    assert (caught.value.endpoint, caught.value.retriable, caught.value.indeterminate) == (address, True, False)
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.provokes(9306, by="peer")
def test_a_broker_that_hangs_up(running: Running, broker: tank.Broker) -> None:
    running.do(lambda: setattr(running.broker, "spoil", lambda message, _: None))
    with pytest.raises(tank.TankLostError, match="the connection was lost"):
        broker.topics()
    with pytest.raises(IndeterminateError) as doubtful:
        broker.produce("t", 0, [b"x"])
    error = doubtful.value
    assert (error.code, error.stream, error.endpoint, error.retriable) == (9306, "t/0", running.address, False)
    running.do(lambda: setattr(running.broker, "spoil", None))
    # It was stored all the same, once: nothing is sent again by itself.
    assert read(broker) == [b"x"]


@pytest.mark.provokes(9004, by="peer")
def test_calls_take_as_long_as_they_may(running: Running, broker: tank.Broker) -> None:
    running.do(lambda: setattr(running.broker, "spoil", lambda *_: b""))
    with pytest.raises(sbp.DeadlineExceededError, match="has not answered within"):
        broker.topics(timeout=0.1)
    with pytest.raises(sbp.OutcomeUnknownTimeoutError) as caught:
        broker.produce("t", 0, [b"x"], timeout=0.1)
    assert caught.value.endpoint == running.address


def test_what_is_no_record_is_refused(broker: tank.Broker) -> None:
    for wrong in (b"bytes", "text", [1], [("k", b"x")], [(b"a", b"b", b"c")], None):
        with pytest.raises((TypeError, ValueError)):
            broker.produce("t", 0, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="no records"):
        broker.produce("t", 0, [])
    with pytest.raises(InvalidRequestError, match="1970 or later"):
        broker.produce("t", 0, [b"x"], timestamp=-1)
    assert read(broker) == []


def test_a_broker_that_is_closed(running: Running) -> None:
    broker = tank.connect(running.address)
    batches = broker.read("t")
    assert running.address in repr(broker)
    broker.close()
    broker.close()
    for call in (broker.topics, lambda: next(batches), broker.stats, lambda: broker.read("t")):
        with pytest.raises(ClosedError, match="the broker is closed"):
            call()


def test_a_pickle_of_a_broker_is_another_one(running: Running, broker: tank.Broker) -> None:
    broker.produce("t", 0, [b"x"])
    with pickle.loads(pickle.dumps(broker)) as other:
        assert other.address == broker.address
        assert read(other) == [b"x"]


def test_a_connection_that_was_idle_is_made_again() -> None:
    with Running(idle=0.1) as running, tank.connect(running.address) as broker:
        broker.create_topic("t")
        for _ in range(2):
            assert running.broker.closed.acquire(timeout=20), "the broker closes connections that are idle"
            assert [topic.name for topic in broker.topics()] == ["t"]


def test_the_examples_of_the_page_run(run_python: Run) -> None:
    with Running() as running:
        for block, output in zip(BLOCKS, PRINTS, strict=True):
            assert run_python(block.replace("127.0.0.1:11011", running.address)).stdout == output


def test_importing_the_package_imports_none_of_it(run_python: Run) -> None:
    run_python("""
        import sys
        import sbp_native
        assert not any(name.startswith("sbp_native.tank") for name in sys.modules)
        from sbp_native import tank
        assert tank.aio.connect("127.0.0.1:1").address == "127.0.0.1:1"
    """)


def test_a_child_uses_none_of_its_parents(running: Running, run_python: Run) -> None:
    run_python(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import sbp_native as sbp
        from sbp_native import tank

        def sockets():
            found = []
            for fd in os.listdir("/proc/self/fd"):
                try:
                    found.append(os.readlink(f"/proc/self/fd/{fd}"))
                except FileNotFoundError:
                    pass            # that of the directory itself
            return [link for link in found if link.startswith("socket:")]

        broker = tank.connect(sys.argv[1])
        broker.produce("t", 0, [b"parent"])
        batches = broker.read("t")
        pid = os.fork()
        if pid == 0:
            try:
                assert not sockets(), "the parent's connection is inherited"
                for call in (broker.topics, lambda: next(batches)):
                    try:
                        call()
                    except sbp.ForkedClientError:
                        pass
                    else:
                        raise AssertionError("it works")
                del broker, batches
                with tank.connect(sys.argv[1]) as own:
                    own.produce("t", 0, [b"child"])
            except BaseException as error:
                print("child:", type(error).__name__, error, file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, "the child failed"
        values = [next(batches).values]
        while sum(map(len, values)) < 2:
            values.append(next(batches).values)
        assert sum(values, []) == [b"parent", b"child"], values
        """,
        running.address,
    )


def test_the_broker_was_asked_as_the_page_says(running: Running, broker: tank.Broker) -> None:
    """One request tells where the partitions begin and end, and then there are those for messages alone."""
    broker.produce("t", 0, [b"a"])
    running.do(running.broker.asked.clear)
    assert read(broker) == [b"a"]
    assert running.broker.asked == [PARTITIONS, CONSUME]
