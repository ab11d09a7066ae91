"""`python -m tests.stages`, which CI is run by: what it runs, what it makes of failures, and what its table says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stages import __main__ as command
from stages import changed, plan, runner, rust
from stages.runner import Outcome, Stage

ROOT = Path(__file__).resolve().parents[2]


def script(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


GOOD = Stage("good", (script("pass"),))
BAD = Stage("bad", (script("raise SystemExit(3)"), script("print('never')")))


def run(*steps: Stage | tuple[Stage, ...], go_on: bool = False) -> tuple[list[Outcome], str]:
    said: list[str] = []
    outcomes = runner.run(steps, go_on=go_on, say=said.append)
    return outcomes, "\n".join(said)


def test_stages_run_in_order_and_tell_their_times() -> None:
    outcomes, said = run(GOOD, Stage("other", (script("pass"),)))
    assert [(outcome.stage.name, outcome.result) for outcome in outcomes] == [("good", "passed"), ("other", "passed")]
    assert re.findall(r"^== (\w+): passed after 0:0\d$", said, re.MULTILINE) == ["good", "other"]


def test_nothing_runs_behind_a_failure() -> None:
    outcomes, said = run(BAD, GOOD, (GOOD, GOOD))
    assert [outcome.result for outcome in outcomes] == ["failed (3)", "not run", "not run", "not run"]
    assert "never" not in said
    assert "all    failed" in runner.table(outcomes, 1.0)


def test_it_goes_on_behind_a_failure_if_told_to() -> None:
    outcomes, _ = run(BAD, GOOD, go_on=True)
    assert [outcome.result for outcome in outcomes] == ["failed (3)", "passed"]


def test_a_signal_and_a_missing_program_are_failures() -> None:
    killed = Stage("killed", (script("import os; os.kill(os.getpid(), 9)"),))
    missing = Stage("missing", ("no-such-program-anywhere",))
    outcomes, _ = run(killed, missing, go_on=True)
    assert [outcome.result for outcome in outcomes] == ["killed by signal 9", "failed (127)"]


def test_stages_side_by_side_run_at_once_and_are_not_mixed(tmp_path: Path) -> None:
    # Each waits until the other has begun: one after the other, they would never end.
    code = (
        "import pathlib, sys, time; mine, other = map(pathlib.Path, sys.argv[1:]); mine.touch(); print(mine.name, 1)\n"
        "while not other.exists(): time.sleep(0.001)\n"
        "print(mine.name, 2)"
    )
    (tmp_path / "meet.py").write_text(code)
    one, two = tmp_path / "one", tmp_path / "two"
    meet = f"{sys.executable} -u {tmp_path / 'meet.py'}"
    outcomes, said = run((Stage("one", (f"{meet} {one} {two}",)), Stage("two", (f"{meet} {two} {one}",))), GOOD)
    assert [outcome.result for outcome in outcomes] == ["passed"] * 3
    assert "one 1\none 2\n== one: passed" in said
    assert "two 1\ntwo 2\n== two: passed" in said


def test_one_of_two_side_by_side_fails() -> None:
    outcomes, said = run((GOOD, BAD), GOOD)
    assert [outcome.result for outcome in outcomes] == ["passed", "failed (3)", "not run"]
    assert "== bad: failed (3)" in said


def test_what_tells_more_is_shown_below_a_failure(tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("a thread waited for the disk")
    _, said = run(
        Stage("bad", BAD.commands, shows=str(more)), Stage("good", GOOD.commands, shows=str(more)), go_on=True
    )
    assert said.count("a thread waited for the disk") == 1


def test_a_share_of_the_runs_is_at_least_one(capfd: pytest.CaptureFixture[str]) -> None:
    stage = Stage("runs", (script("import os; print('{runs}', os.environ['TIMES'])"),), {"TIMES": "{runs}"}, 200)
    steps = runner.shortened([stage, (stage, GOOD)], 0.01)
    assert [step.runs for step in runner.flat(steps)] == [2, 2, None]
    outcomes, _ = run(steps[0])
    assert capfd.readouterr().out == "2 2\n"
    assert [step.runs for step in runner.flat(runner.shortened([stage], 0.0001))] == [1]
    rows = runner.table([*outcomes, Outcome(GOOD, None)], 61.0).splitlines()
    assert rows[1].split() == ["stage", "runs", "result", "time", "processor"]
    assert rows[3].split()[:3] == ["runs", "2", "passed"]
    assert rows[-1].split()[:3] == ["all", "failed", "1:01"]


def test_the_processors_seconds_are_those_of_the_stage() -> None:
    busy = Stage("busy", (script("import time\nwhile time.process_time() < 0.3: pass"),))
    idle = Stage("idle", (script("import time; time.sleep(0.3)"),))
    (first, second), _ = run(busy, idle)
    assert first.processor >= 0.3
    assert second.processor < 0.3 <= second.seconds


def test_the_command_ends_with_the_table_and_the_right_status() -> None:
    def ends(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.stages", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)

    unknown = ends("no such stage")
    assert unknown.returncode == 2
    assert "no such stage" in unknown.stderr
    assert "Python tests" in ends("--list").stdout


def test_the_commands_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(plan.PLANS, "test", (GOOD,))
    monkeypatch.setitem(plan.PLANS, "long", (BAD, GOOD))
    assert command.main([]) == 0
    assert command.main(["--go-on", "long"]) == 1
    table = capsys.readouterr().out.rstrip().splitlines()[-7:]
    assert [table[row].split()[:2] for row in (1, 3, 6)] == [["stage", "result"], ["bad", "failed"], ["all", "failed"]]


def test_stages_have_names_of_their_own() -> None:
    for steps in plan.PLANS.values():
        names = [stage.name for stage in runner.flat(steps)]
        assert len(names) == len(set(names))
    everything = [stage for steps in plan.PLANS.values() for stage in runner.flat(steps)]
    assert all(plan.stages()[stage.name] == stage for stage in everything)


def test_everything_that_is_checked_is_also_run_by_ci() -> None:
    run_by_ci = {stage.name for stage in runner.flat(plan.TEST)}
    assert {stage.name for stage in runner.flat(plan.CHECK)} <= run_by_ci
    assert (ROOT / ".ci" / "run").read_text().endswith("exec make test\n")


CRATES = {
    "types": changed.Crate("crates/types", ()),
    "log": changed.Crate("crates/log", ("types",)),
    "server": changed.Crate("crates/server", ("log",)),
    "log-tools": changed.Crate("crates/log-tools", ()),
    "e2e": changed.Crate("tests/e2e", ("server",), {"server": ["server"], "logs": ["log", "log-tools"]}),
}


@pytest.mark.parametrize(
    ("files", "crates"),
    [
        (["docs/index.md", "tests/demo/chart.py"], set()),
        (["crates/log/src/lib.rs", "crates/log/README.md"], {"log"}),
        (["crates/log-tools/tests/it.rs", "crates/types/Cargo.toml"], {"log-tools", "types"}),
        (["Cargo.lock"], set(CRATES)),
    ],
)
def test_files_belong_to_crates(files: list[str], crates: set[str]) -> None:
    assert changed.crates_of(files, CRATES) == crates


@pytest.mark.parametrize(
    ("files", "binaries"),
    [
        (["docs/index.md", "crates/types/src/lib.rs"], []),
        (["crates/log/src/lib.rs"], ["logs"]),
        (["crates/server/src/lib.rs"], ["server"]),
        (["tests/e2e/logs/slow.rs"], ["logs"]),
        (["tests/e2e/logs/slow.rs", "crates/server/src/lib.rs"], ["server", "logs"]),
        (["tests/e2e/src/wait.rs"], ["server", "logs"]),
        (["Cargo.lock"], ["server", "logs"]),
    ],
)
def test_changes_ask_for_the_binaries_that_test_them(files: list[str], binaries: list[str]) -> None:
    asked = changed.binaries_of(files, changed.crates_of(files, CRATES), CRATES)
    assert asked == ({"e2e": binaries} if binaries else {})


def test_cargo_is_asked_for_whole_crates_and_for_parts_of_those_that_are_tests() -> None:
    asked = changed.selections({"server", "log", "e2e"}, {"e2e": ["logs"]})
    assert asked == [["--package", "log", "--package", "server"], ["--package", "e2e", "--test", "logs"]]
    assert changed.selections({"types"}, {}) == [["--package", "types"]]


def test_the_crate_of_tests_names_binaries_that_it_has_and_crates_there_are() -> None:
    crates = changed.workspace()
    e2e = crates["sbp-e2e"]
    assert e2e.binaries
    for binary, tested in e2e.binaries.items():
        assert (ROOT / e2e.folder / binary / "main.rs").is_file()
        assert tested <= set(crates)


def test_who_uses_a_crate_is_found_through_others() -> None:
    assert changed.dependents(["types"], CRATES) == {"log", "server", "e2e"}
    assert changed.dependents(["server"], CRATES) == {"e2e"}


def message(kind: str, name: str, executable: str) -> dict[str, object]:
    manifest = str(ROOT / "crates" / "sbp-log" / "Cargo.toml")
    return {"manifest_path": manifest, "target": {"kind": [kind], "name": name}, "executable": executable}


def test_rust_binaries_are_named_after_their_crates_and_files() -> None:
    told = [message("test", "log", "/deps/log-1"), message("lib", "sbp_log", "/deps/sbp_log-2")]
    told.append(message("bin", "tool", "/deps/tool-3"))
    binaries = [rust._binary(one) for one in told]
    assert [binary.name for binary in binaries] == ["sbp-log/log", "sbp-log", "sbp-log/main"]
    assert {binary.crate for binary in binaries} == {ROOT / "crates" / "sbp-log"}


def test_names_of_rust_binaries_are_those_of_crates_and_files() -> None:
    folders = {crate.folder.name: crate for crate in changed.workspace().values()}
    for name in (*rust.LONG, *rust.THREADS):
        crate, _, binary = name.partition("/")
        places = [ROOT / folders[crate].folder / place / binary / "main.rs" for place in ("", "tests")]
        assert not binary or any(place.is_file() for place in places), name


def test_rust_binaries_that_wait_run_more_tests_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho ${RUST_TEST_THREADS:-none}\n")
    program.chmod(0o755)
    monkeypatch.delenv("RUST_TEST_THREADS", raising=False)
    monkeypatch.setattr(rust, "THREADS", {"e2e/slow": 7})

    def said(name: str) -> str:
        return rust._run(rust.Binary(name, program, tmp_path)).said

    assert (said("e2e/slow"), said("e2e/quick")) == ("7\n", "none\n")
    monkeypatch.setenv("RUST_TEST_THREADS", "1")
    assert said("e2e/slow") == "1\n"


def test_a_rust_binary_that_fails_is_told_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def binary(name: str, lines: str) -> rust.Binary:
        program = tmp_path / name.replace("/", "-")
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
        return rust.Binary(name, program, tmp_path)

    good = binary("a/good", "echo fine; test $CARGO_MANIFEST_DIR = $PWD")
    bad = binary("sbp-log/log", "echo left: 1, right: 2; exit 101")
    monkeypatch.setattr(rust, "built", lambda selection: iter([good, bad]))
    assert rust.play([[]], 1, examples=False) == 1
    said = capfd.readouterr().out
    assert re.findall(r"^(\w+)  (\S+)", said, re.MULTILINE)[:2] == [("FAILED", "sbp-log/log"), ("ok", "a/good")]
    assert "left: 1, right: 2" in said
    assert "fine" not in said
    assert said.endswith("failed: sbp-log/log\n")
    monkeypatch.setattr(rust, "built", lambda selection: iter([good]))
    assert rust.play([[]], 1, examples=False) == 0
