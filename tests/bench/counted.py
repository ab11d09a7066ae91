"""What metrics cost, in instructions of the server's process: valgrind counts them, whatever else the machine does."""

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
