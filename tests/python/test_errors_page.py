"""The page of errors says what the code does, and every code has a test that provokes it."""

from __future__ import annotations

import pytest

from python.errors_page import PAGE, ROOT, render
from python.provoked import SOURCES, TABLE, provocations
from sbp_native import SbpError, errors


def test_every_code_is_provoked() -> None:
    provoked = {found.code for found in provocations()}
    missing = [f"{row.code} {row.name}" for row in TABLE.values() if row.code and row.code not in provoked]
    assert not missing, f"no test says that it provokes {missing}"


def test_the_marks_name_codes_and_sources() -> None:
    for found in provocations():
        assert found.code in TABLE, found
        assert found.by in SOURCES, found


def test_every_class_is_one_of_the_tables_or_above_one() -> None:
    used = {getattr(errors, row.class_name) for row in TABLE.values() if row.code}
    for name in errors.__all__:
        made = getattr(errors, name)
        assert issubclass(made, SbpError), name
        assert any(issubclass(one, made) for one in used), f"nothing raises {name}"


def test_the_page_is_the_one_that_the_code_writes() -> None:
    if PAGE.read_text() != render():
        pytest.fail("docs/errors.md: run python -m tests.python.errors_page --write")


def test_the_protocols_page_has_a_row_for_every_code() -> None:
    page = (ROOT / "schemas" / "README.md").read_text().splitlines()
    for row in TABLE.values():
        done = "maybe" if row.may_have_been_done else "no"
        name = f"`{row.class_name}`" if row.code else ""
        wanted = f"| {row.code} | {row.name} | {row.retry} | {done} | {name} | {row.advice} |"
        assert wanted in page, f"schemas/README.md lacks {wanted}"
