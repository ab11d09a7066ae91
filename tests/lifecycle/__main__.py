"""`python -m tests.lifecycle`: every cell many times over, two at once; a table of what was not well."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import sbp_native as sbp

from . import runner
from .cells import CELLS


def main() -> int:
    """Runs what was asked for; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lifecycle")
    parser.add_argument("--runs", type=int, default=200, help="how often each cell runs (200)")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once (2)")
    parser.add_argument("cells", nargs="*", metavar="CELL", help="these cells only")
    asked = parser.parse_args()
    names = asked.cells or list(CELLS)
    print(f"sbp_native {sbp.__version__}, CPython {platform.python_version()}, {asked.runs} runs of {len(names)} cells")
    failures = 0
    started = time.monotonic()
    with runner.server() as address, ThreadPoolExecutor(asked.jobs) as pool:
        for name in names:
            begun = time.monotonic()
            wrong = [w for w in pool.map(lambda _, name=name: runner.run(name, address), range(asked.runs)) if w]
            failures += len(wrong)
            hangs = sum(text.startswith("hangs") for text in wrong)
            signals = sum(text.startswith("signal") for text in wrong)
            seconds = time.monotonic() - begun
            print(
                f"{name:45} {asked.runs} runs, {hangs} hangs, {signals} signals, "
                f"{len(wrong) - hangs - signals} other, {seconds:.0f} s",
                flush=True,
            )
            for text in wrong[:1]:
                print(text, flush=True)
    print(f"{asked.runs * len(names)} runs in {time.monotonic() - started:.0f} s, {failures} not well")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
