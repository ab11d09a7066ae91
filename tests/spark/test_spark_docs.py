"""The pages about Spark: their tables are the code's, their code is Python, their options exist."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from sbp_native.spark.options import OPTIONS
from spark.pages import ROOT, pages

PAGES = [ROOT / "docs" / "spark.md", *sorted((ROOT / "docs" / "spark").glob("*.md"))]
#: Options of Spark's own sources and sinks.
SPARK = {"checkpointLocation", "subscribe", "topic"}


def ids(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", pages(), ids=ids)
def test_the_tables_are_the_code_s(path: Path) -> None:
    if path.read_text() != pages()[path]:
        pytest.fail(f"{path.relative_to(ROOT)}: run python -m tests.spark.pages --write")


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_the_code_is_python(path: Path) -> None:
    for code in re.findall(r"^ *```python\n(.*?)^ *```", path.read_text(), re.DOTALL | re.MULTILINE):
        compile(textwrap.dedent(code), path.name, "exec")


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_the_options_exist(path: Path) -> None:
    text = path.read_text()
    named = set(re.findall(r'\.option\("([\w.]+)"', text))
    for group in re.findall(r"\.options\(([^()]*)\)", text):
        named |= set(re.findall(r"(?:^|,\s*)(\w+)=", group))
    unknown = {name for name in named if not name.startswith("kafka.")} - set(OPTIONS) - SPARK
    assert not unknown, f"{path.name} gives options that do not exist"


def test_the_migration_names_options_that_exist() -> None:
    table = (ROOT / "docs" / "spark" / "kafka.md").read_text().split("## Options", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \|", table, re.MULTILINE)[2:]
    assert len(rows) > 10
    for theirs, ours in rows:
        named = theirs if ours == "the same" else ours
        for name in re.findall(r"`([^`]+)`", named):
            assert name in OPTIONS, f"{theirs} -> {ours}"
