"""What `configure` does to a builder, without a session."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql import SparkSession

import sbp_native.spark
from sbp_native.spark import runtime


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


def test_a_worker_freezes_again_when_much_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark loads pandas behind the first task's rows; without a second freeze each task's collection goes over it."""
    frozen: list[int] = []
    monkeypatch.setattr(runtime, "_frozen", (0, 0))
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(len(sys.modules)))

    def load(modules: int) -> None:
        for _ in range(modules):
            monkeypatch.setitem(sys.modules, f"loaded_{len(sys.modules)}", sys)
        runtime.prepare_worker()

    runtime.prepare_worker(freeze=False)
    assert not frozen
    load(0)
    first = len(sys.modules)
    load(10)
    assert frozen == [first]
    load(200)
    load(0)
    assert frozen == [first, first + 210]
