"""How long a micro-batch takes, from source to sink, while a thousand rows a second come in."""

from __future__ import annotations

import contextlib
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
#: Of one run: batches that are not looked at, those that are, and how many of these a run must have when time is up.
_WARM, _COUNTED, _ENOUGH = 10, 50, 10
_WITHIN = 120.0


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


def _phases(query: DataStreamWriter) -> dict[str, float]:
    """The middle duration of the batches of a run that had rows, in milliseconds: in all, and of each phase."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as checkpoint:
        running = query.option("checkpointLocation", checkpoint).start()
        try:
            deadline = time.monotonic() + _WITHIN
            while time.monotonic() < deadline and running.isActive:
                progress = running.lastProgress
                if progress is not None and progress["batchId"] >= _WARM + _COUNTED:
                    break
                time.sleep(0.25)
            seen = [batch for batch in running.recentProgress if batch["numInputRows"]][_WARM:]
            if len(seen) < _ENOUGH:
                raise RuntimeError(f"{len(seen)} batches in {_WITHIN:.0f} s: {running.exception() or running.status}")
        finally:
            running.stop()
    durations = [batch["durationMs"] for batch in seen]
    return {name: statistics.median(each.get(name, 0) for each in durations) for name in durations[0]}


def _in_turns(bench: Bench, *queries: Callable[[], dict[str, float]]) -> list[list[dict[str, float]]]:
    """Each query once to warm up, then all of them in turns."""
    taken = [[query() for query in queries] for _ in range(bench.given.runs + 1)]
    return [list(runs) for runs in zip(*taken[1:], strict=True)]


def _of(phase: str, runs: list[dict[str, float]]) -> list[float]:
    return [run.get(phase, 0.0) for run in runs]


def _tell_phases(ours: list[dict[str, float]], theirs: list[dict[str, float]], beside: str) -> None:
    """Where the time goes: the offsets, the plan, the tasks with the sink's commit, and Spark's own files."""
    for phase in ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets"):
        row = Row(f"of a micro-batch: {phase}", "ms", _of(phase, ours), _of(phase, theirs), beside, less_is_better=True)
        tell(row)


def _ours(bench: Bench, stream: str, **options: str) -> dict[str, float]:
    source = bench.spark.readStream.format("sbp").option("servers", bench.given.address).load(stream)
    sink = source.select("value").writeStream.format("sbp").option("servers", bench.given.address)
    return _phases(sink.option("stream", "out").options(**options))


def _fake(bench: Bench) -> dict[str, float]:
    return _phases(bench.spark.readStream.format("fake").load().select("value").writeStream.format("fake"))


def batches(bench: Bench) -> None:
    """From the package's source to its sink, over a source and a sink that cost nothing."""
    with sbp.connect(bench.given.address) as client:
        source = client.create_stream("in")
        client.create_stream("out")
        # The rows come in beside all, so that all have what is left of the machine.
        with _fed(lambda values: void(source.append(values))):
            exactly, least, fakes = _in_turns(
                bench,
                lambda: _ours(bench, "in"),
                lambda: _ours(bench, "in", delivery="at-least-once"),
                lambda: _fake(bench),
            )
    theirs = _of("triggerExecution", fakes)
    for what, runs, bounds in (("exactly once", exactly, (15, 5)), ("at least once", least, (None, None))):
        ours = _of("triggerExecution", runs)
        tell(Row(f"micro-batch, source to sink, {what}", "ms", ours, theirs, "fakes", less_is_better=True))
        above = [mine - fake for mine, fake in zip(ours, theirs, strict=True)]
        tell(Row(f"micro-batch above the fakes', {what}", "ms", above, [], "", *bounds, less_is_better=True))
    _tell_phases(exactly, fakes, "fakes")


def kafka_batches(bench: Bench) -> None:
    """Over Spark's Kafka source and sink."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bench.given.broker, "log_level": 0})

    def kafka() -> dict[str, float]:
        source = bench.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bench.given.broker)
        frame = source.option("subscribe", "in").load().select("value")
        sink = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bench.given.broker)
        return _phases(sink.option("topic", "out"))

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

        with bench.topics("in", "out", partitions=1), _fed(both):
            ours, theirs = _in_turns(bench, lambda: _ours(bench, "in"), kafka)
        producer.flush(30)
    bounds = {"wanted": 1 / 1.1, "aim": 1 / 0.95, "of_ratio": True}
    figures = (_of("triggerExecution", ours), _of("triggerExecution", theirs), "Kafka")
    tell(Row("micro-batch, source to sink, median", "ms", *figures, **bounds, less_is_better=True))
    _tell_phases(ours, theirs, "Kafka")


def void(_: object) -> None:
    """Drops an outcome."""
