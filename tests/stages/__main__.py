"""``python -m tests.stages test``: runs a plan or stages by their names, and ends with a table of what each took."""

from __future__ import annotations

import argparse
import sys
import time

from . import plan, runner


def main(words: list[str] | None = None) -> int:
    """Runs what was asked for; 0 if every stage passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages", description=__doc__)
    parser.add_argument("names", nargs="*", default=["test"], help="plans and stages; `--list` shows them")
    parser.add_argument("--list", action="store_true", help="show the plans, their stages and what these run")
    parser.add_argument("--go-on", action="store_true", help="run what is behind a stage that failed too")
    parser.add_argument("--share", type=float, default=1.0, help="the part of a stage's runs that is made (1.0)")
    asked = parser.parse_args(words)
    if asked.list:
        print(listing())
        return 0
    try:
        steps = [step for name in asked.names for step in plan.named(name)]
    except KeyError as unknown:
        parser.error(f"there is no plan and no stage named {unknown}")
    begun = time.monotonic()
    outcomes = runner.run(runner.shortened(steps, asked.share), go_on=asked.go_on)
    print(runner.table(outcomes, time.monotonic() - begun))
    return 0 if all(outcome.status == 0 for outcome in outcomes) else 1


def listing() -> str:
    """Every plan with its stages and their commands."""
    lines = []
    for name, steps in plan.PLANS.items():
        lines.append(name)
        for stage in runner.flat(steps):
            lines.append(f"  {stage.name}")
            lines += [f"    {command}" for command in stage.commands]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
