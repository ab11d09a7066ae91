"""The examples in docstrings, run as they stand: ``server`` and ``client`` are fresh ones, without a stream."""

from __future__ import annotations

import ast
import asyncio
import doctest
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sbp_native as sbp

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "sbp_native"


def docstrings(path: Path) -> Iterator[tuple[str, str, int]]:
    """Every docstring of a file: what it belongs to, its text, its line."""
    tree = ast.parse(path.read_text())

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                own = f"{name}.{child.name}" if name else child.name
                text = ast.get_docstring(child)
                if text:
                    yield own, text, child.lineno
                yield from visit(child, own)

    yield from visit(tree, "")


SOURCES = [PACKAGE / "_native.pyi", *sorted(PACKAGE.glob("*.py"))]
EXAMPLES = [
    pytest.param(f"{path.name}:{name}", text, line, id=f"{path.stem}-{name}")
    for path in SOURCES
    for name, text, line in docstrings(path)
    if ">>>" in text
]


def test_every_verb_of_a_client_has_an_example() -> None:
    shown = {str(example.id) for example in EXAMPLES}
    verbs = [name for name in dir(sbp.Client) if not name.startswith("_") and callable(getattr(sbp.Client, name))]
    assert len(verbs) > 20
    missing = [verb for verb in verbs if f"_native-Client.{verb}" not in shown]
    assert not missing


@pytest.mark.parametrize(("name", "text", "line"), EXAMPLES)
def test_an_example_shows_what_happens(name: str, text: str, line: int) -> None:
    with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
        given = {
            "sbp": sbp,
            "asyncio": asyncio,
            "datetime": datetime,
            "timedelta": timedelta,
            "UTC": UTC,
            "server": server,
            "client": client,
        }
        example = doctest.DocTestParser().get_doctest(text, given, name, None, line)
        flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
        told: list[str] = []
        doctest.DocTestRunner(optionflags=flags).run(example, out=told.append)
        assert not told, "".join(told)
