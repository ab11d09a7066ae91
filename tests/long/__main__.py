"""Abuses a server in its own process, prints what it cost, and fails where it cost too much."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.report import machine

from . import dribble, floods, idle
from .server import Server, serve, serve_known, settle

MIB = 1 << 20
CUT_WITHIN = 2.0
#: Other protocols, and the options with which they are spoken.
LISTENERS = {"TANK": "--tank-listen", "Seastar RPC": "--seastar-listen", "Pravega": "--pravega-listen"}
#: Seconds within which every dribbler is closed. A client of TANK that has asked for nothing yet has 15 from when the
#: server has accepted it.
CLOSED_WITHIN = {"SBP": 15, "TANK": 16, "Seastar RPC": 15, "Pravega": 15}
PARTS = ("dribble", *(f"dribble {name}" for name in LISTENERS), "floods", "idle", "strangers", "strangers over TLS")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.long", description=__doc__)
    parser.add_argument("--binary", type=Path, default=Path("target/release/sbp"), help="the command to run")
    parser.add_argument("--connections", type=int, default=10_000, help="dribblers, and idle connections")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the dribblers go on")
    parser.add_argument("--only", choices=PARTS, action="append", help="what to run; may be given several times")
    return parser.parse_args()


class Verdicts:
    """A table of figures, each with what it has to be."""

    def __init__(self) -> None:
        self.table = Table(title=machine(), title_justify="left")
        for column in ("what", "figure", "wanted", ""):
            self.table.add_column(column)
        self.missed: list[str] = []

    def add(self, what: str, figure: str, wanted: str = "", good: bool = True) -> None:
        """A row; `good` says whether the figure is as wanted."""
        self.table.add_row(what, figure, wanted, "" if not wanted else "ok" if good else "[bold]missed[/]")
        if not good:
            self.missed.append(what)


def _dribble(server: Server, connections: int, seconds: float, verdicts: Verdicts, protocol: str = "SBP") -> None:
    run = dribble.run(server, connections, seconds, protocol)
    seen = run.dribbled
    name = f"{connections:,} dribblers{'' if protocol == 'SBP' else f' of {protocol}'}, {seconds:.0f} s"
    verdicts.add(f"{name}: opened, closed", f"{seen.opened:,}, {seen.closed:,}; {seen.most_open:,} open at once")
    longest, within = max(seen.longest, seen.unclosed), CLOSED_WITHIN[protocol]
    verdicts.add(
        f"{name}: closed after", f"{seen.typical:.1f} s, at most {longest:.1f} s", f"{within} s", longest <= within
    )
    peak = run.peak_bytes / MIB
    verdicts.add(f"{name}: memory", f"{peak:.0f} MiB, {run.idle_bytes / MIB:.0f} before", "300 MiB", peak < 300)
    verdicts.add(f"{name}: server's processor", f"{run.cpu_share:.2f} of a core")
    share = run.serving_share
    verdicts.add(f"{name}: of the thread that serves", f"{share:.3f} of a core", "0.010", share <= 0.010)
    before, during = run.before, run.during
    figure = f"{during.p99_us:,.0f} us, {before.p99_us:,.0f} before; p50 {during.p50_us:,.0f}, {before.p50_us:,.0f}"
    verdicts.add(f"{name}: a healthy client's p99", figure, "twice", during.p99_us <= 2 * before.p99_us)


def _floods(server: Server, verdicts: Verdicts) -> None:
    # Something to fetch, all of it in the server's memory.
    server.run("bench", "append", "--size", "16384", "--batch", "16", "--records", "12000", "--concurrency", "32")
    alone = server.latency(5)
    verdicts.add("a healthy client alone", f"p50 {alone.p50_us:,.0f} us, p99 {alone.p99_us:,.0f} us")
    _each_flood(server, floods.FLOODS, verdicts)


def _strangers(server: Server, connections: int, verdicts: Verdicts) -> None:
    kind = "strangers over TLS" if server.speaks_tls else "strangers"
    seen = idle.strangers(server, connections)
    name = f"{connections:,} silent {kind}"
    verdicts.add(f"{name}: open at once", f"{seen.open:,}", "1,024", seen.open <= 1024)
    each, passed = seen.each / 1024, seen.passed / MIB
    verdicts.add(f"{name}: memory of each", f"{each:.1f} KiB", "16 KiB", each <= 16)
    verdicts.add(f"{name}: memory after those pushed out", f"{passed:.1f} MiB more", "16 MiB more", passed <= 16)
    verdicts.add(f"{name}: gone after", f"{seen.gone:.1f} s", "12 s", seen.gone <= 12)
    alone = server.latency(5)
    verdicts.add("a known client alone", f"p50 {alone.p50_us:,.0f} us, p99 {alone.p99_us:,.0f} us")
    _each_flood(server, floods.STRANGERS, verdicts, f"{kind}: ")
    if server.speaks_tls:
        _each_flood(server, floods.HANDSHAKES, verdicts, f"{kind}: ")


def _each_flood(server: Server, kinds: dict[str, tuple[floods.Flood, bool]], verdicts: Verdicts, who: str = "") -> None:
    for kind in kinds:
        seen, name = floods.run(server, kind, kinds), f"{who}{kind}"
        figure = f"{seen.connections:,} connections, {seen.sent_bytes / MIB:,.0f} MiB, longest {seen.longest:.2f} s"
        in_time = seen.longest <= CUT_WITHIN or not seen.must_be_cut
        verdicts.add(f"{name}: cut", figure, f"{CUT_WITHIN} s" if seen.must_be_cut else "", in_time)
        grown = (seen.peak_bytes - seen.idle_bytes) / MIB
        figure = f"{seen.peak_bytes / MIB:.0f} MiB, {grown:.0f} more than before"
        verdicts.add(f"{name}: memory", figure, "200 MiB more", grown < 200)
        verdicts.add(f"{name}: a healthy client", f"p50 {seen.during.p50_us:,.0f} us, p99 {seen.during.p99_us:,.0f} us")


def _idle(server: Server, connections: int, verdicts: Verdicts) -> None:
    seen = idle.run(server, connections, rests=35)
    name = f"{connections:,} idle connections"
    for when, each in (("at once", seen.at_once), ("after 35 s", seen.later)):
        verdicts.add(f"{name}, {when}: memory of each", f"{each / 1024:.1f} KiB", "16 KiB", each <= 16 * 1024)


def main() -> int:
    """Runs the parts, one server for each."""
    arguments = _arguments()
    verdicts = Verdicts()
    room = ("--max-connections", "16000", "--max-connections-per-address", "16000")
    for part in arguments.only or PARTS:
        is_known, protocol = part.startswith("strangers"), part.removeprefix("dribble ")
        listening = (LISTENERS[protocol], "127.0.0.1:0") if protocol in LISTENERS else ()
        opened = (
            serve_known(arguments.binary, tls="TLS" in part) if is_known else serve(arguments.binary, *room, *listening)
        )
        with opened as server:
            match part:
                case "dribble":
                    _dribble(server, arguments.connections, arguments.seconds, verdicts)
                case _ if protocol in LISTENERS:
                    _dribble(server, arguments.connections, arguments.seconds, verdicts, protocol)
                case "floods":
                    _floods(server, verdicts)
                case "strangers" | "strangers over TLS":
                    _strangers(server, arguments.connections, verdicts)
                case _:
                    _idle(server, arguments.connections, verdicts)
            settle()
    Console(width=180).print(verdicts.table)
    return 1 if verdicts.missed else 0


if __name__ == "__main__":
    sys.exit(main())
