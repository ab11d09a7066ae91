"""The Rust client of the same server, driven by the `sbp` command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def blocking_cpu_us(address: str) -> float:
    """CPU of the client's process, microseconds for each append of 64 bytes when they are sent one by one."""
    command = [str(Path(sys.executable).parent / "sbp"), "bench", "append", "--servers", address, "--json"]
    command += ["--seconds", "2", "--size", "64", "--concurrency", "1"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    return float(json.loads(output.strip().splitlines()[-1])["cpu_us_per_append"])
