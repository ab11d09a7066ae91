"""The command `sbp` of an earlier commit of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: The last commit at which a range server does not say how often its directory was started, a record of a range server
#: in etcd does not keep it, and a deleted stream is not noted with the servers that may still have it. Streams with
#: several copies and servers with both roles work there. So there is something that servers of both versions may only
#: do once all are of the later.
COMMIT = "5718bef6"

#: Another commit.
COMMIT_VARIABLE = "SBP_EARLIER_COMMIT"
#: A command that is built already, whatever it was built from.
COMMAND_VARIABLE = "SBP_EARLIER_COMMAND"

_BUILT_WITHIN = 3_000


def command() -> Path:
    """The command, which is built below `target/earlier` unless it is there already.

    Raises `subprocess.CalledProcessError` where the commit is unknown, as in a clone without history, or cannot be
    built.
    """
    if given := os.environ.get(COMMAND_VARIABLE):
        return Path(given)
    asked = os.environ.get(COMMIT_VARIABLE, COMMIT)
    commit = _git("rev-parse", "--verify", f"{asked}^{{commit}}")
    place = ROOT / "target" / "earlier"
    built = place / f"sbp-{commit}"
    if not built.exists():
        _build(commit, place, built)
    return built


def _build(commit: str, place: Path, built: Path) -> None:
    tree = place / "tree"
    _git("worktree", "prune")
    if tree.exists():
        # An earlier build was cut off.
        _git("worktree", "remove", "--force", str(tree))
    _git("worktree", "add", "--detach", str(tree), commit)
    try:
        cargo = ["cargo", "build", "--locked", "--quiet", "--package", "sbp-cli", "--bin", "sbp"]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(place / "build"), "CARGO_INCREMENTAL": "0"}
        subprocess.run(cargo, cwd=tree, env=environment, check=True, timeout=_BUILT_WITHIN)
        shutil.copy2(place / "build" / "debug" / "sbp", built)
    finally:
        _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
