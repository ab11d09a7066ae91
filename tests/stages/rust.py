"""``python -m tests.stages.rust``: every Rust test of the workspace, with several test binaries at once.

`cargo test` runs one binary after the other, and much of what they do is waiting: for time limits, restarts, other
threads. Each is a process, so what one measures of itself is not disturbed by another; bounds on time have room.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .runner import ROOT, execute

_CARGO = ("cargo", "test", "--locked", "--quiet")

#: Binaries that take long, in the order in which they begin, so that none of them is left over at the end: one that
#: waits beside two that compute.
LONG = (
    "e2e/memory",
    "sbp-session/rules",
    "sbp-log/log",
    "world/search",
    "world/rules",
    "sbp-server",
    "e2e/client",
    "e2e/server",
    "sbp-cli/command",
    "e2e/exactly_once",
)

#: How many tests run at once in binaries whose tests wait for most of their time; elsewhere one for each core.
THREADS = {"e2e/client": 6, "e2e/server": 6, "sbp-cli/command": 6}


@dataclass(frozen=True)
class Binary:
    """A program with tests. Its name is that of its crate, and of the file in `tests` that it is made of."""

    name: str
    program: Path
    crate: Path


@dataclass(frozen=True)
class Ended:
    """How a binary's tests ended, and what it said."""

    binary: Binary
    status: int
    seconds: float
    processor: float  # seconds of the processor
    said: str


def main() -> int:
    """Builds and runs all tests; 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages.rust", description=__doc__)
    parser.add_argument("--at-once", type=int, default=3, help="how many binaries run at once (3)")
    return play([["--workspace"]], parser.parse_args().at_once)


def play(selections: Sequence[Sequence[str]], at_once: int = 3, *, examples: bool = True) -> int:
    """Builds and runs tests, selected in cargo's words, each list for itself, and the examples of documentation.

    Returns 1 if any failed.
    """
    ended = run(sorted((binary for words in selections for binary in built(words)), key=_place), at_once)
    slowest = sorted(ended, key=lambda one: -one.seconds)[:10]
    print(
        "slowest, and what of the processor they took: "
        + ", ".join(f"{one.binary.name} {one.seconds:.0f} s ({one.processor:.0f} s)" for one in slowest),
        flush=True,
    )
    failed = [one.binary.name for one in ended if one.status != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
        return 1
    for words in selections if examples else ():
        if status := subprocess.run([*_CARGO, "--doc", *words], cwd=ROOT, check=False).returncode:
            return status
    return 0


def _place(binary: Binary) -> tuple[int, str]:
    return (LONG.index(binary.name) if binary.name in LONG else len(LONG), binary.name)


def built(selection: Sequence[str]) -> Iterator[Binary]:
    """Builds the test binaries that are selected and says where each is."""
    command = [*_CARGO, *selection, "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            yield _binary(message)


def _binary(message: dict[str, object]) -> Binary:
    """The binary that a message of cargo is about."""
    crate = Path(str(message["manifest_path"])).parent
    target = message["target"]
    assert isinstance(target, dict)
    kind, name = target["kind"][0], target["name"]
    names = {"test": f"{crate.name}/{name}", "bin": f"{crate.name}/main"}
    return Binary(names.get(kind, crate.name), Path(str(message["executable"])), crate)


def run(binaries: Sequence[Binary], at_once: int) -> list[Ended]:
    """Runs binaries, so many at once; what a binary says is shown when it has ended, whole if it failed."""
    one_speaks = threading.Lock()

    def one(binary: Binary) -> Ended:
        ended = _run(binary)
        with one_speaks:
            print(f"{'ok' if ended.status == 0 else 'FAILED'}  {binary.name}  {ended.seconds:.1f} s", flush=True)
            if ended.status != 0:
                print(ended.said, flush=True)
        return ended

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, binaries))


def _run(binary: Binary) -> Ended:
    begun = time.monotonic()
    # Where cargo runs it, and what it tells it.
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(binary.crate)}
    if binary.name in THREADS:
        environment.setdefault("RUST_TEST_THREADS", str(THREADS[binary.name]))
    with tempfile.TemporaryFile() as output:
        status, processor = execute([str(binary.program)], environment, output, binary.crate)
        output.seek(0)
        said = output.read().decode(errors="replace")
    return Ended(binary, status, time.monotonic() - begun, processor, said)


if __name__ == "__main__":
    sys.exit(main())
