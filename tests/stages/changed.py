"""``python -m tests.stages.changed``: tests the crates with files that differ from main, committed or not.

Their own tests are run, and the binaries of tests/e2e that its Cargo.toml names for them.
"""

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
    files = changed_files(asked.against)
    changed = crates_of(files, crates)
    binaries = binaries_of(files, changed, crates)
    untested = sorted(dependents(changed, crates) - changed)
    print(f"changed since {asked.against}: {', '.join(sorted(changed)) or 'no crate'}", flush=True)
    if untested:
        print(f"not tested here, though they use them: {', '.join(untested)}", flush=True)
    for crate, names in binaries.items():
        print(f"of {crate}: {', '.join(names)}", flush=True)
    if asked.dry_run or not changed:
        return 0
    # Not each crate has a library, and cargo takes that for an error when it is asked for examples.
    return rust.play(selections(changed, binaries), examples=False)


class Crate:
    """A member of the workspace: where it is, which members it uses, and, if it is one of tests alone, its binaries.

    Each binary is in a folder of its name, and has the crates whose changes ask for it.
    """

    def __init__(self, folder: str, uses: Iterable[str], binaries: Mapping[str, Iterable[str]] | None = None) -> None:
        self.folder = PurePosixPath(folder)
        self.uses = frozenset(uses)
        self.binaries = {name: frozenset(tested) for name, tested in (binaries or {}).items()}


def workspace() -> dict[str, Crate]:
    """The members of the workspace by their names."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    members = {package["name"] for package in told["packages"]}
    return {
        package["name"]: Crate(
            Path(package["manifest_path"]).parent.relative_to(ROOT).as_posix(),
            members & {dependency["name"] for dependency in package["dependencies"]} - {package["name"]},
            (package["metadata"] or {}).get("tests"),
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


def binaries_of(files: Iterable[str], changed: set[str], crates: Mapping[str, Crate]) -> dict[str, list[str]]:
    """For crates of tests alone, the binaries to run: those for a changed crate, and those that were changed."""
    files = list(files)
    asked = {}
    for name, crate in crates.items():
        own = [PurePosixPath(file) for file in files if PurePosixPath(file).is_relative_to(crate.folder)]
        folders = {file.relative_to(crate.folder).parts[0] for file in own}
        # What all of them share, or what all crates are built from.
        all_of_them = folders - set(crate.binaries) or (name in changed and not own)
        if names := [
            binary for binary, tested in crate.binaries.items() if all_of_them or tested & changed or binary in folders
        ]:
            asked[name] = names
    return asked


def selections(changed: Iterable[str], binaries: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """What cargo is asked to build, in its words, one list for each time that it is asked."""
    whole = [word for crate in sorted(set(changed) - set(binaries)) for word in ("--package", crate)]
    parts = [
        ["--package", crate, *(word for name in names for word in ("--test", name))]
        for crate, names in binaries.items()
    ]
    return [words for words in (whole, *parts) if words]


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
