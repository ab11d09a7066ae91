"""The Python examples of the README and of the page that a package index shows, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).resolve().parents[2]
INDEX_PAGE = ROOT / "python" / "README.md"
BLOCKS = [
    block
    for page in (ROOT / "README.md", INDEX_PAGE)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
]
#: Those for Spark are run by tests/spark/test_spark_recipes.py.
EXAMPLES = [block for block in BLOCKS if "spark" not in block and "def test_" not in block]
TESTS = [block for block in BLOCKS if "def test_" in block]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
    assert TESTS


def test_the_page_of_an_index_has_no_links_into_the_repository() -> None:
    links = re.findall(r"\]\(([^)]*)\)", INDEX_PAGE.read_text())
    assert all(link.startswith("https://") for link in links), links


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
