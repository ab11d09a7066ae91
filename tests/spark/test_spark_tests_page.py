"""The page that says which test shows what: they are there."""

from __future__ import annotations

import re

import pytest

from spark.pages import ROOT

PAGE = (ROOT / "docs" / "spark" / "tests.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", PAGE)))


def test_it_names_some() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_it_names_exists(file: str, test: str) -> None:
    found = [path for place in ("spark", "spark_long") if (path := ROOT / "tests" / place / file).exists()]
    assert len(found) == 1, file
    assert f"def {test}(" in found[0].read_text() if test else True, f"{file} has no {test}"
