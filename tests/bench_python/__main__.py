"""Measures the Python client, beside floors and beside Kafka's clients. `python -m tests.bench_python --help`."""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.bench import floors, native

from . import ours, peers, pravega, rust, seastar, stock, tank
from .broker import kafka
from .paced import Latency
from .table import Row, Runs, alternate, collected, repeated, save, show

BUILDS = (
    "It runs with the wheel that is installed. Programs that are measured beside it are built by cargo in release mode "
    "when they are first needed: the service for `seastar` and the stock bridge for `stock`."
)
REPORT = Path("target/bench-python/report.json")
_names = itertools.count()


def _fresh(prefix: str) -> str:
    return f"{prefix}-{next(_names)}"


def _afresh(durability: str, measure: Callable[[str], float]) -> float:
    """One measurement against a server of its own: what it wrote is gone with it, and no later one pays for its way to
    the disk."""
    with native.serve(durability) as address:
        return measure(address)


def _awaited(runs: int) -> Iterator[Row]:
    with native.serve("none") as address:
        many, floor = [], []
        few = []
        for _ in range(runs):
            many.append(ours.awaited(address, 256, 200_000))
            floor.append(floors.event_loop_ops_s() / 1_000)
            few.append(ours.awaited(address, 16, 50_000))
    rates = [run.per_second / 1_000 for run in many]
    yield Row("await append(64 B), 256 in flight", "k/s", rates, floor, "asyncio's own futures", 400, 800)
    for name, taken, wanted, aim in (("16", few, 0.12, 0.07), ("256", many, 0.02, 0.005)):
        counts = [run.wakeups for run in taken]
        yield Row(f"loop wake-ups per append, {name} in flight", "", counts, [], "", wanted, aim, less_is_better=True)


def _stock(runs: int) -> Iterator[Row]:
    built = stock.module()
    with native.serve("none") as address:
        mine, theirs = alternate(
            lambda: ours.awaited(address, 256, 200_000).cpu_us,
            lambda: stock.awaited_cpu_us(built, address, 256, 50_000),
            runs,
        )
    name = "pyo3-async-runtimes"
    yield Row("CPU per awaited append", "us", mine, theirs, name, 10, 30, of_ratio=True, less_is_better=True)


def _blocking(runs: int) -> Iterator[Row]:
    with native.serve("none") as address:
        python, alone = alternate(lambda: ours.blocking_us(address)[1], lambda: rust.blocking_cpu_us(address), runs)
    above = Runs((mine - statistics.median(alone) for mine in python), python.failures)
    yield Row("CPU of a blocking append above Rust's", "us", above, alone, "Rust's", 8, 4, less_is_better=True)


def _lists(runs: int) -> Iterator[Row]:
    with native.serve("none") as address:
        costs = [ours.hand_over_ns(address, "lists") for _ in range(runs)]
    rows = [
        _afresh("none", lambda address: ours.produce_arrow(address, "tables", 5_000_000)) / 1e6 for _ in range(runs)
    ]
    name = "append(list[bytes]), per 100 B record, until handed over"
    yield Row(name, "ns", [own for own, _ in costs], [], "", 25, 12, less_is_better=True)
    yield Row("the same, with the I/O thread and its writes", "ns", [whole for _, whole in costs])
    floor = [floors.loopback_stream_mb_s() / len(native.ROW)]
    yield Row("append from an Arrow table, 100 B rows", "M/s", rows, floor, "loopback", 5, 10)


def _fetches(runs: int, rows: int) -> Iterator[Row]:
    with native.serve("none") as address:
        native.fill(address, "rows", rows)
        ours.fill_large(address, "large", 2 << 30)
        floor = [floors.loopback_stream_mb_s()]
        per_row = [floor[0] / len(native.ROW)]
        for how, name, wanted, aim in (
            ("arrow", "fetch to Arrow, 100 B rows", 10, 20),
            ("bytes", "fetch as list[bytes], 100 B", 6, 10),
            ("records", "fetch as Record objects, 100 B", 2, 4),
        ):
            taken = [ours.fetch(address, "rows", rows, how) / 1e6 for _ in range(runs)]
            yield Row(name, "M/s", taken, per_row, "loopback", wanted, aim)
        large = [ours.fetch_large(address, "large") for _ in range(runs)]
        yield Row("fetch 1 MiB batches", "GB/s", large, [floor[0] / 1_000], "loopback", 2.0, 3.0)


def _peers(runs: int, rows: int) -> Iterator[Row]:
    with native.serve("none") as mine, kafka() as (theirs, _pid):
        produced = alternate(
            lambda: _afresh("none", lambda address: ours.produce(address, "produce", rows)) / 1e6,
            lambda: peers.produce(theirs, _fresh("produce"), rows) / 1e6,
            runs,
        )
        yield Row("produce a list until acknowledged", "M/s", *produced, "confluent", 4, 6, of_ratio=True)
        for lists, what in ((False, "one by one"), (True, "as lists")):
            write = partial(ours.write, name="written", rows=rows, lists=lists)
            written = repeated(lambda write=write: _afresh("none", write) / 1e6, runs)
            yield Row(f"an idempotent writer, {what}", "M/s", written, produced[1], "confluent")
        called = partial(peers.produce, theirs, rows=rows, callback=True)
        with_callback = repeated(lambda: called(_fresh("called")) / 1e6, runs)
        yield Row("the same, its offsets told", "M/s", produced[0], with_callback, "confluent with a callback")
        native.fill(mine, "consume", rows)
        peers.produce(theirs, "consume", rows, keep=True)
        for how, wanted, aim in (("bytes", 3, 5), ("arrow", 6, 11)):
            consumed = alternate(
                partial(ours.fetch, mine, "consume", rows, how),
                partial(peers.consume, theirs, "consume", rows),
                runs,
            )
            yield Row(f"consume as {how}", "1/s", *consumed, "confluent, tuned", wanted, aim, of_ratio=True)
        defaults = repeated(partial(peers.consume, theirs, "consume", min(rows, 500_000), tuned=False), 1)
        yield Row("consume as arrow", "1/s", consumed[0], defaults, "confluent, defaults, 1 run")
        for in_flight, wanted, aim in ((16, 4, 6), (256, 4, 8)):
            sends = alternate(
                partial(ours.awaited_rate, mine, in_flight, 100_000),
                partial(peers.awaited_sends, theirs, "sends", in_flight, 60_000),
                runs,
            )
            name = f"awaited single sends, {in_flight} in flight"
            yield Row(name, "1/s", *sends, "aiokafka", wanted, aim, of_ratio=True)
        one = alternate(lambda: ours.blocking_us(mine)[0], lambda: peers.blocking_send_us(theirs, "one"), runs)
        yield Row("one blocking send", "us", *one, "confluent", 2, 3, of_ratio=True, less_is_better=True)
        yield from _latencies("end to end at 1,000/s", mine, theirs, runs, (2, 3), (2, 3))


def _durable_peers(runs: int, rows: int) -> Iterator[Row]:
    with native.serve("fsync") as mine, kafka(fsync=True) as (theirs, _pid):
        produced = alternate(
            lambda: _afresh("fsync", lambda address: ours.produce(address, "produce", rows)) / 1e6,
            lambda: peers.produce(theirs, _fresh("produce"), rows) / 1e6,
            runs,
        )
        yield Row("fsync: produce a list", "M/s", *produced, "confluent", 3, 5, of_ratio=True)
        single = alternate(
            lambda: 1e6 / ours.awaited(mine, 1, 2_000).per_second,
            lambda: 1e6 / peers.awaited_sends(theirs, "sends", 1, 2_000),
            runs,
        )
        name = "fsync: awaited single sends, 1 in flight"
        yield Row(name, "us", *single, "aiokafka", 2, 3, of_ratio=True, less_is_better=True)
        yield from _latencies("fsync: end to end at 1,000/s", mine, theirs, runs, (None, None), (10, 50))


def _tank(runs: int, rows: int) -> Iterator[Row]:
    rows -= rows % tank.BUNDLE
    with native.serve("none") as server, tank.broker() as broker:
        tank.fill(broker, server, "rows", rows)
        mine, beside = alternate(
            lambda: tank.fetch(broker, "rows", rows) / 1e6,
            lambda: ours.fetch(server, "rows", rows, "arrow") / 1e6,
            runs,
        )
        yield Row("TANK to Arrow, 100 B", "M/s", mine, beside, "native fetch", 0.4, 0.7, of_ratio=True)
        with tempfile.TemporaryDirectory() as place:
            session = tank.InSpark(place)
            session.rate("tank", "broker", broker, "rows", rows)
            session.rate("sbp", "servers", server, "rows", rows)
            mine, beside = alternate(
                lambda: session.rate("tank", "broker", broker, "rows", rows) / 1e6,
                lambda: session.rate("sbp", "servers", server, "rows", rows) / 1e6,
                runs,
            )
            session.stop()
        yield Row("TANK in Spark, 100 B", "M/s", mine, beside, 'format("sbp")', 0.5, 0.8, of_ratio=True)
        mine, reading, writing = Runs(), Runs(), Runs()
        for _ in range(runs):
            mine.take(lambda: tank.imported(broker, server, "rows", _fresh("imported"), rows) / 1e6)
            reading.take(lambda: tank.read(broker, "rows", rows) / 1e6)
            writing.take(lambda: ours.produce(server, _fresh("halves"), rows) / 1e6)
        name, half = min(
            ("reading alone", reading), ("appending alone", writing), key=lambda one: statistics.median(one[1])
        )
        yield Row("import of a TANK topic, 100 B", "M/s", mine, half, name, 0.6, 0.85, of_ratio=True)
    with tank.serve() as (server, address):
        mine, beside = alternate(
            lambda: tank.produce_prebuilt(address, _fresh("bundles"), 2 * rows) / 1e6,
            lambda: ours.produce(server, _fresh("native"), 2 * rows) / 1e6,
            runs,
        )
    yield Row("prebuilt bundles to our server, 100 B", "M/s", mine, beside, "native append", 0.4, 0.7, of_ratio=True)


def _seastar(runs: int) -> Iterator[Row]:
    with seastar.echo() as service, seastar.serve() as (server, address):
        mine, beside = alternate(
            lambda: seastar.called(service, 256, 100_000) / 1e3,
            lambda: ours.awaited(server, 256, 100_000).per_second / 1e3,
            runs,
        )
        name = "Seastar: awaited calls, 256 in flight"
        yield Row(name, "k/s", mine, beside, "await append(64 B)", 0.7, 1, of_ratio=True)
        mine, beside = alternate(
            lambda: seastar.appended(address, 256, 100_000) / 1e3,
            lambda: ours.awaited(server, 256, 100_000).per_second / 1e3,
            runs,
        )
        name = "Seastar: awaited appends by verb 1001, 64 B"
        yield Row(name, "k/s", mine, beside, "await append(64 B)", 0.4, 0.7, of_ratio=True)


def _pravega(runs: int, rows: int) -> Iterator[Row]:
    with pravega.serve() as (server, address):
        for in_flight, wanted, aim in ((1, None, None), (256, 4, 10)):
            mine, beside = alternate(
                partial(lambda count: pravega.awaited(address, _fresh("mine"), count, 400 * count) / 1e3, in_flight),
                partial(
                    lambda count: pravega.awaited_by_package(address, _fresh("beside"), min(count, 64), 2_000) / 1e3,
                    in_flight,
                ),
                runs,
            )
            name = f"Pravega: awaited events, {in_flight} in flight"
            yield Row(name, "k/s", mine, beside, "the package pravega", wanted, aim, of_ratio=True)
        mine, beside = alternate(
            lambda: pravega.written(address, _fresh("lists"), rows) / 1e6,
            lambda: ours.write(server, _fresh("native"), rows, lists=True) / 1e6,
            runs,
        )
        yield Row("Pravega: lists of events, 100 B", "M/s", mine, beside, "native writer", 0.3, 0.6, of_ratio=True)
        package = repeated(lambda: pravega.written_by_package(address, _fresh("one"), rows // 10) / 1e6, runs)
        yield Row("Pravega: events handed over, 100 B", "M/s", mine, package, "the package pravega")
        pravega.written(address, "rows", rows)
        native.fill(server, "rows", rows)
        mine, beside = alternate(
            lambda: pravega.fetch(address, "rows", rows) / 1e6,
            lambda: ours.fetch(server, "rows", rows, "arrow") / 1e6,
            runs,
        )
        yield Row("Pravega to Arrow, 100 B", "M/s", mine, beside, "native fetch", 0.3, 0.6, of_ratio=True)


def _latencies(
    name: str,
    mine: str,
    theirs: str,
    runs: int,
    median: tuple[float | None, float | None],
    tail: tuple[float | None, float | None],
) -> Iterator[Row]:
    # The tail of each run goes with its median: a run that fails has neither.
    tails = (Runs(), Runs())

    def halved(run: Latency, tail: Runs) -> float:
        tail.append(run.p99)
        return run.p50

    medians = alternate(
        lambda: halved(ours.end_to_end(mine), tails[0]),
        lambda: halved(peers.end_to_end(theirs, _fresh("paced")), tails[1]),
        runs,
    )
    for tail_of, median_of in zip(tails, medians, strict=True):
        tail_of.failures += median_of.failures
    for what, figures, (wanted, aim) in (("p50", medians, median), ("p99", tails, tail)):
        yield Row(f"{name}, {what}", "us", *figures, "confluent", wanted, aim, of_ratio=True, less_is_better=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_python", description=f"{__doc__} {BUILDS}")
    parser.add_argument("--runs", type=int, default=5, help="runs of each figure, in turns with its peer (default 5)")
    parser.add_argument("--rows", type=int, default=5_000_000, help="records of 100 bytes (default 5 million)")
    parser.add_argument("--only", choices=PARTS, action="append", help="what to measure; may be given several times")
    return parser.parse_args()


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "awaited": lambda given: _awaited(given.runs),
    "stock": lambda given: _stock(given.runs),
    "blocking": lambda given: _blocking(given.runs),
    "lists": lambda given: _lists(given.runs),
    "fetches": lambda given: _fetches(given.runs, given.rows),
    "tank": lambda given: _tank(given.runs, min(given.rows, 1_000_000)),
    "seastar": lambda given: _seastar(given.runs),
    "pravega": lambda given: _pravega(given.runs, min(given.rows, 1_000_000)),
    "peers": lambda given: _peers(given.runs, min(given.rows, 2_000_000)),
    "durable-peers": lambda given: _durable_peers(given.runs, min(given.rows, 1_000_000)),
}


def main() -> int:
    """Measure what was asked for, show it, and keep it for the page; 1 when something could not be measured."""
    arguments = _arguments()
    chosen = arguments.only or list(PARTS)
    rows: list[Row] = []
    console = Console(stderr=True)
    # Drawn between measurements: a thread that draws would take its part of them.
    with Progress(console=console, transient=True, auto_refresh=False) as progress:
        for name, measure in PARTS.items():
            if name not in chosen:
                continue
            task = progress.add_task(f"measuring {name}", total=None)
            begun = time.perf_counter()
            for row in collected(name, measure(arguments)):
                rows.append(row)
                # What was measured is kept, whatever comes next.
                save(rows, REPORT)
                progress.update(task, description=f"measuring {name}: {row.what}", refresh=True)
            progress.remove_task(task)
            progress.console.print(f"{name}: {time.perf_counter() - begun:.0f} s")
    show(rows, "the Python client")
    console.print(f"loopback round trip, 64 B, one in flight: {floors.loopback_round_trip_us():.1f} us")
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
