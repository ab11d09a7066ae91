"""Lag, rates and losses of streaming queries, as log lines and as metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from .errors import DATA_LOSS
from .lag import QueryLag, lag_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)


class LagListener(StreamingQueryListener):
    """Tells how far each query is behind the streams that it reads.

    ```python
    listener = sbp_native.spark.LagListener()
    spark.streams.addListener(listener)
    print(listener.metrics())                            # text, as Prometheus reads it
    prometheus_client.REGISTRY.register(listener)        # or served with all else
    ```

    A line for each query is logged every `log_every` seconds, as the logger ``sbp_native.spark.listener``, and at once
    when records were lost. Metrics need ``prometheus_client``, which ``sbp-native[spark]`` brings. They name the
    `streams` that are farthest behind; sums are over all of them. The lag is that of the end of a batch; while a query
    is idle there is none.
    """

    def __init__(self, *, log_every: float = 60.0, streams: int = 1_000) -> None:
        self._log_every = log_every
        self._most = streams
        # Replaced as a whole, never changed: readers are in other threads.
        self._queries: dict[str, QueryLag] = {}
        self._logged: dict[str, float] = {}

    @property
    def queries(self) -> list[QueryLag]:
        """The queries that run, each as it was after its last batch."""
        return list(self._queries.values())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - the name is Spark's
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Takes in what Spark reports after each batch."""
        progress = json.loads(event.progress.json)
        before = self._queries.get(str(progress.get("id")))
        lag = lag_of(progress, before)
        if lag is None:
            return
        self._queries = {**self._queries, lag.id: lag}
        self._tell(lag, before)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """What was there when the query became idle has been read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forgets the query."""
        ended = str(event.id)
        self._queries = {query: lag for query, lag in self._queries.items() if query != ended}
        self._logged.pop(ended, None)

    def metrics(self) -> str:
        """All metrics as text, in the format that Prometheus reads. Needs ``prometheus_client``."""
        from prometheus_client import generate_latest

        text: bytes = generate_latest(self)
        return text.decode()

    def collect(self) -> Iterator[Metric]:
        """The same for a registry of ``prometheus_client``."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        queries = self.queries
        if not queries:
            return

        def each(kind: type[Metric], name: str, about: str, value: str) -> Metric:
            family = kind(name, about, labels=["query"])
            for lag in queries:
                family.add_metric([lag.name], getattr(lag, value))
            return family

        def by_stream(kind: type[Metric], name: str, about: str, value: str) -> Metric:
            family = kind(name, about, labels=["query", "stream", "stream_id"])
            for lag in queries:
                for stream in lag.farthest(self._most):
                    family.add_metric([lag.name, stream.name, str(stream.id)], getattr(stream, value))
            return family

        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        yield by_stream(gauge, "sbp_spark_lag_records", "Records of a stream that wait to be read.", "behind")
        yield by_stream(counter, "sbp_spark_lost_records", "Records gone before they were read.", "lost")
        yield each(gauge, "sbp_spark_query_lag_records", "Records of all streams that wait to be read.", "behind")
        yield each(counter, "sbp_spark_rows", "Records read.", "rows")
        yield each(gauge, "sbp_spark_rows_per_second", "Records that arrived, a second.", "rows_per_second")
        yield each(gauge, "sbp_spark_processed_rows_per_second", "Records read, a second.", "processed_per_second")
        yield each(gauge, "sbp_spark_batch_seconds", "What the last batch took.", "batch_seconds")

    def _tell(self, lag: QueryLag, before: QueryLag | None) -> None:
        names = {stream.id: stream.name for stream in lag.streams}
        lost = lag.new_gaps(before)
        if lost:
            told = ", ".join(f"stream {names.get(stream, '')} ({stream}) [{a}, {b})" for stream, a, b in lost[:20])
            _log.warning("[SBP-%d] query %s, batch %d: records were gone: %s", DATA_LOSS, lag.name, lag.batch, told)
        now = time.monotonic()
        if now - self._logged.get(lag.id, float("-inf")) < self._log_every:
            return
        self._logged[lag.id] = now
        behind = [stream for stream in lag.farthest(3) if stream.behind]
        most = ", ".join(f"{stream.name} ({stream.id}) {stream.behind:,}" for stream in behind)
        _log.info(
            "query %s, batch %d: %s records behind%s, %s rows/s, batch %.2f s, %s lost",
            lag.name,
            lag.batch,
            f"{lag.behind:,}",
            f", most: {most}" if most else "",
            f"{lag.processed_per_second:,.0f}",
            lag.batch_seconds,
            f"{lag.lost:,}",
        )
