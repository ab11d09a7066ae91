"""``python -m tests.demo``: the pipeline on a year of flights, every figure checked; ``--selftest``: can it fail?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import pipeline, selftest

_OUTPUT = Path(__file__).resolve().parents[2] / "target"


def main() -> int:
    """Runs the demo or its self-test; 0 if every figure is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--selftest", action="store_true", help="show that the check fails on tampered events")
    arguments = parser.parse_args()
    try:
        if arguments.selftest:
            selftest.run(_OUTPUT / "demo-selftest")
        else:
            pipeline.Demo(_OUTPUT / "demo").run()
    except pipeline.Failure as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
