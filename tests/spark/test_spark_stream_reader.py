"""The streaming reader against a real server, driven as Spark drives it but in this process: no JVM is needed."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

import sbp_native as sbp
from python.scripted_peer import DESCRIBE_CLUSTER, DESCRIBE_STREAMS, LIST_RANGES, ScriptedPeer, not_leader
from sbp_native.spark import SbpDataSource
from sbp_native.spark.errors import SbpSparkError
from sbp_native.testing import eventually
from spark.support import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.streaming.datasource import ReadLimit

Row = tuple[str, int, Any]


class Query:
    """A streaming query: the calls and their order are Spark's, offsets travel as JSON text, rows come from `read`."""

    def __init__(self, servers: str, **options: object) -> None:
        given = {"servers": servers, "startingOffsets": "earliest", **{key: str(each) for key, each in options.items()}}
        self._options = given
        self.batches: list[list[dict[str, Any]]] = []
        self.place: str | None = None
        self.restart()

    def restart(self) -> None:
        """What a new driver does: everything but the checkpoint is forgotten."""
        source = SbpDataSource(self._options)
        self.reader = source.streamReader(source.schema())
        self._default = self.reader.getDefaultReadLimit()

    def step(self, limit: ReadLimit | None = None) -> bool:
        """One micro-batch; False if there was nothing to do."""
        if self.place is None:
            self.place = json.dumps(self.reader.initialOffset())
        end = json.dumps(self.reader.latestOffset(json.loads(self.place), limit or self._default))
        if end == self.place:
            return False
        self.run(self.place, end)
        self.place = end
        return True

    def run(self, start: str, end: str) -> None:
        """The batch between two offsets."""
        rows: list[dict[str, Any]] = []
        for partition in self.reader.partitions(json.loads(start), json.loads(end)):
            for batch in self.reader.read(partition):
                rows += pa.RecordBatch.to_pylist(batch)
        self.batches.append(rows)

    def drain(self) -> None:
        """All that is there."""
        while self.step():
            pass

    def rows(self) -> Counter[Row]:
        """Everything delivered, gaps too: stream, offset, and the value or the end of the gap."""
        return Counter(
            (row["stream"], row["offset"], row["gap_end"] if row.get("gap_end") is not None else row["value"])
            for batch in self.batches
            for row in batch
        )


@pytest.fixture
def query(server: sbp.Server) -> Callable[..., Query]:
    return lambda **options: Query(server.address, **options)


def held(name: str, start: int, end: int) -> Counter[Row]:
    """What `fill` appended."""
    return Counter((name, number, b"%s %d" % (name.encode(), number)) for number in range(start, end))


def fill(client: sbp.Client, name: str, start: int, end: int) -> sbp.Stream:
    """Appends records that say which they are; creates the stream."""
    stream = client.create_stream(name, exist_ok=True)
    if end > start:
        stream.append([b"%s %d" % (name.encode(), number) for number in range(start, end)])
    return stream


def test_a_pattern_finds_streams_as_they_come(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, f"{name}/a", 0, 5)
    fill(client, "elsewhere/" + name, 0, 5)
    running = query(streamsPattern=f"{name}/.*")
    running.drain()
    fill(client, f"{name}/b", 0, 7)
    fill(client, f"{name}/a", 5, 6)
    late = fill(client, f"{name}/c", 0, 0)
    running.drain()
    assert running.place is not None
    assert json.loads(running.place)["o"][str(late.id)] == 0, "also one that is empty has its place"
    late.append(b"%s/c 0" % name.encode())
    running.drain()
    running.restart()
    running.drain()
    assert running.rows() == held(f"{name}/a", 0, 6) + held(f"{name}/b", 0, 7) + held(f"{name}/c", 0, 1)


def test_a_pattern_may_match_nothing_yet(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    running = query(streamsPattern=f"{name}/.*", columns="records")
    assert not running.step()
    fill(client, f"{name}/a", 0, 5)
    running.drain()
    assert running.rows() == held(f"{name}/a", 0, 5)


def test_what_is_found_must_look_the_same(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, f"{name}/a", 0, 5)
    running = query(streamsPattern=f"{name}/.*")
    running.drain()
    client.create_stream(f"{name}/typed", schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(SbpSparkError, match=rf"\[SBP-9204\] stream {name}/typed \(\d+\) has a schema and .*/a"):
        running.step()


def test_streams_of_cursors_and_sinks_are_not_found(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    own = fill(client, f"_sbp/{name}", 0, 3)
    fill(client, f"{name}/a", 0, 1)
    running = query(streamsPattern=f".*{name}(/a)?")
    running.drain()
    assert running.rows() == held(f"{name}/a", 0, 1)
    asked = query(streamsPattern=f"_sbp/{name}")
    asked.drain()
    assert asked.rows() == held(own.name, 0, 3)


def test_a_trimmed_stream_fails_and_names_the_interval(
    client: sbp.Client, query: Callable[..., Query], name: str
) -> None:
    stream = fill(client, name, 0, 10)
    running = query(streams=name)
    running.drain()
    fill(client, name, 10, 40)
    stream.trim(25)
    line = rf"\[SBP-9013\] records of this query are not there: stream {name} \({stream.id}\) \[10, 25\), servers"
    with pytest.raises(SbpSparkError, match=line):
        running.step()
    assert running.rows() == held(name, 0, 10)


@pytest.mark.parametrize("how", ["warn", "rows"])
def test_a_trimmed_stream_goes_on_if_it_may(
    client: sbp.Client, query: Callable[..., Query], name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = fill(client, name, 0, 10)
    running = query(streams=name, failOnDataLoss="false", onDataLoss=how, maxOffsetsPerTrigger=4)
    running.drain()
    fill(client, name, 10, 40)
    stream.trim(25)
    with caplog.at_level(logging.WARNING):
        running.drain()
    gap = Counter([(name, 10, 25)]) if how == "rows" else Counter()
    assert running.rows() == held(name, 0, 10) + gap + held(name, 25, 40)
    assert any(f"stream {name} ({stream.id}) [10, 25)" in record.getMessage() for record in caplog.records)
    report = running.reader.reportLatestOffset()
    assert report is not None
    assert (report["lost"], report["gaps"]) == ({str(stream.id): 15}, [[stream.id, 10, 25]])
    # A gap is not records: it takes no room from the limit.
    assert all(len([row for row in batch if row.get("gap_end") is None]) <= 4 for batch in running.batches)


def test_records_trimmed_between_plan_and_read(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    stream = fill(client, name, 0, 20)
    running = query(streams=name, failOnDataLoss="false", onDataLoss="rows")
    start = running.reader.initialOffset()
    end = running.reader.latestOffset(start, ReadAllAvailable())
    stream.trim(15)
    running.run(json.dumps(start), json.dumps(end))
    assert running.rows() == Counter([(name, 0, 15)]) + held(name, 15, 20)


def test_a_batch_planned_by_an_earlier_run_is_looked_at(
    client: sbp.Client, query: Callable[..., Query], name: str
) -> None:
    """A crash after the plan was logged; what it should read is gone when the query is back."""
    stream = fill(client, name, 0, 20)
    running = query(streams=name)
    start = running.reader.initialOffset()
    end = running.reader.latestOffset(start, ReadAllAvailable())
    stream.trim(15)
    running.restart()
    with pytest.raises(SbpSparkError, match=rf"\[SBP-9013\].*stream {name} \({stream.id}\) \[0, 15\)"):
        running.reader.partitions(start, end)


def test_a_deleted_stream_that_was_read_ends(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    """Nothing is lost, so nothing fails; and nothing fails after a restart, where nobody remembers its end."""
    gone, kept = fill(client, f"{name}/a", 0, 5), fill(client, f"{name}/b", 0, 5)
    running = query(streamsPattern=f"{name}/.*")
    running.drain()
    client.delete_stream(gone.name)
    fill(client, kept.name, 5, 9)
    running.drain()
    running.restart()
    fill(client, kept.name, 9, 10)
    running.drain()
    assert running.rows() == held(gone.name, 0, 5) + held(kept.name, 0, 10)
    assert running.place is not None
    assert json.loads(running.place)["gone"] == [gone.id]


def test_a_deleted_stream_with_unread_records_fails(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, f"{name}/a", 0, 5)
    gone = fill(client, f"{name}/b", 0, 5)
    running = query(streamsPattern=f"{name}/.*", maxOffsetsPerTrigger=6)
    assert running.step()
    read = running.rows() & held(gone.name, 0, 5)
    assert read.total() < 5
    client.delete_stream(gone.name)
    line = rf"\[SBP-9013\].*stream {gone.name} \({gone.id}\) \[{read.total()}, 5\)"
    with pytest.raises(SbpSparkError, match=line):
        running.step()


def test_a_deleted_stream_with_unread_records_is_a_row(
    client: sbp.Client, query: Callable[..., Query], name: str
) -> None:
    fill(client, f"{name}/a", 0, 5)
    gone = fill(client, f"{name}/b", 0, 5)
    running = query(streamsPattern=f"{name}/.*", maxOffsetsPerTrigger=6, failOnDataLoss="false", onDataLoss="rows")
    assert running.step()
    read = (running.rows() & held(gone.name, 0, 5)).total()
    client.delete_stream(gone.name)
    running.drain()
    gap = Counter([(gone.name, read, 5)])
    assert running.rows() == held(gone.name, 0, read) + gap + held(f"{name}/a", 0, 5)


def test_a_stream_deleted_while_the_query_was_down(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    gone = fill(client, f"{name}/a", 0, 5)
    fill(client, f"{name}/b", 0, 5)
    running = query(streamsPattern=f"{name}/.*")
    running.drain()
    client.delete_stream(gone.name)
    running.restart()
    line = rf"\[SBP-9013\].*stream {gone.id} was deleted, and what it held from offset 5 on is not known"
    with pytest.raises(SbpSparkError, match=line):
        running.step()
    place, allowed = running.place, query(streamsPattern=f"{name}/.*", failOnDataLoss="false")
    allowed.place = place
    allowed.drain()
    # Told once: the query may be strict again.
    running.place = allowed.place
    fill(client, f"{name}/b", 5, 6)
    running.drain()
    assert running.rows() == held(gone.name, 0, 5) + held(f"{name}/b", 0, 6)


@pytest.mark.parametrize("by", ["streams", "streamsPattern"])
def test_a_stream_created_again_is_another_one(
    client: sbp.Client, query: Callable[..., Query], name: str, by: str
) -> None:
    first = fill(client, name, 0, 5)
    running = query(**{by: name})
    running.drain()
    client.delete_stream(name)
    running.drain()
    second = fill(client, name, 0, 3)
    running.drain()
    fill(client, name, 3, 4)
    running.restart()
    running.drain()
    assert second.id != first.id
    assert running.rows() == held(name, 0, 5) + held(name, 0, 4)


def test_a_stream_created_again_between_two_looks(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, name, 0, 5)
    running = query(streams=name)
    running.drain()
    client.delete_stream(name)
    fill(client, name, 0, 3)
    running.drain()
    assert running.rows() == held(name, 0, 5) + held(name, 0, 3)


def test_a_checkpoint_ahead_of_its_stream(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    stream = fill(client, name, 0, 10)
    running = query(streams=name)
    running.drain()
    running.place = json.dumps({"v": 1, "o": {str(stream.id): 12}})
    with pytest.raises(SbpSparkError, match=rf"\[SBP-9013\].*stream {name} \({stream.id}\) \[10, 12\)"):
        running.step()
    allowed = query(streams=name, failOnDataLoss="false")
    allowed.place = running.place
    allowed.drain()
    fill(client, name, 10, 14)
    allowed.drain()
    assert allowed.rows() == held(name, 10, 14)


def test_a_sealed_range_in_the_middle(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    stream = fill(client, name, 0, 10)
    running = query(streams=name, maxOffsetsPerTrigger=7)
    assert running.step()
    for start in (10, 20, 30):
        stream.seal()
        fill(client, name, start, start + 10)
        running.step()
    running.drain()
    assert running.rows() == held(name, 0, 40)


def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, name: str) -> None:
    with ServerProcess(tmp_path) as server:
        with sbp.connect(server.address, timeout=20) as client:
            fill(client, name, 0, 10)
            running = Query(server.address, streams=name, maxOffsetsPerTrigger=7)
            assert running.step()
            server.kill()
            server.start()
            running.drain()
            fill(client, name, 10, 20)
            server.kill()
            server.start()
            running.drain()
        assert running.rows() == held(name, 0, 20)


class RangeServer(ServerProcess):
    """The half of a server that holds records. It knows no stream by name, so it is up when it answers anything."""

    def __init__(self, place: Path, driver: str) -> None:
        super().__init__(place, "--role", "range-server", "--placement-driver", driver)

    def _answers(self) -> bool:
        try:
            with sbp.connect(self.address, timeout=2) as client:
                return client.ping() > 0
        except sbp.SbpError:
            return False


def test_the_server_of_a_range_is_another_one(tmp_path: Path, name: str) -> None:
    """The records are at another address when the query comes back for more: it is led there."""
    for part in ("driver", "ranges"):
        (tmp_path / part).mkdir()
    with (
        ServerProcess(tmp_path / "driver", "--role", "placement-driver") as driver,
        RangeServer(tmp_path / "ranges", driver.address) as first,
        sbp.connect(driver.address, timeout=30) as client,
    ):
        eventually(lambda: created(client, name))
        fill(client, name, 0, 10)
        running = Query(driver.address, streams=name, maxOffsetsPerTrigger=7)
        assert running.step()
        first.kill()
        with RangeServer(tmp_path / "ranges", driver.address) as second:
            assert second.address != first.address
            running.drain()
            fill(client, name, 10, 20)
            running.drain()
    assert running.rows() == held(name, 0, 20)


def test_the_leader_is_another_one(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """Who was the leader names another one in the middle of a query, which asks that one from then on."""
    fill(client, f"{name}/a", 0, 10)
    with ScriptedPeer() as follower:
        follower.upstream = server.address
        running = Query(follower.address, streamsPattern=f"{name}/.*")
        running.drain()
        assert follower.times(DESCRIBE_STREAMS)
        follower.reset()
        for operation in (DESCRIBE_STREAMS, LIST_RANGES, DESCRIBE_CLUSTER):
            follower.on(operation, not_leader(server.address))
        fill(client, f"{name}/a", 10, 20)
        fill(client, f"{name}/b", 0, 10)
        running.drain()
        assert follower.times(DESCRIBE_STREAMS) == 1, "who is not the leader is asked once"
        # A new driver may be told anew.
        running.restart()
        fill(client, f"{name}/b", 10, 20)
        running.drain()
    assert running.rows() == held(f"{name}/a", 0, 20) + held(f"{name}/b", 0, 20)


def created(client: sbp.Client, name: str) -> bool:
    """Creates a stream, as soon as there is a server for it."""
    try:
        client.create_stream(name, exist_ok=True)
    except sbp.SbpError:
        return False
    return True


def test_a_server_that_does_not_answer_is_an_error_that_says_so(tmp_path: Path, name: str) -> None:
    with ServerProcess(tmp_path) as server, sbp.connect(server.address, timeout=20) as client:
        fill(client, name, 0, 10)
        running = Query(server.address, streams=name, timeout="700ms")
        assert running.step()
        server.kill()
        with pytest.raises(SbpSparkError, match=rf"\[SBP-\d+\] asking for the offsets of 1 streams.*{server.address}"):
            running.step()


@pytest.mark.parametrize("limit", [40, 333])
def test_streams_of_different_rates_stay_together(
    client: sbp.Client, query: Callable[..., Query], name: str, limit: int
) -> None:
    """Event time drifts apart by no more than one batch: what a batch takes is not newer than what the next takes."""
    began = 1_700_000_000_000
    rates = {f"{name}/{every}": every for every in (1, 7, 60, 600)}  # seconds from one record to the next
    writers = {each: client.create_stream(each) for each in rates}
    expected: Counter[Row] = Counter()
    for each, every in rates.items():
        for number, second in enumerate(range(0, 1_800, every)):
            writers[each].append(b"x", timestamp=began + second * 1_000)
            expected[(each, number, b"x")] += 1
    running = query(streamsPattern=f"{name}/.*", maxOffsetsPerTrigger=limit)
    running.drain()
    assert running.rows() == expected
    newest = None
    for batch in running.batches:
        assert 0 < len(batch) <= limit
        assert newest is None or min(row["timestamp"] for row in batch) >= newest
        newest = max(row["timestamp"] for row in batch)
    assert len(running.batches) <= 2 * expected.total() / limit + 2


def test_too_few_records_wait(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, name, 0, 3)
    running = query(streams=name, minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    assert isinstance(running.reader.getDefaultReadLimit(), ReadMinRows)
    assert not running.step()
    fill(client, name, 3, 6)
    assert running.step()
    fill(client, name, 6, 7)
    assert not running.step()
    assert running.step(ReadAllAvailable()), "a trigger that takes everything does not wait"
    assert [len(batch) for batch in running.batches] == [6, 1]


def test_a_delay_ends_the_waiting(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, name, 0, 3)
    running = query(streams=name, minOffsetsPerTrigger=5, maxTriggerDelay="1ms")
    while not running.step():
        pass
    assert running.rows() == held(name, 0, 3)


def test_at_least_and_at_most(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, name, 0, 12)
    running = query(streams=name, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=8, maxTriggerDelay="1h")
    running.drain()
    assert [len(batch) for batch in running.batches] == [8], "four are left, and wait"


def test_available_now_ends_at_its_target(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, f"{name}/a", 0, 20)
    fill(client, f"{name}/b", 0, 1)
    running = query(streamsPattern=f"{name}/.*", maxOffsetsPerTrigger=6, minOffsetsPerTrigger=6)
    running.reader.prepareForTriggerAvailableNow()
    fill(client, f"{name}/c", 0, 9)
    fill(client, f"{name}/b", 1, 9)
    running.drain()
    assert running.rows() == held(f"{name}/a", 0, 20) + held(f"{name}/b", 0, 1)
    assert all(len(batch) <= 6 for batch in running.batches)
    running.restart()
    running.reader.prepareForTriggerAvailableNow()
    running.drain()
    assert running.rows() == held(f"{name}/a", 0, 20) + held(f"{name}/b", 0, 9) + held(f"{name}/c", 0, 9)


def test_all_that_is_available_overrides_the_limit(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, name, 0, 20)
    running = query(streams=name, maxOffsetsPerTrigger=6)
    assert running.step(ReadAllAvailable())
    assert [len(batch) for batch in running.batches] == [20]


def test_the_report(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    stream = fill(client, name, 0, 20)
    running = query(streams=name, maxOffsetsPerTrigger=6)
    assert running.step()
    expected = {"v": 1, "o": {str(stream.id): 20}, "names": {str(stream.id): name}}
    assert running.reader.reportLatestOffset() == expected


def test_a_renamed_stream_is_read_on(client: sbp.Client, query: Callable[..., Query], name: str) -> None:
    fill(client, name, 0, 3)
    running = query(streams=name)
    running.drain()
    client.update_stream(name, name=f"{name}/new")
    client.stream(f"{name}/new").append(b"%s/new 3" % name.encode())
    running.drain()
    assert running.rows().total() == 4


def test_the_list_goes_on_where_it_ended(client: sbp.Client, name: str) -> None:
    """Only what is new is listed at a look, over the ends of pages too, and when the last stream was deleted."""
    from sbp_native._native import stream_list

    def listed(place: bytes) -> tuple[list[str], bytes]:
        streams, place = stream_list(client, place)
        return [stream for _, stream, _, _ in streams], place

    fill(client, f"{name}/a", 0, 0)
    everything, place = listed(b"")
    assert everything[-1] == f"{name}/a"
    assert listed(place) == ([f"{name}/a"], place)
    fill(client, f"{name}/b", 0, 0)
    fill(client, f"{name}/c", 0, 0)
    found, later = listed(place)
    assert found == [f"{name}/a", f"{name}/b", f"{name}/c"]
    assert listed(later)[0] == [f"{name}/c"]
    client.delete_stream(f"{name}/c")
    assert listed(later)[0] == []
    fill(client, f"{name}/d", 0, 0)
    assert listed(later)[0] == [f"{name}/d"]
    assert listed(b"")[0] == [*everything, f"{name}/b", f"{name}/d"]
    with pytest.raises(sbp.SbpError):
        listed(b"no place")
