"""Lag, rates and losses: what is made of Spark's progress reports, and what a real query's listener gets."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest

from sbp_native.spark import LagListener
from sbp_native.spark.lag import QueryLag, StreamLag, lag_of
from sbp_native.spark.offsets import WIDE, OffsetMap
from sbp_native.testing import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import sbp_native as sbp


def progress(end: dict[str, int], latest: dict[str, int], **more: Any) -> dict[str, Any]:
    """A report as Spark makes it, with what is not looked at left out."""
    report = {"v": 1, "o": latest, **{key: more.pop(key) for key in ("names", "lost", "gaps") if key in more}}
    source = {
        "description": "PythonMicroBatchStreamWithAdmissionControl@1f",
        "startOffset": None,
        "endOffset": {"v": 1, "o": end},
        "latestOffset": report,
        "numInputRows": 7,
        "inputRowsPerSecond": "NaN",
        "processedRowsPerSecond": 3.5,
    }
    about = {"id": "q", "runId": "r", "name": "orders to lake", "batchId": 4, "durationMs": {"triggerExecution": 250}}
    return {**about, "sources": [source], **more}


def report_to(listener: LagListener, given: dict[str, Any]) -> None:
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(given))))  # type: ignore[arg-type]


def test_lag_of_a_report() -> None:
    lag = lag_of(progress({"1": 5, "2": 9}, {"1": 8, "2": 9}, names={"1": "a"}, lost={"2": 4}, gaps=[[2, 1, 5]]))
    assert lag is not None
    assert lag.streams == (StreamLag(1, "a", 5, 8), StreamLag(2, "2", 9, 9, lost=4))
    assert (lag.behind, lag.lost, lag.rows, lag.gaps) == (3, 4, 7, ((2, 1, 5),))
    assert (lag.rows_per_second, lag.processed_per_second, lag.batch_seconds) == (0.0, 3.5, 0.25)
    later = lag_of(progress({"1": 8}, {"1": 8}), lag)
    assert later is not None
    assert later.rows == 14


def test_reports_of_others() -> None:
    assert lag_of({"id": "q", "sources": []}) is None
    assert (
        lag_of({"id": "q", "sources": [{"endOffset": {"topic": {"0": 5}}, "latestOffset": {"topic": {"0": 5}}}]})
        is None
    )
    assert lag_of({"id": "q", "sources": [{"endOffset": 7, "latestOffset": None}]}) is None


def test_very_many_streams() -> None:
    ends = dict.fromkeys(range(1, WIDE + 2), 5)
    given = progress({}, {})
    given["sources"][0]["endOffset"] = OffsetMap(ends).to_json()
    given["sources"][0]["latestOffset"] = {**OffsetMap({**ends, 7: 9}).to_json(), "lost": {"3": 1}}
    lag = lag_of(given)
    assert lag is not None
    assert (lag.behind, lag.lost, lag.farthest(1)) == (4, 1, [StreamLag(7, "7", 5, 9)])


def test_a_stream_that_was_not_met_yet_is_not_behind() -> None:
    lag = lag_of(progress({"1": 5}, {"1": 5, "2": 100}))
    assert lag is not None
    assert lag.behind == 0


def test_metrics_as_text() -> None:
    listener = LagListener()
    assert listener.metrics() == ""
    report_to(listener, progress({"1": 5}, {"1": 8}, names={"1": 'a"b'}, lost={"1": 2}, gaps=[[1, 0, 2]]))
    lines = listener.metrics().splitlines()
    assert 'sbp_spark_lag_records{query="orders to lake",stream="a\\"b",stream_id="1"} 3.0' in lines
    assert 'sbp_spark_lost_records_total{query="orders to lake",stream="a\\"b",stream_id="1"} 2.0' in lines
    assert 'sbp_spark_query_lag_records{query="orders to lake"} 3.0' in lines
    assert 'sbp_spark_batch_seconds{query="orders to lake"} 0.25' in lines
    assert "# TYPE sbp_spark_rows_total counter" in lines
    listener.onQueryTerminated(SimpleNamespace(id="q"))  # type: ignore[arg-type]
    assert listener.metrics() == ""


def test_metrics_of_the_farthest_alone() -> None:
    listener = LagListener(streams=2)
    report_to(listener, progress(dict.fromkeys("1234", 0), {"1": 1, "2": 4, "3": 3, "4": 0}))
    text = listener.metrics()
    assert [line for line in text.splitlines() if line.startswith("sbp_spark_lag_records")] == [
        'sbp_spark_lag_records{query="orders to lake",stream="2",stream_id="2"} 4.0',
        'sbp_spark_lag_records{query="orders to lake",stream="3",stream_id="3"} 3.0',
    ]
    assert 'sbp_spark_query_lag_records{query="orders to lake"} 8.0' in text, "sums are over all"


def test_the_registry_of_prometheus_client_says_the_same() -> None:
    """Its own parser reads our text, and its registry gives the same samples."""
    from prometheus_client.parser import text_string_to_metric_families

    listener = LagListener()
    registry = prometheus_client.CollectorRegistry()
    registry.register(listener)
    report_to(listener, progress({"1": 5, "2": 0}, {"1": 8, "2": 1}, names={"1": 'a"\\b'}, lost={"1": 2}))

    def samples(families: Any) -> set[tuple[str, str, str, float]]:
        return {
            (family.type, sample.name, str(sorted(sample.labels.items())), sample.value)
            for family in families
            for sample in family.samples
        }

    expected = samples(text_string_to_metric_families(listener.metrics()))
    assert len(expected) == 9
    assert samples(text_string_to_metric_families(prometheus_client.generate_latest(registry).decode())) == expected


def test_lines_are_logged_now_and_then_and_losses_at_once(caplog: pytest.LogCaptureFixture) -> None:
    listener = LagListener(log_every=3_600)
    with caplog.at_level(logging.INFO, logger="sbp_native.spark.listener"):
        report_to(listener, progress({"1": 5}, {"1": 8_005}, names={"1": "a"}))
        report_to(listener, progress({"1": 6}, {"1": 8_005}, names={"1": "a"}))
        for _ in range(2):
            report_to(listener, progress({"1": 20}, {"1": 20}, names={"1": "a"}, lost={"1": 4}, gaps=[[1, 6, 10]]))
    assert [record.getMessage() for record in caplog.records] == [
        "query orders to lake, batch 4: 8,000 records behind, most: a (1) 8,000, 4 rows/s, batch 0.25 s, 0 lost",
        "[SBP-9013] query orders to lake, batch 4: records were gone: stream a (1) [6, 10)",
    ]


class Remembering(LagListener):
    """Keeps what it knew after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[list[QueryLag], str]] = []

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - the name is Spark's
        super().onQueryProgress(event)
        self.told.append((self.queries, self.metrics()))


def test_a_real_query(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, checkpoint: str) -> None:
    """A query that is held to three records a batch, on a stream that loses some of them after the first."""
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)

    def lose(batch: DataFrame, number: int) -> None:
        assert batch.count() == 3
        if number == 0:
            stream.trim(7)

    listener = Remembering()
    spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format("sbp")
            .options(servers=server.address, startingOffsets=json.dumps({name: 2}))
            .options(maxOffsetsPerTrigger=3, failOnDataLoss="false", onDataLoss="warn")
            .load(name)
            .writeStream.foreachBatch(lose)
            .queryName(name)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        eventually(lambda: len(listener.told) >= 2 and not listener.queries)
    finally:
        spark.streams.removeListener(listener)
    (first, text), (second, _) = listener.told[:2]
    assert [lag.streams for lag in first] == [(StreamLag(stream.id, name, 5, 10),)]
    assert f'sbp_spark_lag_records{{query="{name}",stream="{name}",stream_id="{stream.id}"}} 5.0' in text.splitlines()
    assert [(lag.behind, lag.lost, lag.gaps) for lag in second] == [(0, 2, ((stream.id, 5, 7),))]
    assert (first[0].rows, second[0].rows) == (3, 6)
