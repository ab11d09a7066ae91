"""What writing costs: beside a sink that drops everything, and beside Spark's sink for Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import sbp_native as sbp
from tests.bench_python.table import Row

from .session import Bench, Taken, tell

#: Larger batches for Spark's Kafka sink.
TUNED = {"kafka.linger.ms": 5, "kafka.batch.size": 1 << 20, "kafka.buffer.memory": 128 << 20}
_numbers = itertools.count()


def _rates(runs: list[Taken]) -> list[float]:
    return [run.rate for run in runs]


def _appended(bench: Bench, rows: int, **options: object) -> Callable[[], Taken]:
    """Writes the rows to a new stream, which is deleted again, so that the disk does not fill."""
    frame = bench.rows_file(rows)

    def run() -> Taken:
        name = f"written-{next(_numbers)}"
        with sbp.connect(bench.given.address) as client:
            client.create_stream(name)
            taken = bench.timed(rows, lambda: bench.write(frame, **options).save(name))
            positions = client.stream(name).positions()
            if positions.latest != rows:
                raise RuntimeError(f"{positions.latest} rows were stored, {rows} were written")
            client.delete_stream(name)
        return taken

    return run


def _transacted(bench: Bench, rows: int) -> Callable[[], Taken]:
    """The same, exactly once: each write is a version of its own."""

    def run() -> Taken:
        options = {"delivery": "exactly-once", "txnAppId": "bench", "txnVersion": next(_numbers)}
        return _appended(bench, rows, **options)()

    return run


def write(bench: Bench) -> None:
    """Rows of 100 bytes at least once, exactly once, and into nothing."""
    rows = bench.given.rows // 2
    frame = bench.rows_file(rows)

    def dropped() -> None:
        frame.write.format("fake").mode("append").save()

    once, exactly, nothing = bench.in_turns(
        _appended(bench, rows, delivery="at-least-once"),
        _transacted(bench, rows),
        lambda: bench.timed(rows, dropped),
    )
    name = "a sink that drops them"
    tell(Row("write 100 B, at least once", "M rows/s", _rates(once), _rates(nothing), name, 2.0, 2.4))
    name = "at least once"
    tell(Row("write 100 B, exactly once", "M rows/s", _rates(exactly), _rates(once), name, 0.85, 0.95, of_ratio=True))
    workers = ([run.worker_us for run in once], [run.worker_us for run in nothing])
    tell(Row("CPU in the worker, writing", "us/row", *workers, "a sink that drops them", less_is_better=True))


def kafka_write(bench: Bench) -> None:
    """Over Spark's Kafka sink with defaults and tuned; two partitions there, one stream here."""
    rows = bench.given.rows // 2
    frame = bench.rows_file(rows)

    def produced(**options: object) -> Callable[[], Taken]:
        def run() -> Taken:
            topic = f"written-{next(_numbers)}"
            with bench.topics(topic, partitions=2):
                return bench.timed(rows, lambda: bench.fill_kafka(frame, topic, **options))

        return run

    ours, defaults, tuned = bench.in_turns(_appended(bench, rows), produced(), produced(**TUNED))
    what = "write, 100 B"
    tell(Row(what, "M rows/s", _rates(ours), _rates(defaults), "Kafka, defaults", 2.5, 3.5, of_ratio=True))
    tell(Row(what, "M rows/s", _rates(ours), _rates(tuned), "Kafka, tuned"))
    cpu = ([run.cpu_us for run in ours], [run.cpu_us for run in defaults])
    tell(Row("CPU of Spark, workers and server, writing", "us/row", *cpu, "Kafka, defaults", less_is_better=True))
