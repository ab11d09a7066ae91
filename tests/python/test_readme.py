"""The README's Python examples, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
EXAMPLES = [block for block in BLOCKS if "spark" not in block and "def test_" not in block]
TESTS = [block for block in BLOCKS if "def test_" in block]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
    assert TESTS


def test_the_test_passes(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text("\n".join(TESTS))
    command = [sys.executable, "-m", "pytest", "-p", "sbp_native.pytest_plugin", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str, run_python: Run) -> None:
    done = run_python(example)
    assert done.stdout.strip()
    assert done.stderr == ""
