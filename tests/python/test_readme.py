"""The README's Python examples, run as they stand."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLES = [
    example
    for example in re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    if "spark" not in example
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str, run_python: Run) -> None:
    done = run_python(example)
    assert done.stdout.strip()
    assert done.stderr == ""
