"""Files of names, made as people make them: by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run(*arguments: str, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command ``sbp``, with ``more`` in its environment."""
    command = [sys.executable, "-m", "sbp_native._cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **more})
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def token(names: Path, name: str, *allow: str, more: Sequence[str] = ()) -> str:
    """Has ``sbp token create`` make a token."""
    grants = [word for grant in allow for word in ("--allow", grant)]
    return run("token", "create", name, *grants, *more, "--auth", str(names)).stdout.strip()
