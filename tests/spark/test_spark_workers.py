"""The package in Spark's Python workers: forked children, daemons of users, workers that serve many jobs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark import forks
from spark.drivers import Driver
from spark.support import descendants, task_workers, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    import sbp_native as sbp

pytestmark = pytest.mark.slow


def appended_by(tasks: int) -> Counter[bytes]:
    """What the uses of `forks` leave in the stream; a child that tries its parent's client leaves nothing."""
    return Counter({use.encode(): tasks for use in forks.USES if use != "the parent's client"})


def test_forks_in_a_users_function(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    outcomes = forks.run(spark, server.address, name)
    assert outcomes == [[use, "ok"] for use in forks.USES] * 2
    assert Counter(values(client, name)) == appended_by(2)


@pytest.mark.timeout(500)
def test_forks_below_a_daemon_that_uses_the_package(
    server: sbp.Server, client: sbp.Client, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = client.create_stream(name)
    by_daemons = client.create_stream(f"{name}/daemons")
    monkeypatch.setenv("FORKING_DAEMON_SERVERS", server.address)
    monkeypatch.setenv("FORKING_DAEMON_STREAM", by_daemons.name)
    settings = {"spark.python.daemon.module": "spark.forking_daemon"}
    with Driver(tmp_path, "local[2]", settings) as driver:
        assert driver.run("fork", servers=server.address, stream=name) == [[use, "ok"] for use in forks.USES] * 2
        assert set(values(client, by_daemons.name)) == {b"daemon"}
        assert Counter(values(client, name)) == appended_by(2)
        assert driver.run("inherited", stream=name) == [1, 1]
        found = driver.run("read_offsets", servers=server.address, streams=name)
        assert found == [[name, offset] for offset in range(stream.positions().latest)]
        target = client.create_stream(f"{name}/written")
        driver.run("write_numbers", servers=server.address, stream=target.name, rows=1_000, tasks=2)
        assert sorted(values(client, target.name)) == sorted(b"%d" % number for number in range(1_000))


def test_a_worker_serves_jobs_with_the_same_client(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str
) -> None:
    """The package's own source and a user's function find in the next job what they left in the one before."""
    client.create_stream(name).append([b"x"] * 100)
    address = server.address

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from sbp_native.spark import runtime
        from sbp_native.spark.options import SbpOptions

        rows = sum(batch.num_rows for batch in batches)
        own = runtime.client(SbpOptions.parse({"servers": address}))
        user = forks.kept(address)
        assert user.stream(name).positions().latest == 100
        yield pa.RecordBatch.from_pydict(
            {"pid": [os.getpid()], "own": [id(own)], "user": [id(user)], "rows": [rows]},
        )

    def job() -> dict[int, tuple[int, int]]:
        frame = spark.read.format("sbp").option("servers", address).load(name).repartition(2)
        found = frame.mapInArrow(seen, "pid long, own long, user long, rows long").collect()
        assert sum(row.rows for row in found) == 100
        return {row.pid: (row.own, row.user) for row in found}

    first, *later = [job() for _ in range(6)]
    again = Counter(pid for each in later for pid in each)
    assert again.keys() & first.keys(), f"no worker was used again: {first} {again}"
    clients: dict[int, tuple[int, int]] = dict(first)
    for each in later:
        for pid, pair in each.items():
            assert clients.setdefault(pid, pair) == pair, "a worker made another client"


def test_jobs_leave_nothing_behind(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str) -> None:
    """Reads and writes again and again: no thread, descriptor or connection more than after the first."""
    client.create_stream(name).append([b"x"] * 50)
    client.create_stream(f"{name}/copy")

    def job() -> None:
        frame = spark.read.format("sbp").option("servers", server.address).load(name)
        assert frame.count() == 50
        writer = frame.select("value").write.format("sbp").mode("append").option("servers", server.address)
        writer.save(f"{name}/copy")

    def held() -> dict[int, tuple[int, int]]:
        return {each.pid: (each.threads(), each.descriptors()) for each in task_workers(os.getpid())}

    for _ in range(3):
        job()
    before, connections = held(), server.stats()["connections_open"]
    daemons = sum(process.is_daemon for process in descendants(os.getpid()))
    for _ in range(6):
        job()
    after = held()
    assert before.keys() & after.keys()
    for pid in before.keys() & after.keys():
        threads, descriptors = after[pid]
        assert threads <= before[pid][0] + 1, (before, after)
        assert descriptors <= before[pid][1] + 2, (before, after)
    assert int(server.stats()["connections_open"]) <= int(connections) + 2
    assert len(values(client, f"{name}/copy")) == 9 * 50
    # Spark has one for each kind of work; other tests of the session have started theirs.
    assert sum(process.is_daemon for process in descendants(os.getpid())) <= daemons


def test_a_temporary_view_keeps_its_options(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str
) -> None:
    client.create_stream(name).append([b"%d" % number for number in range(10)])
    view = "view_" + name.replace("/", "_")
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING sbp OPTIONS (servers '{server.address}', streams '{name}', "
        "startingOffsets 'earliest')"
    )
    found = spark.sql(f"SELECT offset, string(value) value FROM {view} WHERE offset >= 4 ORDER BY offset").collect()
    assert [(row.offset, row.value) for row in found] == [(number, str(number)) for number in range(4, 10)]
    spark.catalog.dropTempView(view)
