"""``python -m tests.stages.changed``: tests the crates with files that differ from main, committed or not."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from . import rust
from .runner import ROOT

#: Files that mean every crate.
_FOR_ALL = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", "schemas/sbp.fbs")


def main() -> int:
    """Runs the Rust tests of the changed crates; 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages.changed", description=__doc__)
    parser.add_argument("--against", default="main", help="the branch or commit to compare with (main)")
    parser.add_argument("--dry-run", action="store_true", help="name the crates only")
    asked = parser.parse_args()
    crates = workspace()
    changed = crates_of(changed_files(asked.against), crates)
    untested = sorted(dependents(changed, crates) - changed)
    print(f"changed since {asked.against}: {', '.join(sorted(changed)) or 'no crate'}", flush=True)
    if untested:
        print(f"not tested here, though they use them: {', '.join(untested)}", flush=True)
    if asked.dry_run or not changed:
        return 0
    packages = [word for crate in sorted(changed) for word in ("--package", crate)]
    return rust.play(packages, examples=False)  # not each crate has a library, and cargo takes that for an error


class Crate:
    """A member of the workspace: where it is, and which members it uses."""

    def __init__(self, folder: str, uses: Iterable[str]) -> None:
        self.folder = PurePosixPath(folder)
        self.uses = frozenset(uses)


def workspace() -> dict[str, Crate]:
    """The members of the workspace by their names."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    members = {package["name"] for package in told["packages"]}
    return {
        package["name"]: Crate(
            Path(package["manifest_path"]).parent.relative_to(ROOT).as_posix(),
            members & {dependency["name"] for dependency in package["dependencies"]} - {package["name"]},
        )
        for package in told["packages"]
    }


def changed_files(against: str) -> list[str]:
    """What differs from where this branch left `against`, and what git does not know yet."""
    base = _git("merge-base", "HEAD", against)[0]
    return _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def crates_of(files: Iterable[str], crates: Mapping[str, Crate]) -> set[str]:
    """The crates that these files belong to; a file that each crate is built from means all of them."""
    changed = set()
    for file in files:
        if file in _FOR_ALL:
            return set(crates)
        changed |= {name for name, crate in crates.items() if PurePosixPath(file).is_relative_to(crate.folder)}
    return changed


def dependents(changed: Iterable[str], crates: Mapping[str, Crate]) -> set[str]:
    """The crates that use one of `changed`, or use one that does."""
    found: set[str] = set()
    waiting = list(changed)
    while waiting:
        used = waiting.pop()
        users = {name for name, crate in crates.items() if used in crate.uses} - found
        found |= users
        waiting += users
    return found


if __name__ == "__main__":
    sys.exit(main())
