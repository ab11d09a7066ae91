"""Installations that lack something: a job says what, in Spark's first line."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

#: Run by every interpreter when it starts, those of Spark's workers too. The file says what is broken now.
BROKEN = """
    import pathlib, sys
    what = pathlib.Path(__file__).with_name("broken").read_text()
    if what == "native":
        sys.modules["sbp_native"] = None
    elif what == "pyspark":
        import pyspark
        pyspark.__version__ = "4.1.4"
"""

#: A worker for each question, so that each sees what is broken at its time.
JOB = """
    import pathlib, sys
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.use.daemon", "false").getOrCreate()
    for what in ("native", "pyspark", "nothing"):
        pathlib.Path(sys.argv[1], "broken").write_text(what)
        try:
            spark.read.format("sbp").option("servers", "127.0.0.1:9").load("orders").collect()
        except Exception as error:
            print(what, next(line[line.index("[SBP-") :] for line in str(error).splitlines() if "[SBP-" in line))
"""


def test_what_is_missing_is_said_through_a_job(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(BROKEN))
    (tmp_path / "broken").write_text("nothing")
    inherited = [path for path in [os.environ.get("PYTHONPATH", "")] if path]
    paths = os.pathsep.join([str(tmp_path), *inherited])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOB), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert told["native"].startswith("[SBP-9208] the native part of sbp-native cannot be loaded here"), done.stderr
    assert told["pyspark"].startswith("[SBP-9209] format('sbp') needs PySpark 4.2 or later, this is 4.1.4")
    # The same installation, whole again, only finds no server.
    assert told["nothing"].startswith("[SBP-9001]")
