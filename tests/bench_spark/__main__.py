"""Measures Spark's source and sink, each row beside its peer in turns. `python -m tests.bench_spark --help`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.bench import floors, native
from tests.bench_python.broker import kafka
from tests.bench_python.table import Row, save, show

from . import environment
from .page import markdown

ROOT = Path(__file__).parents[2]
REPORT = environment.PLACE / "report.json"
PAGE = environment.PLACE / "report.md"
#: Name of a part, and whether its peer is Kafka.
PARTS = {
    "imports": False,
    "many": False,
    "read": False,
    "typed": False,
    "spread": False,
    "write": False,
    "batches": False,
    "kafka-read": True,
    "kafka-typed": True,
    "kafka-write": True,
    "kafka-batches": True,
}
#: A part takes two minutes; one that takes ten has stopped.
_WITHIN = 600


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_spark", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each figure, in turns with its peer (default 5)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="records of 100 bytes (default 10 million)")
    parser.add_argument("--only", choices=PARTS, action="append", help="what to measure; may be given several times")
    return parser.parse_args()


def _measure(part: str, runs: int, rows: int) -> tuple[list[Row], int]:
    """One part in a process of its own, with a server of its own and, if it is about Kafka, a broker.

    Returns what it measured, which may be less than all if it failed, and how it ended.
    """
    peer = PARTS[part]
    environment.PLACE.mkdir(parents=True, exist_ok=True)
    python = environment.peer_python() if peer else Path(sys.executable)
    given: dict[str, object] = {"part": part, "runs": runs, "rows": rows}
    with contextlib.ExitStack() as stack:
        given["place"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="sbp-bench-spark-"))
        address, server = stack.enter_context(native.serve_process("none"))
        given |= {"address": address, "server": server.pid}
        if peer:
            given["class_path"] = environment.connector()
            broker, pid = stack.enter_context(kafka())
            given |= {"broker": broker, "broker_pid": pid}
        log = environment.PLACE / f"{part}.log"
        with log.open("w") as errors:
            done = subprocess.run(
                ["timeout", str(_WITHIN), str(python), "-m", "tests.bench_spark.measure", json.dumps(given)],
                cwd=ROOT,
                env=environment.variables(python, peer),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [Row(**json.loads(line)) for line in told], done.returncode


def main() -> None:
    """Measure what was asked for, show it, and keep it for the page."""
    # Servers and directories go with the process that made them, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _arguments()
    chosen = [part for part in PARTS if part in (arguments.only or PARTS)]
    console = Console(stderr=True)
    rows: list[Row] = []
    failed = []
    started = time.monotonic()
    for part in chosen:
        begun = time.monotonic()
        with console.status(f"measuring {part}"):
            measured, ended = _measure(part, arguments.runs, arguments.rows)
        rows += measured
        if ended:
            failed.append(part)
            console.print(f"{part} ended with {ended}, see {environment.PLACE / part}.log", markup=False)
        console.print(f"{part}: {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")
    conditions = (
        f"durability none, local[2], {arguments.rows:,} rows of 100 B, {arguments.runs} runs in turns after one to "
        f"warm up, {time.monotonic() - started:.0f} s in all; loopback: round trip "
        f"{floors.loopback_round_trip_us():.1f} us, stream {floors.loopback_stream_mb_s():,.0f} MB/s"
    )
    show(rows, "Spark")
    save(rows, REPORT)
    PAGE.write_text(markdown(rows, conditions))
    console.print(f"{conditions}\nas Markdown: {PAGE}", markup=False)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
