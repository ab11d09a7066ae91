"""What `configure` does to a builder, without a session."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql import SparkSession

import sbp_native.spark


@pytest.mark.parametrize(
    ("master", "before", "after"),
    [
        ("local[2]", None, sys.executable),
        ("local[2]", "/opt/python", "/opt/python"),
        ("spark://master:7077", None, None),
        (None, None, None),
    ],
)
def test_local_workers_run_this_python(
    monkeypatch: pytest.MonkeyPatch, master: str | None, before: str | None, after: str | None
) -> None:
    # Set first, so that whatever `configure` does is undone.
    monkeypatch.setenv("PYSPARK_PYTHON", before or "")
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    builder = SparkSession.Builder()
    sbp_native.spark.configure(builder.master(master) if master else builder)
    assert os.environ.get("PYSPARK_PYTHON") == after
