"""The page docs/promises.md: each row says what is promised, under which faults, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINK = re.compile(r"\[`(\w+)`\]\(([^)]+)\)")


def rows() -> list[tuple[str, str, str]]:
    """What is promised, under which faults, and what shows it. Headings are left out."""
    found = []
    for line in (DOCS / "promises.md").read_text().splitlines():
        if line.startswith("|") and not line.startswith(("| --- ", "| what is promised ")):
            promise, faults, shown = (part.strip() for part in line.strip("|").split("|"))
            found.append((promise, faults, shown))
    return found


def is_a_test(file: Path, name: str) -> bool:
    """Whether a Rust or a Python file has a test of this name."""
    if not file.is_file():
        return False
    text = file.read_text()
    if file.suffix == ".py":
        return name.startswith("test_") and re.search(rf"^ *(async )?def {name}\(", text, re.MULTILINE) is not None
    # Attributes, and in a macro of proptest's nothing but them, stand between `#[test]` and the function.
    return re.search(rf"#\[(tokio::)?test[^\n]*\]\n(\s*(#\[|///)[^\n]*\n)*\s*(async )?fn {name}\(", text) is not None


def test_every_promise_names_tests_that_exist() -> None:
    assert len(rows()) > 10
    for promise, faults, shown in rows():
        named = LINK.findall(shown)
        assert promise, shown
        assert faults, promise
        assert named, f"no test for: {promise}"
        for name, path in named:
            assert is_a_test((DOCS / path).resolve(), name), f"{promise}: there is no {name} in {path}"
