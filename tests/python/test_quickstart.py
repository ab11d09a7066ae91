"""docs/index.md: each block of Python runs as it stands, in an interpreter of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "index.md"
PRINTS = ["0 b'first'\n1 b'second'\n", "1000\n", "['offset', 'timestamp', 'key', 'value', 'headers']\n"]
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("block", "output"), list(zip(BLOCKS, PRINTS, strict=True)), ids=["rows", "asyncio", "columns"]
)
def test_the_quickstart_runs(
    block: str, output: str, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert run_python(block).stdout == output
