"""Which tests provoke which error codes, and that they do.

A test says ``@pytest.mark.provokes(1404, by="server")``. While it runs, every exception of ours is noted as it is made;
afterwards each code of the mark must have been among them, and all of them must say what the error table says, in the
form that users are promised. ``docs/errors.md`` shows the marks; a code that no test provokes fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sbp_native import SbpError, _native, errors

HERE = Path(__file__).parent

#: Who the error comes from, and how the page puts it.
SOURCES = {"server": "a real server", "peer": "a scripted peer", "client": "this side"}

FORM = re.compile(
    r"\[SBP-(?P<code>\d{4})\] (?P<what>[^;].*?); (?:(?P<attempts>\d+) attempts?; )?"
    r"(?P<outcome>it may have been done: read the stream to find out|can be tried again|"
    r"not worth trying again unchanged); (?P<advice>.+)"
)


@dataclass(frozen=True)
class Row:
    """One row of the error table."""

    code: int
    name: str
    class_name: str
    retry: str
    may_have_been_done: bool
    meaning: str
    advice: str


TABLE = {row[0]: Row(*row) for row in _native.error_codes()}
#: What holds for numbers without a row.
UNKNOWN = Row(-1, "UNKNOWN_CODE", "ServerError", "no", True, "", "upgrade the client")


def check(error: SbpError) -> None:
    """Fails unless the exception is what the table and the promised form say."""
    text = str(error)
    found = FORM.fullmatch(text)
    assert found, f"not in the form promised: {text}"
    row = TABLE.get(error.code, UNKNOWN)
    assert int(found["code"]) == error.code, text
    assert found["advice"].startswith(row.advice), text
    assert int(found["attempts"] or 0) == error.attempts, text
    outcome = {
        "it may have been done: read the stream to find out": (True, False),
        "can be tried again": (False, True),
        "not worth trying again unchanged": (False, False),
    }
    assert (error.indeterminate, error.retriable) == outcome[found["outcome"]], text
    if error.indeterminate:
        assert isinstance(error, errors.IndeterminateError), type(error)
    for part in (error.stream, error.endpoint):
        assert part is None or part in found["what"], text
    for word, number in (("range", error.range), ("offset", error.offset)):
        assert number is None or f"{word} {number}" in found["what"], text
    made = type(error).__name__
    expected = (
        {row.class_name, "IndeterminateError", "OutcomeUnknownTimeoutError"}
        if error.indeterminate
        else {row.class_name}
    )
    assert made in expected, f"{made} for {error.code}: {text}"


@contextmanager
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SbpError]]:
    """All exceptions of ours that are made meanwhile."""
    made: list[SbpError] = []
    plain = SbpError.__init__

    def note(self: SbpError, *arguments: Any, **facts: Any) -> None:
        plain(self, *arguments, **facts)
        made.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(SbpError, "__init__", note)
        yield made


def told(call: Callable[[], object]) -> SbpError:
    """What a call raises that is refused as often as it is tried, until its time is over.

    The time may be over in the middle of an attempt: then the error says that, and the call is made again.
    """
    while True:
        with pytest.raises(SbpError) as caught:
            call()
        if is_refusal(caught.value):
            return caught.value


def is_refusal(error: SbpError) -> bool:
    """Whether it is more than that the time was over on this side."""
    return not isinstance(error, TimeoutError) or error.code < 9000


@dataclass(frozen=True)
class Provocation:
    """A test that says it provokes a code."""

    code: int
    by: str
    test: str
    path: str


def _codes(arguments: list[ast.expr]) -> Iterator[int]:
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            yield from ast.literal_eval(argument.value)
        else:
            yield ast.literal_eval(argument)


@cache
def provocations() -> list[Provocation]:
    """What the marks in the tests' text say."""
    found = []
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.provokes":
                    by = next(ast.literal_eval(word.value) for word in decorator.keywords if word.arg == "by")
                    found += [Provocation(code, by, node.name, path.name) for code in _codes(decorator.args)]
    return found
