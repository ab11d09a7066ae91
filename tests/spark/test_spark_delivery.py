"""What a sink remembers, and what it does with rows that come again: the writers as Spark calls them, no session."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, StructType

import sbp_native as sbp
from sbp_native._native import digest_rows
from sbp_native.spark import SbpDataSource, SbpOptionError, SbpSparkError, deterministic
from sbp_native.spark.content import Content
from sbp_native.spark.delivery import CommitLog, Epoch, of_stream, of_transaction
from sbp_native.spark.options import SbpOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sbp_native.spark.writer import SbpCommitMessage

VALUES = StructType().add("value", BinaryType())
NAMED = StructType().add("stream", StringType()).add("value", BinaryType())
TYPED = StructType().add("n", LongType()).add("text", StringType())


def rows(first: int, last: int, **more: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%d" % n for n in range(first, last)], **more})


def held(client: sbp.Client, name: str) -> Counter[bytes]:
    return Counter(bytes(r.value) for batch in client.stream(name).read() for r in batch)


def numbers(last: int, first: int = 0) -> Counter[bytes]:
    return Counter(b"%d" % n for n in range(first, last))


@contextmanager
def task(batch: int, partition: int = 0, query: str = "q") -> Iterator[None]:
    """The calling code is a task of this batch of a query, as Spark tells it."""
    before = TaskContext.get()
    TaskContext._setTaskContext(None)
    properties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": query}
    TaskContext(partitionId=partition, localProperties=properties)
    try:
        yield
    finally:
        TaskContext._setTaskContext(before)


class Job:
    """Writes to one server, as Spark does it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def batch(self, batches: list[pa.RecordBatch], schema: StructType = VALUES, tasks: int = 1, **options: str) -> int:
        """One batch job, whose tasks are all tried twice; returns the rows that the last attempts wrote."""
        writer = SbpDataSource({"servers": self.address, **options}).writer(schema, False)
        messages = []
        for number in range(tasks):
            with task(0, number):
                writer.write(iter(batches[number::tasks]))
                messages.append(writer.write(iter(batches[number::tasks])))
        writer.commit(messages)
        return sum(message.rows for message in messages)

    def attempt(
        self, number: int, batches: list[pa.RecordBatch], schema: StructType = VALUES, **options: str
    ) -> object:
        """One attempt of the only task of a micro-batch."""
        writer = SbpDataSource({"servers": self.address, **options}).streamWriter(schema, False)
        with task(number):
            return writer.write(iter(batches))

    def tasks(self, number: int, *inputs: list[pa.RecordBatch], **options: str) -> list[SbpCommitMessage]:
        """A task of a micro-batch for each input."""
        writer = SbpDataSource({"servers": self.address, **options}).streamWriter(VALUES, False)
        messages = []
        for partition, batches in enumerate(inputs):
            with task(number, partition):
                messages.append(writer.write(iter(batches)))
        return messages

    def commit(self, number: int, *messages: object, **options: str) -> None:
        """The micro-batch is whole."""
        SbpDataSource({"servers": self.address, **options}).streamWriter(VALUES, False).commit(list(messages), number)


@pytest.fixture
def job(server: sbp.Server) -> Job:
    return Job(server.address)


def test_tasks_of_a_job_that_are_repeated(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    parts = [rows(n, n + 100) for n in range(0, 1_000, 100)]
    assert job.batch(parts, tasks=3, path=name, delivery="exactly-once", batchRows="30") == 1_000
    assert held(client, name) == numbers(1_000)
    job.batch(parts, tasks=3, path=name, delivery="exactly-once")
    assert held(client, name) == numbers(1_000) + numbers(1_000), "another job is another write"


def test_at_least_once_keeps_all_attempts(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    job.batch([rows(0, 10)], path=name)
    assert held(client, name) == numbers(10) + numbers(10)


def test_a_version_is_written_once(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)

    def write(version: int, first: int, app: str = "app", **options: str) -> int:
        return job.batch([rows(first, first + 10)], path=name, txnAppId=app, txnVersion=str(version), **options)

    assert write(3, 0) == 10
    assert write(3, 0) == 0
    assert write(4, 10) == 10
    assert write(3, 0) == 0, "the one before the last is known too"
    assert held(client, name) == numbers(20)
    assert write(3, 20, app="other") == 10
    assert write(4, 30, sinkId="second") == 10
    assert write(4, 30, sinkId="second") == 0
    assert held(client, name) == numbers(40)


def test_a_version_with_other_rows_is_refused(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)

    def write(version: int, *batches: pa.RecordBatch) -> int:
        return job.batch(list(batches), path=name, txnAppId="app", txnVersion=str(version))

    write(3, rows(0, 10))
    write(5, rows(10, 20))
    for version, other in ((3, rows(500, 510)), (5, rows(10, 19)), (5, rows(10, 21)), (3, rows(0, 0))):
        with pytest.raises(
            SbpSparkError, match=f"version {version} of this txnAppId was written before with"
        ) as caught:
            write(version, other)
        assert caught.value.code == 9210
        assert not caught.value.retriable
        assert "a new txnAppId" in str(caught.value)
    for version in (2, 4):
        with pytest.raises(SbpSparkError, match=f"SBP-9210] version {version} of this txnAppId comes after 5"):
            write(version, rows(20, 30))
    assert held(client, name) == numbers(20)
    assert write(6, rows(20, 30)) == 10
    assert held(client, name) == numbers(30)


def test_a_version_that_was_not_completed_is_completed(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    options = {"path": name, "txnAppId": "app", "txnVersion": "1", "batchRows": "10"}
    writer = SbpDataSource({"servers": job.address, **options}).writer(VALUES, False)

    def dies() -> Iterator[pa.RecordBatch]:
        yield rows(0, 35)
        raise RuntimeError("the worker is gone")

    with task(0), pytest.raises(RuntimeError, match="gone"):
        writer.write(dies())
    assert job.batch([rows(0, 30), rows(30, 35), rows(35, 60)], **options) == 60
    assert held(client, name) == numbers(60)


def test_other_rows_in_a_repeated_task(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    options = {"path": name, "batchRows": "10"}
    job.attempt(0, [rows(0, 100)], **options)
    for other in (rows(1, 101), rows(0, 95)):
        with pytest.raises(SbpSparkError, match="the plan does not give the same rows") as caught:
            job.attempt(0, [other], **options)
        assert caught.value.code == 9210
        assert not caught.value.retriable
        assert name in str(caught.value)
    assert held(client, name) == numbers(100)
    with pytest.raises(SbpSparkError, match="SBP-9210"):
        job.attempt(0, [rows(0, 100)], path=name, batchRows="11")
    job.commit(0, job.attempt(0, [rows(0, 100)], **options), **options)
    assert held(client, name) == numbers(100)


def test_a_whole_batch_comes_again(job: Job, client: sbp.Client, name: str) -> None:
    """With the same rows, in whatever order, batches and tasks, it is passed over; with others it is refused."""
    client.create_stream(name)
    parts = [rows(n, n + 10) for n in range(0, 100, 10)]
    job.commit(0, *job.tasks(0, parts[:7], parts[7:], path=name), path=name)
    job.commit(1, *job.tasks(1, [rows(100, 110)], path=name), path=name)
    whole = rows(0, 100)
    shuffled = whole.take(pa.array(random.Random(1).sample(range(100), 100)))
    for number, again in (
        (0, [[whole]]),
        (0, [[shuffled.slice(0, 1)], [shuffled.slice(1)], []]),
        (1, [[rows(100, 110)]]),
    ):
        messages = job.tasks(number, *again, path=name, batchRows="7")
        assert all(message.repeated for message in messages)
        job.commit(number, *messages, path=name)
    for number, other in (
        (0, rows(1, 101)),
        (0, rows(0, 101)),
        (0, rows(0, 0)),
        (1, rows(0, 100)),
        (1, rows(100, 109)),
    ):
        messages = job.tasks(number, [other], path=name)
        with pytest.raises(SbpSparkError, match=rf"\[SBP-9210\] batch {number} was written before with other rows"):
            job.commit(number, *messages, path=name)
    assert held(client, name) == numbers(110)
    job.commit(2, *job.tasks(2, [rows(110, 120)], path=name), path=name)
    assert held(client, name) == numbers(120)


def test_a_batch_of_which_nothing_is_known(job: Job, client: sbp.Client, name: str) -> None:
    """Its mark was trimmed, or Spark ran no task for it: a later one is known, so it is not written."""
    client.create_stream(name)
    job.commit(3, *job.tasks(3, [rows(0, 10)], path=name), path=name)
    with pytest.raises(SbpSparkError, match=r"\[SBP-9210\] batch 2 comes after 3, .* 'sinkId'"):
        job.tasks(2, [rows(10, 20)], path=name)
    for number in range(4, 200):
        job.commit(number, path=name)
        job.commit(number, *job.tasks(number, [], path=name), path=name)
    assert job.tasks(199 - 50, [], path=name)[0].repeated
    with pytest.raises(SbpSparkError, match=r"\[SBP-9210\] batch 3 comes after 199"):
        job.tasks(3, [rows(0, 10)], path=name)
    assert held(client, name) == numbers(10)


def test_marks_of_releases_without_digests(job: Job, client: sbp.Client, name: str) -> None:
    """They say how many rows there were and not which: what cannot be told apart is refused, the next batch goes on."""
    target = client.create_stream(name)
    log = client.create_stream(of_stream("q", 0, name).sink)
    log.append(b'{"v":1,"batch":6,"streams":{}}')
    log.append(b'{"v":1,"batch":7,"streams":{"%d":[0,9,10]}}' % target.id)
    for count, said in ((10, "by an earlier release"), (9, r"with other rows \(10 then, now there are 9")):
        messages = job.tasks(7, [rows(0, count)], path=name)
        with pytest.raises(SbpSparkError, match=rf"\[SBP-9210\] batch 7 was written before.*{said}"):
            job.commit(7, *messages, path=name)
    job.commit(6, *job.tasks(6, [], path=name), path=name)
    job.commit(8, *job.tasks(8, [rows(0, 10)], path=name), path=name)
    assert held(client, name) == numbers(10)


@pytest.mark.parametrize("value", [b"", b"[]", b'{"v":3,"batch":0}', b'{"v":2,"batch":0}', b'{"v":1,"batch":0}'])
def test_what_is_no_mark(job: Job, client: sbp.Client, name: str, value: bytes) -> None:
    client.create_stream(name)
    client.create_stream(of_stream("q", 0, name).sink).append(value)
    with pytest.raises(SbpSparkError, match=r"\[SBP-9205\] .*record 0 of stream _sbp/sinks/.* is no commit of a sink"):
        job.tasks(0, [rows(0, 10)], path=name)


def test_the_stream_of_marks_is_lost(job: Job, client: sbp.Client, name: str) -> None:
    """What the server remembers of the writers is left: it refuses older batches, and knows the last one."""
    client.create_stream(name)
    for number in range(3):
        job.commit(number, *job.tasks(number, [rows(number * 10, number * 10 + 10)], path=name), path=name)
    client.delete_stream(of_stream("q", 0, name).sink)
    with pytest.raises(SbpSparkError, match=r"\[SBP-1482\] .*this is batch 1, .* the checkpoint is older"):
        job.tasks(1, [rows(30, 40)], path=name)
    with pytest.raises(SbpSparkError, match="SBP-9210"):
        job.tasks(2, [rows(30, 40)], path=name)
    job.commit(2, *job.tasks(2, [rows(20, 30)], path=name), path=name)
    assert held(client, name) == numbers(30)


def test_sorted_rows_are_the_same_in_any_order(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    item = StructType().add("key", StringType()).add("value", BinaryType())
    schema = StructType().add("value", BinaryType()).add("headers", ArrayType(item))
    items = [(b"%d" % (n % 50), [("h", b"%d" % n)] if n % 2 else None) for n in range(500)]
    for seed in range(3):
        random.Random(seed).shuffle(items)
        batch = pa.RecordBatch.from_arrays(
            [pa.array([v for v, _ in items], pa.binary()), pa.array([h for _, h in items], headers)],
            ["value", "headers"],
        )
        job.attempt(
            0, [batch.slice(0, 200), batch.slice(200)], schema, path=name, sortWithinBatch="true", batchRows="7"
        )
    records = [record for batch in client.stream(name).read() for record in batch]
    assert len(records) == 500
    assert [bytes(record.value) for record in records] == sorted(value for value, _ in items)


def test_rows_create_their_streams(job: Job, client: sbp.Client, name: str) -> None:
    batch = rows(0, 100, stream=[f"{name}/{n % 7}" for n in range(100)])
    with pytest.raises(SbpSparkError, match="SBP-1404"):
        job.attempt(0, [batch], NAMED)
    message = job.attempt(0, [batch], NAMED, createStreams="true")
    assert sum(one.rows for one in message.appended) == 100
    assert {one.stream for one in message.appended} == {client.stream(f"{name}/{n}").id for n in range(7)}
    for n in range(7):
        assert held(client, f"{name}/{n}") == Counter(b"%d" % m for m in range(n, 100, 7))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_typed_rows(job: Job, client: sbp.Client, name: str, compression: str) -> None:
    options = {"path": name, "body": "arrow", "createStreams": "true", "compression": compression}
    batch = pa.RecordBatch.from_pydict({"n": list(range(100)), "text": ["x"] * 100})
    for _ in range(2):
        job.attempt(0, [batch.slice(0, 33), batch.slice(33)], TYPED, **options)
    found = pa.Table.from_batches([pa.record_batch(each) for each in client.stream(name).read()])
    assert found.select(["n", "text"]).to_pylist() == batch.to_pylist()
    with pytest.raises(SbpOptionError, match=r"column 'n' of stream .* is int64, the DataFrame's is string: cast it"):
        job.attempt(1, [], StructType().add("n", StringType()).add("text", StringType()), **options)


def test_batches_have_the_size_that_was_asked_for(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    job.attempt(0, [rows(0, 95)], path=name, batchRows="10")
    assert [len(batch) for batch in client.stream(name).read()] == [10] * 9 + [5]
    job.attempt(1, [rows(0, 100)], path=name, batchBytes="100")
    assert max(len(batch) for batch in client.stream(name).read(start=95)) < 30


def test_what_a_sink_commits(client: sbp.Client, server: sbp.Server, job: Job, name: str) -> None:
    client.create_stream(name)
    for number in range(3):
        job.commit(number, job.attempt(number, [rows(0, 10)], path=name), path=name)
    log = of_stream("q", 0, name).sink
    [last] = client.stream(log).fetch("latest-1")[-1]
    digest = digest_rows(rows(0, 10))
    said = b'{"v":2,"batch":2,"rows":10,"digest":"%016x","streams":{"%d":[20,29,10]}}'
    assert last.value == said % (digest, client.stream(name).id)
    assert client.stream(log).positions().latest == 3
    job.commit(2, job.attempt(2, [rows(0, 10)], path=name), path=name)
    assert client.stream(log).positions().latest == 3


def test_commits_are_trimmed(client: sbp.Client, server: sbp.Server, name: str) -> None:
    options = SbpOptions.parse({"servers": server.address, "path": name})
    epoch = of_transaction(name, 0, "sink")
    log = CommitLog(options, epoch.sink)
    assert log.last() is None
    for number in range(150):
        log.commit(Epoch(epoch.sink, number), Content(), [])
    assert log.last() == 149
    positions = client.stream(epoch.sink).positions()
    assert positions.latest == 150
    assert 0 < positions.earliest < 149


def test_of_two_that_commit_at_once_one_does(server: sbp.Server, client: sbp.Client, name: str) -> None:
    """Another driver has committed between this one's look and its append."""
    options = SbpOptions.parse({"servers": server.address, "path": name})
    epoch = of_transaction(name, 5, "sink")
    log = CommitLog(options, epoch.sink)
    log.commit(Epoch(epoch.sink, 4), Content(), [])
    seen = log._last()
    log.commit(epoch, Content(), [])
    late = CommitLog(options, epoch.sink)
    looks = iter([seen])
    ask = late._last
    late._last = lambda make_for=None: next(looks, None) or ask(make_for)
    late.commit(epoch, Content(), [])
    assert client.stream(epoch.sink).positions().latest == 2


def test_names_of_writers_differ() -> None:
    epochs = [of_stream("q", 1, "a"), of_stream("q", 1, "b"), of_stream("r", 1, "a"), of_transaction("q", 1, "a")]
    names = [epoch.writer(partition) for epoch in epochs for partition in range(3)]
    assert len({name for name, _ in names}) == len(names)
    assert all(len(name) == 16 for name, _ in names)
    assert of_stream("q", 1, "a").writer(2) == (of_stream("q", 2, "a").writer(2)[0], 1)


def test_complete_mode_is_refused(job: Job, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    with pytest.raises(SbpOptionError, match=r"\[SBP-9207\] output mode 'complete'"):
        SbpDataSource({"servers": job.address, "path": name}).streamWriter(VALUES, True)


def test_what_cannot_be_sorted_cannot_be_made_deterministic() -> None:
    class Frame:
        schema = StructType().add("value", BinaryType()).add("tags", MapType(StringType(), StringType()))

    with pytest.raises(SbpOptionError, match="column 'tags' is map<string,string>, which has no order"):
        deterministic(Frame(), 2)
