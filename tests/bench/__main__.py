"""Measures, prints a table, and says the machine. `python -m tests.bench --help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress

from . import counted, floors, native, network, protocol, tenants
from .report import Figure, repeat, show

PARTS = (
    "append",
    "rust",
    "writer",
    "durable",
    "fetch",
    "streams",
    "hot",
    "tls",
    "metrics",
    "counted",
    "counting",
    "tenants",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each figure; the median is shown (default 5)")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of 100 bytes to fetch (default 20 million)")
    parser.add_argument("--only", choices=PARTS, action="append", help="what to measure; may be given several times")
    return parser.parse_args()


def _counts(rate: native.Rate, calls: int) -> str:
    per_call = {name: rate.counts.get(name, 0) / calls for name in ("writes", "reads", "wakeups", "io_wakeups")}
    return ", ".join(f"{name} {value:.4f}" for name, value in per_call.items()) + " per append"


def _appends(runs: int) -> Figure:
    calls = 200_000
    with native.serve("none") as address:
        rates = [native.awaited_appends(address, 64, 256, calls) for _ in range(runs)]
    floor = floors.event_loop_ops_s()
    note = "durability none; " + _counts(rates[-1], calls)
    runs_k = [rate.per_second / 1000 for rate in rates]
    return Figure("awaited appends, 64 B, 256 in flight", "k/s", runs_k, "event loop k/s", floor / 1000, note)


def _rust(runs: int) -> list[Figure]:
    rates = repeat(protocol.rust_appends, runs)
    floor = 1_000 / floors.loopback_round_trip_us()
    note = "durability none; server in the process"
    return [Figure("appends from Rust, 64 B, 256 in flight", "k/s", rates, "round trips one by one k/s", floor, note)]


def _writer(runs: int) -> list[Figure]:
    kinds = [
        ("64 B", ("--durability", "fsync"), "the server's default durability"),
        ("64 B", ("--durability", "none"), "durability none"),
        ("100 records of 64 B", ("--durability", "none", "--batch", "100"), "durability none"),
    ]
    return [figure for kind in kinds for figure in _writer_beside_plain(runs, *kind)]


def _writer_beside_plain(runs: int, what: str, options: tuple[str, ...], note: str) -> list[Figure]:
    # In turns, so that both meet the same machine.
    pairs = [(protocol.api_appends("await", *options), protocol.api_appends("writer", *options)) for _ in range(runs)]
    plain = Figure(f"plain appends from Rust, {what}, 64 in flight", "k/s", [pair[0] for pair in pairs], note=note)
    writer = [pair[1] for pair in pairs]
    return [plain, Figure("idempotent appends, the same", "k/s", writer, "plain k/s", plain.median, note)]


def _streams(runs: int) -> list[Figure]:
    def cost(streams: int) -> list[float]:
        return repeat(lambda: protocol.server_cpu_per_gb(streams), runs)

    one = Figure("server CPU, 16 KiB appends to 1 stream", "s/GB", cost(1))
    spread = [
        Figure(f"server CPU, 16 KiB appends over {count:,} streams", "s/GB", cost(count), "1 stream", one.median)
        for count in (100, 2_000)
    ]
    return [one, *spread]


def _hot(runs: int) -> list[Figure]:
    alone = Figure("append to tail, 1 stream", "ms", repeat(lambda: protocol.one_hot(1).median, runs))
    many = repeat(lambda: protocol.one_hot(1_000).median, runs)
    return [alone, Figure("append to tail, 1 hot of 1,000 streams", "ms", many, "1 stream ms", alone.median)]


def _durable(runs: int) -> Figure:
    size, calls = 64 << 10, 4_096
    with native.serve("fsync") as address:
        rates = [native.awaited_appends(address, size, 64, calls) for _ in range(runs)]
    floor = floors.fdatasync_mb_s()
    speeds = [rate.per_second * size / 1e6 for rate in rates]
    return Figure("awaited appends, 64 KiB, 64 in flight, fsync", "MB/s", speeds, "1 MiB fdatasync MB/s", floor)


def _fetch(runs: int, rows: int, progress: Progress) -> list[Figure]:
    with native.serve("none") as address:
        task = progress.add_task(f"filling {rows:,} rows", total=None)
        native.fill(address, "rows", rows)
        progress.remove_task(task)
        rates = [native.fetch_to_arrow(address, "rows", rows).per_second / 1e6 for _ in range(runs)]
    floor = floors.loopback_stream_mb_s() / len(native.ROW)
    return [Figure("fetch to Arrow, 100 B rows", "M rows/s", rates, "loopback M rows/s", floor)]


def main() -> None:
    """Run what was asked for."""
    arguments = _arguments()
    chosen = set(arguments.only or PARTS)
    figures: list[Figure] = []
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        parts: tuple[tuple[str, Callable[[], list[Figure]]], ...] = (
            ("append", lambda: [_appends(arguments.runs)]),
            ("rust", lambda: _rust(arguments.runs)),
            ("writer", lambda: _writer(arguments.runs)),
            ("durable", lambda: [_durable(arguments.runs)]),
            ("fetch", lambda: _fetch(arguments.runs, arguments.rows, progress)),
            ("streams", lambda: _streams(arguments.runs)),
            ("hot", lambda: _hot(arguments.runs)),
            ("tls", lambda: network.tls(arguments.runs)),
            ("metrics", lambda: network.metrics(arguments.runs)),
            ("counted", counted.metrics),
            ("counting", counted.counting),
            ("tenants", lambda: tenants.tenants(arguments.runs)),
        )
        for name, measure in parts:
            if name not in chosen:
                continue
            long = f", about {tenants.seconds(arguments.runs):.0f} s" if name == "tenants" else ""
            # Also where nobody sees the bar.
            console.print(f"measuring {name}{long}")
            task = progress.add_task(f"measuring {name}{long}", total=None)
            figures += measure()
            progress.remove_task(task)
    round_trip = floors.loopback_round_trip_us()
    show(figures)
    console.print(f"loopback round trip, 64 B, one in flight: {round_trip:.1f} us")


if __name__ == "__main__":
    main()
