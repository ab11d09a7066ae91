"""The page about Spark names every option, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from sbp_native.spark.options import OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_the_option_table_is_the_code_s() -> None:
    """One row for each option."""
    section = PAGE.read_text().split("## Options", 1)[1].split("\n## ", 1)[0]
    documented = re.findall(r"^\| `([A-Za-z.*]+)` \|", section, flags=re.MULTILINE)
    assert sorted(documented) == sorted(OPTIONS)
