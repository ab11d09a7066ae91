"""The figures of clients as metrics for Prometheus, by ``prometheus_client``, which ``sbp-native[prometheus]`` brings.

    import prometheus_client
    from sbp_native.metrics import ClientCollector

    with sbp_native.connect() as client:
        prometheus_client.REGISTRY.register(ClientCollector(client, name="billing"))

Servers have metrics of their own: ``sbp serve --http``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from ._native import Histogram

__all__ = ["BrokerCollector", "ClientCollector"]


class _Counting(Protocol):
    def stats(self) -> dict[str, float]: ...
    def metrics(self) -> dict[str, Histogram]: ...


class _Reading(Protocol):
    def stats(self) -> dict[str, int]: ...


#: What ``stats()`` calls it, the metric, and what it is. Counters since the client was made.
_COUNTERS = (
    ("calls", "calls", "Calls sent"),
    ("answers", "answers", "Answers received"),
    ("bytes_out", "sent_bytes", "Bytes sent"),
    ("bytes_in", "received_bytes", "Bytes received"),
    ("bytes_copied", "copied_bytes", "Received bytes that had to be copied"),
    ("connections", "connections", "Connections made"),
    ("reads", "reads", "System calls that read"),
    ("writes", "writes", "System calls that wrote"),
    ("io_wakeups", "io_wakeups", "Wake-ups of the tasks of connections"),
    ("round_trips", "round_trips", "Round trips measured"),
)
#: As they are now.
_GAUGES = (
    ("in_flight", "in_flight_calls", "Calls that are started and not over"),
    ("bytes_in_flight", "in_flight_bytes", "Bytes of calls that are started and not over"),
    ("bytes_pinned", "pinned_bytes", "Received bytes that views keep in memory"),
)
#: What ``metrics()`` tells under these names.
_HISTOGRAMS = (
    ("append_seconds", "Appends that were stored, from when the client was given them to their outcome"),
    ("fetch_seconds", "FETCHes that do not wait for data, from their send to the end of the answer"),
    ("fetch_wait_seconds", "FETCHes that may wait for data, the waiting included"),
    ("call_seconds", "Other requests, from their send to the end of the answer"),
)
#: What ``stats()`` of a broker calls it, the metric, and what it is.
_OF_BROKERS = (
    ("messages", "messages", "Messages read"),
    ("skipped", "skipped_numbers", "Numbers that no message has any more, in front of messages that were read"),
    ("lost", "lost_messages", "Messages that were gone before they were read"),
)
_QUANTILES = (("0.5", "rtt_p50"), ("0.9", "rtt_p90"), ("0.99", "rtt_p99"), ("1", "rtt_max"))


def _bound(seconds: float) -> str:
    """A bound of a bucket as Prometheus writes it."""
    return "+Inf" if seconds == float("inf") else str(seconds)


class ClientCollector:
    """A collector for a registry of ``prometheus_client``: what :meth:`~sbp_native.Client.metrics` and
    :meth:`~sbp_native.Client.stats` tell, asked at every scrape. The client may be a blocking one or one of asyncio.

    Histograms ``sbp_client_append_seconds``, ``fetch_seconds``, ``fetch_wait_seconds`` and ``call_seconds``.

    Counters ``sbp_client_calls_total``, ``answers``, ``sent_bytes``, ``received_bytes``, ``copied_bytes``,
    ``connections``, ``reads``, ``writes``, ``io_wakeups``, ``round_trips``; gauges ``sbp_client_in_flight_calls``,
    ``in_flight_bytes``, ``pinned_bytes`` and ``sbp_client_round_trip_seconds`` with the label ``quantile``. All have
    the label ``client``.
    """

    def __init__(self, client: _Counting, *, name: str = "") -> None:
        """``name`` is the label ``client``: clients in one registry need different ones."""
        self._client = client
        self._name = name

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now; what a registry calls."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        stats, histograms = self._client.stats(), self._client.metrics()
        labels = [self._name]
        for key, text in _HISTOGRAMS:
            took = histograms[key]
            buckets = [(_bound(bound), count) for bound, count in took.buckets]
            family = HistogramMetricFamily(f"sbp_client_{key}", text, labels=["client"])
            family.add_metric(labels, buckets, took.sum)
            yield family
        for key, name, text in _COUNTERS:
            counter = CounterMetricFamily(f"sbp_client_{name}", text, labels=["client"])
            counter.add_metric(labels, stats[key])
            yield counter
        for key, name, text in _GAUGES:
            gauge = GaugeMetricFamily(f"sbp_client_{name}", text, labels=["client"])
            gauge.add_metric(labels, stats[key])
            yield gauge
        text = "Round trips: the time that this share of them did not exceed"
        trips = GaugeMetricFamily("sbp_client_round_trip_seconds", text, labels=["client", "quantile"])
        for quantile, key in _QUANTILES:
            trips.add_metric([self._name, quantile], stats[key])
        yield trips

    def describe(self) -> Iterator[Metric]:
        """Nothing: so a registry does not ask the client when this is registered."""
        return iter(())


class BrokerCollector:
    """A collector for a registry of ``prometheus_client``: what :meth:`~sbp_native.tank.Broker.stats` tells, asked at
    every scrape.

    Counters ``sbp_tank_messages_total``, ``sbp_tank_skipped_numbers_total`` and ``sbp_tank_lost_messages_total`` with
    the label ``client``.
    """

    def __init__(self, broker: _Reading, *, name: str = "") -> None:
        """``name`` is the label ``client``: brokers in one registry need different ones."""
        self._broker = broker
        self._name = name

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now; what a registry calls."""
        from prometheus_client.core import CounterMetricFamily

        stats = self._broker.stats()
        for key, name, text in _OF_BROKERS:
            counter = CounterMetricFamily(f"sbp_tank_{name}", text, labels=["client"])
            counter.add_metric([self._name], stats[key])
            yield counter

    def describe(self) -> Iterator[Metric]:
        """Nothing: so a registry does not ask the broker when this is registered."""
        return iter(())
