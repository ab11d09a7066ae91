"""The table of docs/lifecycle.md: each cell once, and that the table and the tests are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle import runner
from lifecycle.cells import CELLS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "lifecycle.md").read_text()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a process of its own, for all cells."""
    with runner.server() as running:
        yield running


@pytest.mark.timeout(runner.LIMIT + 30)
@pytest.mark.parametrize("name", CELLS)
def test_cell(name: str, address: str) -> None:
    wrong = runner.run(name, address)
    assert wrong is None, wrong


def table() -> list[tuple[str, str, str]]:
    """The rows of the page's table: what happens, what is promised, and the tests. Headings are left out."""
    lines = PAGE.splitlines()
    start = lines.index("| when | what is promised | tests |")
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        when, promise, tests = (part.strip() for part in line.strip("|").split("|"))
        if promise or tests:
            found.append((when, promise, tests))
    return found


def test_every_row_of_the_table_has_tests_that_exist() -> None:
    rows = table()
    assert len(rows) > 30
    for when, promise, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert promise, when
        assert named, f"no test for: {when}"
        for test in named:
            assert test in CELLS or is_a_test(test), f"{when}: there is no {test}"


def test_every_cell_is_in_the_table() -> None:
    named = {test for _, _, tests in table() for test in re.findall(r"`([^`]+)`", tests)}
    assert set(CELLS) <= named, sorted(set(CELLS) - named)


def is_a_test(name: str) -> bool:
    """Whether `file::function` is a test in this directory."""
    file, _, function = name.partition("::")
    path = Path(__file__).with_name(file)
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text())
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == function
        and function.startswith("test_")
        for node in tree.body
    )
