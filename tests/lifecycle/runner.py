"""Runs cells in processes of their own, and judges how they end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: How long a cell may take. A process that is not over by then hangs.
LIMIT = 90.0

_SERVER = (
    "import sys, sbp_native as sbp\n"
    "with sbp.Server(durability='none') as server:\n"
    "    print(server.address, flush=True)\n"
    "    sys.stdin.read()\n"
)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A server in a process of its own; its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(LIMIT)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run(name: str, address: str) -> str | None:
    """Runs a cell once; what was wrong, or nothing."""
    command = [sys.executable, "-X", "faulthandler", "-m", "lifecycle.cells", name, address]
    tests = str(Path(__file__).resolve().parents[1])
    search = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": search}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment, cwd="/"
        )
    except subprocess.TimeoutExpired as hang:
        return f"hangs\n{_text(hang.stdout)}{_text(hang.stderr)}"
    if done.returncode < 0:
        return f"signal {-done.returncode}\n{done.stdout}{done.stderr}"
    if done.returncode:
        return f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    if done.stderr:
        return f"wrote to its standard error\n{done.stderr}"
    # A cell that leaves by SystemExit says nothing.
    return None if done.stdout in ("ok\n", "") else f"printed {done.stdout!r}"


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
