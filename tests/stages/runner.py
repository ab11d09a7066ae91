"""Runs stages one after the other, or some side by side; tells how long each took, and ends with a table."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]

#: Where a stage writes what it says while another one runs beside it.
LOGS = ROOT / "target" / "stages"

#: The exit status that shells give to a command that cannot be run.
_NOT_FOUND = 127

#: What stands in commands and environments for the repository, and for the folder with the environment's programs.
PLACES = {"root": str(ROOT), "bin": str(ROOT / ".venv" / "bin")}


@dataclass(frozen=True)
class Stage:
    """Commands under one name, which are timed together. The first that fails ends the stage.

    What a long stage does again and again it does `runs` times: `{runs}` in its commands and its environment.
    """

    name: str
    commands: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: int | None = None
    shows: str | None = None  # a file that tells more, printed if the stage fails

    def shortened(self, share: float) -> Stage:
        """The same with a part of its runs, but at least one."""
        runs = self.runs and max(1, round(self.runs * share))
        return Stage(self.name, self.commands, self.environment, runs, self.shows)

    def words(self) -> list[list[str]]:
        """Its commands, ready to be run."""
        return [shlex.split(command.format(**PLACES, runs=self.runs)) for command in self.commands]

    def surroundings(self) -> dict[str, str]:
        """The environment variables that it runs with."""
        programs = os.pathsep.join((PLACES["bin"], os.environ.get("PATH", os.defpath)))
        own = {name: value.format(**PLACES, runs=self.runs) for name, value in self.environment.items()}
        # Hundreds of interpreters are started: without what is compiled kept, each takes half a second more to import.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return kept | {"PATH": programs} | own


#: Stages that run one after the other; those in a tuple run side by side.
Plan = Sequence[Stage | tuple[Stage, ...]]


def flat(plan: Plan) -> list[Stage]:
    """The stages of a plan, in order."""
    return [stage for step in plan for stage in (step if isinstance(step, tuple) else (step,))]


def shortened(plan: Plan, share: float) -> Plan:
    """The plan with a part of each stage's runs."""
    return [
        tuple(stage.shortened(share) for stage in step) if isinstance(step, tuple) else step.shortened(share)
        for step in plan
    ]


@dataclass(frozen=True)
class Outcome:
    """How a stage ended. `status` is that of the command that failed, 0 if all passed, None if it was not run."""

    stage: Stage
    status: int | None
    seconds: float = 0.0
    processor: float = 0.0  # seconds of the processor, of all processes that it waited for

    @property
    def result(self) -> str:
        """One word or two for the table."""
        if self.status is None:
            return "not run"
        if self.status < 0:
            return f"killed by signal {-self.status}"
        return f"failed ({self.status})" if self.status else "passed"


def run(plan: Plan, *, go_on: bool = False, say: Callable[[str], None] = print) -> list[Outcome]:
    """Runs a plan and returns how each stage ended, in order.

    Behind a stage that failed nothing is run, unless `go_on`.
    """
    outcomes: list[Outcome] = []
    for step in plan:
        stages = step if isinstance(step, tuple) else (step,)
        if any(outcome.status != 0 for outcome in outcomes) and not go_on:
            outcomes += [Outcome(stage, None) for stage in stages]
        elif len(stages) == 1:
            say(f"== {stages[0].name}")
            outcomes.append(_run(stages[0], None))
            _tell(outcomes[-1], say)
        else:
            outcomes += _side_by_side(stages, say)
    return outcomes


def _side_by_side(stages: tuple[Stage, ...], say: Callable[[str], None]) -> list[Outcome]:
    """Runs stages at once. What each says is shown when it has ended, so that nothing is mixed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    say(f"== {', '.join(stage.name for stage in stages)}, side by side")
    outcomes: dict[str, Outcome] = {}
    one_speaks = threading.Lock()

    def one(stage: Stage) -> None:
        log = LOGS / f"{stage.name.replace(' ', '-')}.log"
        with log.open("wb") as output:
            outcome = _run(stage, output)
        with one_speaks:
            outcomes[stage.name] = outcome
            say(f"== {stage.name}")
            say(log.read_text(errors="replace").rstrip("\n"))
            _tell(outcome, say)

    threads = [threading.Thread(target=one, args=(stage,)) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes[stage.name] for stage in stages]


def _run(stage: Stage, output: IO[bytes] | None) -> Outcome:
    """Runs a stage's commands, with what they say in a file or where ours goes."""
    begun = time.monotonic()
    processor = 0.0
    status = 0
    for words in stage.words():
        status, used = execute(words, stage.surroundings(), output)
        processor += used
        if status != 0:
            break
    return Outcome(stage, status, time.monotonic() - begun, processor)


def execute(
    words: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None, place: Path = ROOT
) -> tuple[int, float]:
    """Runs a command in a folder; returns its exit status, negative for a signal, and the processor's seconds."""
    errors = subprocess.STDOUT if output else None
    try:
        process = subprocess.Popen(words, cwd=place, env=environment, stdout=output, stderr=errors)
    except OSError as error:
        (output or sys.stdout.buffer).write(f"cannot run {words[0]}: {error.strerror}\n".encode())
        return _NOT_FOUND, 0.0
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def _tell(outcome: Outcome, say: Callable[[str], None]) -> None:
    """A line about a stage that has ended, and what tells more about a failure."""
    more = ROOT / outcome.stage.shows if outcome.stage.shows else None
    if outcome.status != 0 and more and more.is_file():
        say(more.read_text(errors="replace"))
    say(f"== {outcome.stage.name}: {outcome.result} after {clock(outcome.seconds)}")


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """What ran, how often, how it ended and how long it took; the last row is for all of it."""
    rows: list[tuple[str, ...]] = [("stage", "runs", "result", "time", "processor")]
    for outcome in outcomes:
        runs = f"{outcome.stage.runs:,}" if outcome.stage.runs else ""
        rows.append((outcome.stage.name, runs, outcome.result, clock(outcome.seconds), clock(outcome.processor)))
    passed = all(outcome.status == 0 for outcome in outcomes)
    used = sum(outcome.processor for outcome in outcomes)
    rows.append(("all", "", "passed" if passed else "failed", clock(seconds), clock(used)))
    if not any(outcome.stage.runs for outcome in outcomes):
        rows = [(name, *rest) for name, _, *rest in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "-" * max(map(len, lines))
    return "\n".join((rule, lines[0], rule, *lines[1:-1], rule, lines[-1]))
