"""Figures of clients in a registry of ``prometheus_client``."""

from __future__ import annotations

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
            found[sample.name, sample.labels["client"], sample.labels.get("quantile", "")] = sample.value
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
        told = sum(len(family.samples) for family in families)
        assert told == len(COUNTERS) == len(client.stats())


@pytest.mark.asyncio
async def test_a_client_of_asyncio_is_told_too(server: sbp.Server) -> None:
    async with sbp.aio.connect(server.address) as client:
        await client.ping()
        registry = prometheus_client.CollectorRegistry()
        registry.register(ClientCollector(client, name="loop"))
        assert samples(registry)["sbp_client_connections_total", "loop", ""] == 1
