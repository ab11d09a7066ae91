"""A thousand queries in one session: memory, threads and descriptors are what they were after the first hundred."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from spark.drivers import jobs
from spark.support import Process, descendants, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
ROWS = 200
#: Batch queries; a tenth of them as streaming ones. Fewer show less, but sooner.
QUERIES = int(os.environ.get("SBP_TEST_QUERIES", "1000"))


@dataclass(frozen=True)
class Held:
    """What the Python processes below the driver hold together, and the largest of them."""

    processes: int
    threads: int
    descriptors: int
    largest_bytes: int
    connections: int

    @classmethod
    def now(cls, server: sbp.Server) -> Held:
        """Looks."""
        gc.collect()
        python = [process for process in descendants(os.getpid()) if process.is_daemon]
        return cls(
            len(python),
            max(map(Process.threads, python)),
            max(map(Process.descriptors, python)),
            max(map(Process.resident_bytes, python)),
            int(server.stats()["connections_open"]),
        )


def judged(job: Callable[[int], None], server: sbp.Server, runs: int, warm: int) -> None:
    """Runs it so often, and compares with what was held when it was warm."""
    for number in range(warm):
        job(number)
    before = after = Held.now(server)
    print(f"\nafter {warm} runs {before}", flush=True)
    for number in range(warm, runs):
        job(number)
        if (number + 1) % max(runs // 10, 1) == 0 or number + 1 == runs:
            after = Held.now(server)
            print(f"after {number + 1} runs {after}", flush=True)
    # Spark starts workers as it needs them and ends idle ones after a minute: a few more or less mean nothing.
    assert after.processes <= before.processes + 4
    assert after.threads <= before.threads + 1
    assert after.descriptors <= before.descriptors + 4
    assert after.connections <= before.connections + 8
    assert after.largest_bytes <= before.largest_bytes + 24 * MIB


@pytest.mark.timeout(3_600)
def test_a_thousand_batch_queries(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str) -> None:
    client.create_stream(name).append([b"x" * 100] * ROWS)
    copy = client.create_stream(f"{name}/copy").name

    def query(number: int) -> None:
        frame = spark.read.format("sbp").option("servers", server.address).load(name)
        if number % 10:
            assert frame.count() == ROWS
        else:
            writer = frame.select("value").write.format("sbp").mode("append").option("servers", server.address)
            writer.save(copy)

    judged(query, server, runs=QUERIES, warm=QUERIES // 10)
    assert len(values(client, copy)) == QUERIES // 10 * ROWS


@pytest.mark.timeout(1_800)
def test_a_hundred_streaming_queries(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, tmp_path: Path
) -> None:
    """Each has a process of its own on the driver, which is to be gone afterwards."""
    client.create_stream(name).append([b"x"] * ROWS)
    copy = client.create_stream(f"{name}/copy").name

    def query(number: int) -> None:
        checkpoint = str(tmp_path / str(number))
        jobs.copy(spark, servers=server.address, source=name, target=copy, checkpoint=checkpoint)

    judged(query, server, runs=QUERIES // 10, warm=QUERIES // 50)
    assert len(values(client, copy)) == QUERIES // 10 * ROWS
