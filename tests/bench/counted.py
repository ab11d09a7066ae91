"""What metrics cost, in instructions of a process: valgrind counts them, whatever else the machine does."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from . import protocol
from .network import MEMORY, free_port
from .report import Figure

APPENDS = 100_000
SCRAPES = 100
#: Appends a second beside which the cost of one scrape a second is told.
RATE = 100_000
#: The command with the names of its functions, which wheels have not.
NAMED = Path(__file__).resolve().parents[2] / "target" / "release" / "sbp"
#: What the server and the client do on the way of an append for their metrics alone.
SERVER = ("append::count_times", "observer::count_group")
CLIENT = ("appends::count_time",)


def _instructions(appends: int, scrapes: int) -> int:
    """Those of a server from its start to its end, with so much asked of it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        http = f"127.0.0.1:{free_port()}"
        listen = f"127.0.0.1:{free_port()}"
        log = Path(directory) / "log"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/out", f"--log-file={log}"]
        command += [sys.executable, protocol.SBP, "serve", "--data-dir", f"{directory}/data", "--listen", listen]
        command += ["--durability", "none", "--log", "off", "--http", http]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            if "listening on " not in child.stdout.readline():
                raise RuntimeError("sbp serve did not start under valgrind")
            if appends:
                arguments = ("--size", "64", "--concurrency", "256", "--api", "await", "--records", str(appends))
                protocol.bench("append", listen, *arguments)
            for _ in range(scrapes):
                with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
                    answer.read()
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=120)
        collected = re.search(r"Collected : (\d+)", log.read_text())
        if collected is None:
            raise RuntimeError("valgrind has counted nothing")
        return int(collected[1])


def metrics() -> list[Figure]:
    """One append of 64 B, one scrape, and what one scrape a second is of so many appends a second.

    Nothing where valgrind is not installed.
    """
    if shutil.which("valgrind") is None:
        return []
    append = (_instructions(2 * APPENDS, 0) - _instructions(APPENDS, 0)) / APPENDS
    scrape = (_instructions(0, 2 * SCRAPES) - _instructions(0, SCRAPES)) / SCRAPES
    share = scrape / (append * RATE) * 100
    return [
        Figure("instructions of the server for an append, 64 B, 256 in flight", "", [append], note="durability none"),
        Figure("instructions of the server for a scrape of /metrics", "", [scrape]),
        Figure(f"one scrape a second beside {RATE:,} appends a second", "%", [share], "wanted", 1.0),
    ]


def _counting(appends: int, tested: str) -> tuple[int, int]:
    """The instructions of the server's process or of the client's for so many appends, and those of counting."""
    functions = SERVER if tested == "server" else CLIENT
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        out = f"{directory}/out"
        listen = f"127.0.0.1:{free_port()}"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--log-file={directory}/log"]
        serve = [str(NAMED), "serve", "--data-dir", f"{directory}/data", "--listen", listen]
        serve += ["--durability", "none", "--log", "off"]
        bench = [str(NAMED), "bench", "append", "--servers", listen, "--json", "--size", "64", "--concurrency", "256"]
        bench += ["--api", "await", "--records", str(appends)]
        watched = (valgrind, []) if tested == "server" else ([], valgrind)
        child = subprocess.Popen([*watched[0], *serve], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            if "listening on " not in child.stdout.readline():
                raise RuntimeError("sbp serve did not start")
            subprocess.run([*watched[1], *bench], check=True, capture_output=True, timeout=600)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=120)
        annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", out]
        table = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
    total = re.search(r"([\d,]+) \([\d.]+%\)\s+PROGRAM TOTALS", table)
    found = [re.search(rf"([\d,]+) \([ \d.]+%\)\s+\S*{re.escape(name)}\b", table) for name in functions]
    if total is None or None in found:
        raise RuntimeError(f"callgrind_annotate names no {functions}")
    numbers = [int(match[1].replace(",", "")) for match in (total, *found) if match]
    return numbers[0], sum(numbers[1:])


def counting() -> list[Figure]:
    """What an append costs the server and the client, and how much of that is counting it and timing it.

    Nothing where valgrind is not installed, or without `cargo build --release --package sbp-cli`.
    """
    if shutil.which("valgrind") is None or not NAMED.exists():
        return []
    figures = []
    for tested in ("server", "client"):
        twice, once = _counting(2 * APPENDS, tested), _counting(APPENDS, tested)
        append, counted = ((twice[part] - once[part]) / APPENDS for part in (0, 1))
        what = f"instructions of the {tested} for an append, 64 B, 256 in flight"
        figures += [
            Figure(what, "", [append], note="durability none"),
            Figure("of which counting and timing it", "", [counted]),
            Figure("share", "%", [counted / append * 100], "wanted", 1.0),
        ]
    return figures
