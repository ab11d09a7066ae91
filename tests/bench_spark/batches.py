"""How long a micro-batch takes, from source to sink, while a thousand rows a second come in."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import sbp_native as sbp
from tests.bench_python.table import Row

from .session import Bench, tell

_VALUE = bytes(range(100))
#: Of one run: batches that are not looked at, those that are, and how many of these will do once it took long.
_WARM, _COUNTED, _ENOUGH = 10, 30, 10
#: Seconds: when a run has taken long, and when it has failed. The first run of a session starts Spark's workers.
_LONG, _WITHIN = 8.0, 90.0
#: Where the time goes: the offsets, the plan, the tasks with the sink's commit, and Spark's own files.
_PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
_WHOLE, _CPU = "triggerExecution", "cpu"


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


def _batches_of(running: StreamingQuery) -> int:
    """How many batches the query has finished."""
    progress = running.lastProgress
    return 0 if progress is None else int(progress["batchId"]) + 1


def _counted(bench: Bench, running: StreamingQuery) -> float:
    """Waits until a run has the batches that are looked at; returns milliseconds of CPU for each of them.

    That is the CPU of everything: Spark, its workers, the servers, and who appends the rows.
    """
    started = time.monotonic()
    warm: tuple[int, float] | None = None
    while (elapsed := time.monotonic() - started) < _WITHIN and running.isActive:
        finished = _batches_of(running)
        if warm is None and finished >= _WARM:
            warm = finished, bench.cpu_seconds()
        if finished >= _WARM + (_COUNTED if elapsed < _LONG else _ENOUGH):
            break
        time.sleep(0.1)
    finished = _batches_of(running)
    if warm is None or finished < _WARM + _ENOUGH:
        raise RuntimeError(f"{finished} batches in {_WITHIN:.0f} s: {running.exception() or running.status}")
    return (bench.cpu_seconds() - warm[1]) / (finished - warm[0]) * 1_000


def _phases(bench: Bench, query: DataStreamWriter) -> dict[str, float]:
    """Medians over the batches of a run that had rows, in milliseconds: in all, of each phase, and the CPU."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as checkpoint:
        running = query.option("checkpointLocation", checkpoint).start()
        try:
            cpu = _counted(bench, running)
            durations = [batch["durationMs"] for batch in running.recentProgress if batch["numInputRows"]][_WARM:]
        finally:
            running.stop()
    medians = {name: statistics.median(each.get(name, 0) for each in durations) for name in (*_PHASES, _WHOLE)}
    return medians | {_CPU: cpu}


def _in_turns(bench: Bench, *queries: Callable[[], dict[str, float]]) -> list[list[dict[str, float]]]:
    """Each query once to warm up, then all of them in turns."""
    taken = [[query() for query in queries] for _ in range(bench.given.runs + 1)]
    return [list(runs) for runs in zip(*taken[1:], strict=True)]


def _of(phase: str, runs: list[dict[str, float]]) -> list[float]:
    return [run[phase] for run in runs]


def _tell_phases(ours: list[dict[str, float]], theirs: list[dict[str, float]], beside: str) -> None:
    """One row for each phase, one for what Spark counts to none, and one for the CPU."""
    for phase in _PHASES:
        row = Row(f"of a micro-batch: {phase}", "ms", _of(phase, ours), _of(phase, theirs), beside, less_is_better=True)
        tell(row)
    figures = (_rest(ours), _rest(theirs), beside)
    tell(Row("of a micro-batch: the rest", "ms", *figures, less_is_better=True))
    figures = (_of(_CPU, ours), _of(_CPU, theirs), beside)
    tell(Row("CPU of everything in a micro-batch", "ms", *figures, less_is_better=True))


def _rest(runs: list[dict[str, float]]) -> list[float]:
    return [run[_WHOLE] - sum(run[phase] for phase in _PHASES) for run in runs]


def _ours(bench: Bench, stream: str) -> dict[str, float]:
    source = bench.spark.readStream.format("sbp").option("servers", bench.given.address).load(stream)
    sink = source.select("value").writeStream.format("sbp").option("servers", bench.given.address)
    return _phases(bench, sink.option("stream", "out"))


def _fake(bench: Bench) -> dict[str, float]:
    return _phases(bench, bench.spark.readStream.format("fake").load().select("value").writeStream.format("fake"))


def batches(bench: Bench) -> None:
    """From the package's source to its sink, over a source and a sink that cost nothing."""
    with sbp.connect(bench.given.address) as client:
        source = client.create_stream("in")
        client.create_stream("out")
        # The rows come in beside all, so that all have what is left of the machine.
        with _fed(lambda values: void(source.append(values))):
            ours, fakes = _in_turns(bench, lambda: _ours(bench, "in"), lambda: _fake(bench))
    mine, theirs = _of(_WHOLE, ours), _of(_WHOLE, fakes)
    tell(Row("micro-batch, source to sink, exactly once", "ms", mine, theirs, "fakes", less_is_better=True))
    above = [our - fake for our, fake in zip(mine, theirs, strict=True)]
    tell(Row("micro-batch above the fakes'", "ms", above, [], "", 15, 5, less_is_better=True))
    _tell_phases(ours, fakes, "fakes")


def kafka_batches(bench: Bench) -> None:
    """Over Spark's Kafka source and sink."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bench.given.broker, "log_level": 0})

    def kafka() -> dict[str, float]:
        source = bench.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bench.given.broker)
        frame = source.option("subscribe", "in").load().select("value")
        sink = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bench.given.broker)
        return _phases(bench, sink.option("topic", "out"))

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
    figures = (_of(_WHOLE, ours), _of(_WHOLE, theirs), "Kafka")
    tell(Row("micro-batch, source to sink, median", "ms", *figures, **bounds, less_is_better=True))
    _tell_phases(ours, theirs, "Kafka")


def void(_: object) -> None:
    """Drops an outcome."""
