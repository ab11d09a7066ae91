"""Figures of clients in a registry of ``prometheus_client``."""

from __future__ import annotations

import math
import threading
import time

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import sbp_native as sbp
from sbp_native.metrics import ClientCollector

from .test_stats import COUNTERS


def samples(registry: prometheus_client.CollectorRegistry) -> dict[tuple[str, str, str], float]:
    text = prometheus_client.generate_latest(registry).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            part = sample.labels.get("quantile", sample.labels.get("le", ""))
            found[sample.name, sample.labels["client"], part] = sample.value
    return found


def test_a_registry_tells_what_clients_have_done(server: sbp.Server, name: str) -> None:
    registry = prometheus_client.CollectorRegistry()
    with sbp.connect(server.address) as busy, sbp.connect(server.address) as idle:
        registry.register(ClientCollector(busy, name="busy"))
        stream = busy.create_stream(name)
        before = samples(registry)
        for _ in range(10):
            stream.append(b"x" * 1_000)
        after = samples(registry)
        assert after["sbp_client_calls_total", "busy", ""] - before["sbp_client_calls_total", "busy", ""] == 10
        assert (
            after["sbp_client_sent_bytes_total", "busy", ""] - before["sbp_client_sent_bytes_total", "busy", ""]
            > 10_000
        )
        assert (
            0
            < after["sbp_client_round_trip_seconds", "busy", "0.5"]
            <= after["sbp_client_round_trip_seconds", "busy", "1"]
        )
        other = prometheus_client.CollectorRegistry()
        other.register(ClientCollector(idle, name="idle"))
        assert samples(other)["sbp_client_calls_total", "idle", ""] <= 1


def test_every_figure_has_its_metric(server: sbp.Server) -> None:
    with sbp.connect(server.address) as client:
        families = list(ClientCollector(client).collect())
        told = sum(len(family.samples) for family in families if family.type != "histogram")
        assert told == len(COUNTERS) == len(client.stats())
        histograms = {family.name for family in families if family.type == "histogram"}
        assert histograms == {f"sbp_client_{name}" for name in client.metrics()}


@pytest.mark.asyncio
async def test_a_client_of_asyncio_is_told_too(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as client:
        await client.ping()
        registry = prometheus_client.CollectorRegistry()
        registry.register(ClientCollector(client, name="loop"))
        assert samples(registry)["sbp_client_connections_total", "loop", ""] == 1
        assert samples(registry)["sbp_client_append_seconds_count", "loop", ""] == 0
        await client.append((await client.create_stream(name)).name, b"x")
        assert samples(registry)["sbp_client_append_seconds_count", "loop", ""] == 1


def test_histograms_of_a_registry_are_those_of_the_client(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        stream = client.create_stream(name)
        for _ in range(10):
            stream.append(b"x")
        registry = prometheus_client.CollectorRegistry()
        registry.register(ClientCollector(client, name="c"))
        told, took = samples(registry), client.metrics()["append_seconds"]
    assert took.count == 10
    assert told["sbp_client_append_seconds_count", "c", ""] == took.count
    assert told["sbp_client_append_seconds_sum", "c", ""] == took.sum
    bounds = [bound for bound, _ in took.buckets]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (0.00005, math.inf)
    of_registry = {
        float(le): count for (sample, _, le), count in told.items() if sample == "sbp_client_append_seconds_bucket"
    }
    assert of_registry == dict(took.buckets)
    counts = [count for _, count in took.buckets]
    assert counts == sorted(counts)
    assert counts[-1] == took.count


def test_an_append_is_timed_until_its_caller_has_it(server: sbp.Server, name: str) -> None:
    with sbp.Proxy(server.address) as proxy, sbp.connect(proxy.address) as client:
        stream = client.create_stream(name)
        before = client.metrics()["append_seconds"]
        began = time.perf_counter()
        with proxy.hold("answer") as held:
            operation = threading.Thread(target=stream.append, args=(b"x",))
            operation.start()
            held.wait()
            time.sleep(0.2)
        operation.join()
        passed = time.perf_counter() - began
        took = client.metrics()["append_seconds"].since(before)
    assert took.count == 1
    assert 0.2 <= took.sum <= passed
    half = took.quantile(0.5)
    assert half is not None
    assert 0.1 < half <= 0.25 or passed > 0.25


def test_an_append_that_is_refused_is_not_timed(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        stream = client.create_stream(name)
        with pytest.raises(sbp.PreconditionFailedError):
            stream.append(b"x", expected_offset=7)
        assert client.metrics()["append_seconds"].count == 0
        assert client.metrics()["append_seconds"].quantile(0.5) is None


def test_reads_and_tails_are_timed_apart(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client, sbp.connect(server.address) as other:
        stream = client.create_stream(name)
        stream.append(b"x")
        before = client.metrics()
        assert len(list(stream.read())) == 1
        read = client.metrics()
        assert read["fetch_seconds"].since(before["fetch_seconds"]).count >= 1
        assert read["fetch_wait_seconds"] == before["fetch_wait_seconds"]
        appended = threading.Timer(0.2, other.append, (name, b"y"))
        appended.start()
        batch = next(stream.tail(start=1))
        appended.join()
        assert batch.base_offset == 1
        waited = client.metrics()["fetch_wait_seconds"].since(read["fetch_wait_seconds"])
    assert waited.count >= 1
    assert 0.1 < waited.sum < 30


def test_what_a_writer_sends_is_timed(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        client.create_stream(name)
        with client.writer(name) as writer:
            for _ in range(3):
                writer.append(b"x")
                writer.flush()
        took = client.metrics()["append_seconds"]
    assert took.count == 3
    assert took.sum > 0


def test_calls_are_timed(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        client.create_stream(name)
        before, trips = client.metrics()["call_seconds"], client.stats()["round_trips"]
        client.stream(name).positions()
        client.ping()
        took = client.metrics()["call_seconds"].since(before)
        made = client.stats()["round_trips"] - trips
    assert took.count == made - 1 >= 1, "all but the ping"
    assert repr(took).startswith(f"<sbp_native.Histogram of {took.count} durations, ")
