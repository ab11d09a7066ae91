"""What TLS and metrics cost: each in turns with the same without them, in memory, so that no disk is measured."""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from . import native, protocol
from .report import Figure

MIB = 1 << 20
MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def _both_ways() -> Iterator[tuple[str, str, Path]]:
    """One server with two listeners: its plain address, the one with TLS, and the authority of its certificate."""
    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory)
        subprocess.run([protocol.SBP, "tls", "dev", directory], check=True, capture_output=True, timeout=60)
        plain = f"127.0.0.1:{free_port()}"
        tls = ("--tls-cert", str(files / "server.crt"), "--tls-key", str(files / "server.key"))
        with native.serve_process("none", MEMORY, options=(*tls, "--plain-listen", plain)) as (address, _child):
            yield plain, f"sbps://{address.removeprefix('sbps://')}", files / "ca.crt"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _beside(what: str, unit: str, other: str, pairs: list[tuple[float, float]]) -> list[Figure]:
    """Two figures of pairs that were measured in turns; what counts is the median of their ratios."""
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    ratios = [pair[1] / pair[0] for pair in pairs]
    note = f"ratio of pairs {statistics.median(ratios):.3f} ({min(ratios):.2f} - {max(ratios):.2f})"
    plain = Figure(what, unit, first, note="durability none, in memory")
    return [plain, Figure(f"the same, {other}", unit, second, unit, plain.median, note)]


def tls(runs: int) -> list[Figure]:
    """Appends and fetches over TLS beside the same over TCP."""
    small = ("--size", "64", "--concurrency", "256", "--api", "await", "--records", "600000")
    large = ("--size", str(MIB), "--concurrency", "8", "--api", "await", "--records", "192")

    def pair(turn: int, what: str, key: str, divisor: float, *arguments: str) -> tuple[float, float]:
        def measure(server: str, *options: str) -> float:
            return protocol.bench(what, server, *options, *arguments)[key] / divisor

        # The first of a pair pays for what the second finds done: each is the first in every other turn.
        late = measure(secure, "--tls-ca", str(authority)) if turn % 2 else None
        plain = measure(address)
        return plain, late or measure(secure, "--tls-ca", str(authority))

    with _both_ways() as (address, secure, authority):
        appends = [pair(turn, "append", "appends_per_s", 1e3, *small) for turn in range(runs)]
        found = _beside("64 B appends awaited, 256 in flight", "k/s", "TLS", appends)
    # A virtual machine may pay for each page that it touches first: few bytes, and new servers that use pages again.
    batches = []
    for turn in range(runs):
        with _both_ways() as (address, secure, authority):
            batches.append(pair(turn, "append", "MB_per_s", 1, *large))
    found += _beside("1 MiB appends, 8 in flight", "MB/s", "TLS", batches)
    with _both_ways() as (address, secure, authority):
        protocol.bench("append", address, *large)
        fetches = [pair(turn, "fetch", "MB_per_s", 1) for turn in range(runs)]
        found += _beside("1 MiB batches fetched", "MB/s", "TLS", fetches)
    return found


def metrics(runs: int) -> list[Figure]:
    """A server that is scraped each second beside one without HTTP: rate, and CPU of the server's process."""
    appends = 600_000
    arguments = ("--size", "64", "--concurrency", "256", "--api", "await", "--records", str(appends))
    http = f"127.0.0.1:{free_port()}"

    def measure(server: str, pid: int) -> tuple[float, float]:
        before = protocol.cpu_seconds(pid)
        rate = protocol.bench("append", server, *arguments)["appends_per_s"] / 1e3
        return rate, (protocol.cpu_seconds(pid) - before) / appends * 1e6

    def scraped() -> tuple[float, float]:
        with _scrapes(http):
            return measure(observed, second.pid)

    pairs = []
    with (
        native.serve_process("none", MEMORY) as (plain, first),
        native.serve_process("none", MEMORY, options=("--http", http)) as (observed, second),
    ):
        for turn in range(runs):
            late = scraped() if turn % 2 else None
            without = measure(plain, first.pid)
            pairs.append((without, late or scraped()))
        before = protocol.cpu_seconds(second.pid)
        for _ in range(1_000):
            _scrape(http)
        scrape = [(protocol.cpu_seconds(second.pid) - before) * 1e3]
    rates = [(without[0], with_http[0]) for without, with_http in pairs]
    costs = [(without[1], with_http[1]) for without, with_http in pairs]
    found = _beside("64 B appends awaited, 256 in flight", "k/s", "--http, scraped each second", rates)
    found += _beside("the server's CPU for one of them", "us", "--http, scraped each second", costs)
    return [*found, Figure("the server's CPU for a scrape", "us", scrape, note="the mean of 1,000")]


def _scrape(http: str) -> None:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        answer.read()


@contextlib.contextmanager
def _scrapes(http: str) -> Iterator[None]:
    """Asks for the metrics once a second, as Prometheus would at its most frequent."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1):
            _scrape(http)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=30)
