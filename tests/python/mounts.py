"""File systems of a test's own."""

from __future__ import annotations

import subprocess


def can_mount() -> bool:
    """Whether this user may mount something in a namespace that ends with its process."""
    try:
        tried = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return tried.returncode == 0
