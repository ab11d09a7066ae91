"""Writes docs/errors.md from the error table, the classes and the tests: `python -m tests.python.errors_page --write`.

Without `--write` it says whether the page is what it would write.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from sbp_native import SbpError, errors

from .provoked import SOURCES, TABLE, UNKNOWN, Row, provocations

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"

BEGINNING = """# Errors

<!-- Written by `python -m tests.python.errors_page --write`; a test compares. -->

Whatever the package raises on its own account is below `sbp_native.SbpError`; calls and awaited operations raise the
same. Arguments of a wrong type are `TypeError`, those that make no sense `ValueError`. `asyncio.CancelledError`
and `KeyboardInterrupt` stay themselves. An append has three outcomes:

```python
try:
    ack = stream.append(b"record")
except sbp.RejectedError as error:  # certainly not stored
    print("not stored:", error)
except sbp.IndeterminateError as error:  # perhaps stored: read the stream to find out
    print("who knows:", error)
```

The text is one line, and each part that is known is in it:

```text
[SBP-code] what happened; stream, range, offset; server; attempts; whether to try again; what to do
```

"""


def again(row: Row) -> str:
    """Who repeats the call, and when."""
    if row.retry == "no":
        return "not worth trying again unchanged"
    if row.may_have_been_done:
        return "reads and a writer's batches are repeated by the client itself, plain appends never"
    if row.code >= 9000:
        return "can be tried again by the caller"
    how = {
        "now": "",
        "later": ", after longer pauses",
        "elsewhere": ", at another server, and not at all where no other has the same",
        "refresh": ", after asking where the range is",
    }
    return f"tried again by the client itself until the time is over{how[row.retry]}"


def attributes() -> Iterator[str]:
    """The rows about what every exception carries, from the text of the class."""
    [tree] = ast.parse(inspect.getsource(SbpError)).body
    assert isinstance(tree, ast.ClassDef)
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            kind = ast.unparse(field.annotation).replace("|", "or")
            yield f"| `{ast.unparse(field.target)}` | {kind} | {ast.literal_eval(text.value)} |"


def classes(below: type[SbpError] = SbpError, depth: int = 0) -> Iterator[str]:
    """The tree of classes, each with what it also is, its codes and its meaning."""
    codes = [f"[{row.code}](#{anchor(row)})" for row in TABLE.values() if row.class_name == below.__name__ and row.code]
    also = [f"`{base.__name__}`" for base in below.__bases__[1:]]
    meaning = (inspect.getdoc(below) or "").splitlines()[0]
    facts = "; ".join(([f"also {', '.join(also)}"] if also else []) + ([", ".join(codes)] if codes else []))
    yield f"{'  ' * depth}- `{below.__name__}`: {meaning}{f' ({facts})' if facts else ''}"
    for name in errors.__all__:
        if getattr(errors, name).__bases__[0] is below:
            yield from classes(getattr(errors, name), depth + 1)


def anchor(row: Row) -> str:
    """Where the page speaks of the code."""
    return f"{row.code}-{row.name.lower()}"


def section(row: Row) -> Iterator[str]:
    """What is said of one code."""
    tests = [found for found in provocations() if found.code == row.code]
    done = "may have been done" if row.may_have_been_done else "nothing was done"
    yield f"### {row.code} {row.name}"
    yield ""
    yield f"`{row.class_name}`; {done}."
    yield ""
    yield f"- What happened: {row.meaning}."
    yield f"- What to do: {row.advice}."
    yield f"- Again: {again(row)}."
    for by, words in SOURCES.items():
        named = [f"`{one.path}::{one.test}`" for one in tests if one.by == by]
        if named:
            yield f"- Provoked by {words}: {', '.join(named)}."
    yield ""


def render() -> str:
    """The page."""
    rows = [row for row in TABLE.values() if row.code]
    lines = [BEGINNING + "## What every exception carries", ""]
    lines += ["| attribute | type | meaning |", "| --- | --- | --- |", *attributes(), ""]
    lines += ["## The classes", "", "Behind each class are the codes that become it.", "", *classes(), ""]
    lines += [
        "A call that changes nothing, such as a read, is never in doubt: `indeterminate` is false then, whatever the"
    ]
    lines += ["class is below.", "", "## The codes", ""]
    lines += ["| code | name | class | may have been done | again |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| [{row.code}](#{anchor(row)}) | {row.name} | `{row.class_name}` | "
        f"{'maybe' if row.may_have_been_done else 'no'} | {row.retry} |"
        for row in rows
    ]
    lines += [
        "",
        "Any other number of a server becomes `ServerError`: it is final, may have been done, and the advice is to",
    ]
    lines += [f"{UNKNOWN.advice}. 1200 and 1204 are read as success, 1400 as 2 and 1503 as 5.", ""]
    lines += [
        "Every code is made to happen by a test of `tests/python`; a code without one fails. Some requests that a real"
    ]
    lines += ["server refuses are spoiled on their way, since the client would not send them.", ""]
    for title, chosen in (
        ("What servers answer", [row for row in rows if row.code < 9000]),
        ("What arises on this side", [row for row in rows if row.code >= 9000]),
    ):
        lines += [f"## {title}", ""]
        for row in chosen:
            lines += section(row)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if "--write" in sys.argv[1:]:
        PAGE.write_text(render())
        return 0
    if PAGE.read_text() != render():
        print(
            "docs/errors.md is not what the code says: run python -m tests.python.errors_page --write", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
