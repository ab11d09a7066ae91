"""On a cluster: speculation, executors that are killed, executors that sleep and wake up too late."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import sbp_native as sbp
from sbp_native import testing
from sbp_native.testing import eventually
from spark import faults
from spark.drivers import Driver
from spark.support import Process, descendants, processes
from spark.test_spark_faults import DELIVERIES, PATIENCE, judge, prepared
from spark_long.cluster import Cluster

ROWS = 2_000

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two executors on two hosts."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def proxy() -> Iterator[sbp.Proxy]:
    """A server behind a proxy."""
    with testing.proxied() as made:
        yield made


def driver(cluster: Cluster, place: Path, settings: dict[str, str] | None = None) -> Driver:
    """A driver on the cluster."""
    return Driver(place, cluster.master, {**cluster.settings(), **(settings or {})})


def attempts(place: Path) -> set[str]:
    """Which attempts of the slow task passed on all of their rows."""
    return {path.name for path in place.glob("attempt-*")}


def test_speculation(cluster: Cluster, server: sbp.Server, client: sbp.Client, name: str, tmp_path: Path) -> None:
    """A slow task is run a second time, on the other host, and both attempts append all of their rows."""
    settings = {
        **faults.SMALL_PORTIONS,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.5",
    }
    with driver(cluster, tmp_path / "driver", settings) as running:
        for delivery in DELIVERIES:
            source, target = prepared(client, f"{name}/{delivery}")
            place = tmp_path / delivery
            place.mkdir()
            running.run(
                "copy",
                within=400,
                servers=server.address,
                source=source,
                target=target,
                checkpoint=str(place / "checkpoint"),
                options={"delivery": delivery, "batchRows": "50"},
                linger_at=str(place),
            )
            assert attempts(place) == {"attempt-0", "attempt-1"}
            judge(client, target, delivery)
            batch = client.create_stream(f"{name}/{delivery}/batch").name
            place = tmp_path / f"{delivery}-batch"
            place.mkdir()
            running.run(
                "write_lingering",
                within=400,
                servers=server.address,
                target=batch,
                rows=ROWS,
                place=str(place),
                delivery=delivery,
            )
            assert attempts(place) == {"attempt-0", "attempt-1"}
            judge(client, batch, delivery)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_an_executor_is_killed_amid_a_batch(
    cluster: Cluster, proxy: sbp.Proxy, name: str, tmp_path: Path, checkpoint: str, delivery: str
) -> None:
    """Both executors have stored their rows and wait for the acknowledgement, when one of them dies."""
    with sbp.connect(proxy.address) as client, driver(cluster, tmp_path / "driver") as running:
        application = running.run("application")
        source, target = prepared(client, name)
        copied = {"servers": proxy.address, "source": source, "target": target, "checkpoint": checkpoint}
        with proxy.hold("answer APPEND") as held:
            running.start("copy", options={"delivery": delivery}, **copied)
            frames = [held.wait(PATIENCE) for _ in range(2)]
            assert client.stream(target).positions().latest == ROWS
            victim = cluster.executors(application)[0]
            for pid in [victim.pid, *(process.pid for process in descendants(victim.pid))]:
                os.kill(pid, signal.SIGKILL)
            for frame in frames:
                frame.cut()
        running.answer(400)
        judge(client, target, delivery)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_an_executor_that_sleeps_and_wakes_up(
    cluster: Cluster, proxy: sbp.Proxy, name: str, tmp_path: Path, checkpoint: str, delivery: str
) -> None:
    """It has stored its rows and is given up for dead; others write them again, and later batches; then it goes on."""
    settings = {
        "spark.network.timeout": "8s",
        "spark.network.timeoutInterval": "1s",
        "spark.executor.heartbeatInterval": "1s",
    }
    with sbp.connect(proxy.address) as client, driver(cluster, tmp_path / "driver", settings) as running:
        application = running.run("application")
        source, target = prepared(client, name)
        copied = {"servers": proxy.address, "source": source, "target": target, "checkpoint": checkpoint}
        asleep: list[Process] = []
        try:
            with proxy.hold("answer APPEND") as held:
                running.start("copy", options={"delivery": delivery}, per_trigger=900, **copied)
                frames = [held.wait(PATIENCE) for _ in range(2)]
                assert client.stream(target).positions().latest == 900
                executor = cluster.executors(application)[0]
                asleep = [executor, *descendants(executor.pid)]
                for process in asleep:
                    os.kill(process.pid, signal.SIGSTOP)
                eventually(lambda: all(process.stands_still() for process in asleep), timeout=20)
                for frame in frames:
                    frame.forward()
            assert running.answer(400) >= 2
            judge(client, target, delivery)
        finally:
            for process in asleep:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
        # What they still had to say, they say now; then they learn that nobody waits for them.
        eventually(lambda: not set(asleep) & set(processes()), timeout=60)
        judge(client, target, delivery)
