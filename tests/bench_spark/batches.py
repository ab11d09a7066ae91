"""How long a micro-batch takes, from source to sink, while a thousand rows a second come in."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql.streaming import DataStreamWriter

import sbp_native as sbp
from tests.bench_python.table import Row

from .session import Bench, tell

_VALUE = bytes(range(100))
#: Of one run: batches that are not looked at, and those that are.
_WARM, _COUNTED = 10, 50
_WITHIN = 90.0
_numbers = itertools.count()


@contextlib.contextmanager
def _fed(append: Callable[[list[bytes]], None]) -> Iterator[None]:
    """Hands over ten records every ten milliseconds until the block ends."""
    over = threading.Event()
    failures: list[BaseException] = []

    def feed() -> None:
        due = time.monotonic()
        try:
            while not over.wait(max(0.0, due - time.monotonic())):
                append([_VALUE] * 10)
                due += 0.01
        except BaseException as failure:  # told by the thread that waits
            failures.append(failure)

    feeder = threading.Thread(target=feed, name="feeder", daemon=True)
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join(timeout=30)
    if failures:
        raise failures[0]


def _median_ms(query: DataStreamWriter) -> float:
    """The middle duration of the batches of a run that had rows."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as checkpoint:
        running = query.option("checkpointLocation", checkpoint).start()
        try:
            deadline = time.monotonic() + _WITHIN
            while (running.lastProgress or {"batchId": 0})["batchId"] < _WARM + _COUNTED:
                if not running.isActive or time.monotonic() > deadline:
                    raise RuntimeError(f"the query made no progress: {running.exception() or running.status}")
                time.sleep(0.25)
            seen = [batch for batch in running.recentProgress if batch["numInputRows"]]
        finally:
            running.stop()
    return statistics.median(batch["durationMs"]["triggerExecution"] for batch in seen[_WARM:])


def _ours(bench: Bench, stream: str) -> float:
    source = bench.spark.readStream.format("sbp").option("servers", bench.given.address).load(stream)
    sink = source.select("value").writeStream.format("sbp").option("servers", bench.given.address)
    return _median_ms(sink.option("stream", "out"))


def _fake(bench: Bench) -> float:
    return _median_ms(bench.spark.readStream.format("fake").load().select("value").writeStream.format("fake"))


def batches(bench: Bench) -> None:
    """From the package's source to its sink, over a source and a sink that cost nothing."""
    with sbp.connect(bench.given.address) as client:
        source = client.create_stream("in")
        client.create_stream("out")
        ours, theirs = [], []
        # The rows come in beside both, so that both have what is left of the machine.
        with _fed(lambda values: void(source.append(values))):
            for run in range(bench.given.runs + 1):
                pair = (_ours(bench, "in"), _fake(bench))
                if run:
                    ours.append(pair[0])
                    theirs.append(pair[1])
    tell(Row("micro-batch, source to sink", "ms", ours, theirs, "fakes", less_is_better=True))
    above = [mine - fake for mine, fake in zip(ours, theirs, strict=True)]
    tell(Row("micro-batch above the fakes'", "ms", above, [], "", 15, 5, less_is_better=True))


def kafka_batches(bench: Bench) -> None:
    """Over Spark's Kafka source and sink."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bench.given.broker, "log_level": 0})

    def kafka() -> float:
        source = bench.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bench.given.broker)
        frame = source.option("subscribe", "in").load().select("value")
        sink = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bench.given.broker)
        return _median_ms(sink.option("topic", "out"))

    def produce(values: list[bytes]) -> None:
        for value in values:
            producer.produce("in", value)
        producer.poll(0)

    with sbp.connect(bench.given.address) as client:
        source = client.create_stream("in")
        client.create_stream("out")

        def both(values: list[bytes]) -> None:
            source.append(values)
            produce(values)

        ours, theirs = [], []
        with bench.topics("in", "out", partitions=1), _fed(both):
            for run in range(bench.given.runs + 1):
                pair = (_ours(bench, "in"), kafka())
                if run:
                    ours.append(pair[0])
                    theirs.append(pair[1])
        producer.flush(30)
    bounds = {"wanted": 1 / 1.1, "aim": 1 / 0.95, "of_ratio": True}
    tell(Row("micro-batch, source to sink, median", "ms", ours, theirs, "Kafka", **bounds, less_is_better=True))


def void(_: object) -> None:
    """Drops an outcome."""
