"""Measures a cluster: what three copies cost beside one, how long appends stand still when a server is lost, and both
beside Kafka with three brokers (replication 3, `min.insync.replicas=2`, `acks=all`).

Everything is on this machine: three servers and an etcd, each a process of its own. Rows say which figure is wanted; a
figure is the median of its runs, with the lowest and the highest. Run it while the machine does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

import sbp_native as sbp
from tests.bench_python import ours
from tests.bench_python import peers as kafka_clients
from tests.bench_python.broker import brokers
from tests.bench_python.table import Row, alternate, collected, save, show
from tests.demo.replay import ONE, Copies
from tests.demo.servers import Servers

from . import peers, takeovers

REPORT = Path("target/bench-cluster/report.json")
_console = Console(stderr=True)
_names = itertools.count()


def _told(text: str) -> None:
    _console.print(f"  {text}", highlight=False)


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sbp-bench-cluster-") as place:
        yield Path(place)


@contextlib.contextmanager
def _servers(durability: str) -> Iterator[Servers]:
    with _place() as place, Servers(place, durability=durability) as servers:
        yield servers


def _takeovers(how: str, what: str, times: int, wanted: float, *, leads: bool = False) -> Iterator[Row]:
    with _place() as place:
        lost = takeovers.of_one_stream(place, times, how=how, told=_told, leads=leads)
    yield Row(f"{what}, {times} times", "s", lost.all, wanted=wanted, less_is_better=True)
    if lost.led and lost.followed:
        yield Row(f"of these, its process led too: {len(lost.led)}", "s", lost.led, less_is_better=True)


def _killed(given: argparse.Namespace) -> Iterator[Row]:
    yield from _takeovers("killed", "SIGKILL of the primary until the next append", given.takeovers, 1)


def _leader_killed(given: argparse.Namespace) -> Iterator[Row]:
    what = "the same, its process leads too"
    yield from _takeovers("killed", what, max(1, given.takeovers // 5), 1, leads=True)


def _stopped(given: argparse.Namespace) -> Iterator[Row]:
    yield from _takeovers("stopped", "the primary cut off silently (SIGSTOP)", max(1, given.takeovers // 5), 5)


def _killed_with_etcd(given: argparse.Namespace) -> Iterator[Row]:
    what = "SIGKILL of the primary and of etcd's leader"
    yield from _takeovers("killed with etcd", what, max(1, given.takeovers // 5), 5)


def _many(given: argparse.Namespace) -> Iterator[Row]:
    with _place() as place:
        taken, seconds = takeovers.of_many_ranges(place, given.ranges * 3, _told)
    yield Row(f"{taken:,} open ranges of a killed server taken over", "s", [seconds], wanted=10, less_is_better=True)


def _created(address: str, copies: Copies) -> str:
    name = f"bench/{next(_names)}"
    with sbp.connect(address) as client:
        client.create_stream(name, **copies.options())
    return name


def _produce(address: str, copies: Copies, rows: int) -> float:
    return ours.produce(address, f"bench/{next(_names)}", rows, **copies.options()) / 1e6


def _awaited_us(address: str, copies: Copies, calls: int) -> float:
    """Median microseconds of one append of 64 bytes that is awaited before the next one."""
    name = _created(address, copies)

    async def main() -> float:
        async with sbp.aio.connect(address) as client:
            stream = await client.stream(name)
            samples = []
            for _ in range(calls):
                started = time.perf_counter_ns()
                await stream.append(bytes(64))
                samples.append((time.perf_counter_ns() - started) / 1_000)
            return statistics.median(samples)

    return asyncio.run(main())


def _copies(given: argparse.Namespace) -> Iterator[Row]:
    for durability in ("none", "fsync"):
        with _servers(durability) as servers:
            produced = alternate(
                lambda at=servers.address: _produce(at, takeovers.COPIES, given.rows),
                lambda at=servers.address: _produce(at, ONE, given.rows),
                given.runs,
            )
            yield Row(f"{durability}: lists of 100 B", "M/s", *produced, "one copy", 0.3, of_ratio=True)
            single = alternate(
                lambda at=servers.address: _awaited_us(at, takeovers.COPIES, given.calls),
                lambda at=servers.address: _awaited_us(at, ONE, given.calls),
                given.runs,
            )
            name = f"{durability}: one awaited append, p50"
            yield Row(name, "us", *single, "one copy", 1 / 2.5, of_ratio=True, less_is_better=True)


def _kafka(given: argparse.Namespace) -> Iterator[Row]:
    with _servers("none") as servers, brokers(3) as three:
        theirs = ",".join(broker.address for broker in three)
        produced = alternate(
            lambda: _produce(servers.address, takeovers.COPIES, given.rows),
            lambda: kafka_clients.produce(theirs, f"produce-{next(_names)}", given.rows) / 1e6,
            given.runs,
        )
        yield Row("lists of 100 B, three copies, none", "M/s", *produced, "confluent", 4, of_ratio=True)
        single = alternate(
            lambda: _awaited_us(servers.address, takeovers.COPIES, given.calls),
            lambda: 1e6 / kafka_clients.awaited_sends(theirs, f"sends-{next(_names)}", 1, given.calls),
            given.runs,
        )
        name = "one awaited append, three copies, none"
        yield Row(name, "us", *single, "aiokafka", 4, of_ratio=True, less_is_better=True)
    with _place() as place:
        mine = takeovers.of_one_stream(place, given.runs, how="killed", told=_told).all
    with brokers(3) as three:
        beside = peers.of_one_partition(three, given.runs, _told)
    yield Row("without appends after SIGKILL", "s", mine, beside, "Kafka", 3, of_ratio=True, less_is_better=True)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "killed": _killed,
    "leader-killed": _leader_killed,
    "stopped": _stopped,
    "killed-with-etcd": _killed_with_etcd,
    "many": _many,
    "copies": _copies,
    "kafka": _kafka,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="what to measure; may be given several times")
    parser.add_argument("--runs", type=int, default=5, help="runs of each rate, in turns with its peer (default 5)")
    parser.add_argument(
        "--takeovers", type=int, default=50, help="SIGKILLs of a primary; of others a fifth (default 50)"
    )
    parser.add_argument("--ranges", type=int, default=10_000, help="open ranges of the server that is killed")
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of 100 bytes (default 1 million)")
    parser.add_argument("--calls", type=int, default=2_000, help="awaited appends of a run (default 2,000)")
    return parser.parse_args()


def main() -> int:
    """Measures what was asked for, shows it, and keeps it; 1 when something could not be measured."""
    given = _arguments()
    rows: list[Row] = []
    for name, measure in PARTS.items():
        if name not in (given.only or PARTS):
            continue
        begun = time.perf_counter()
        for row in collected(name, measure(given)):
            rows.append(row)
            # What was measured is kept, whatever comes next.
            save(rows, REPORT)
        _console.print(f"{name}: {time.perf_counter() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")
    show(rows, "a cluster of three")
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
