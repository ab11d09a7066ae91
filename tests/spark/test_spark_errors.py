"""Every line of ``error_cases.py``, provoked through a real session, is what the user gets to see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sbp_native as sbp
from sbp_native.spark import errors
from spark.error_cases import ADDRESS, CASES, Case, Scene

#: What a line says of trying again.
OUTCOMES = (errors.AGAIN, errors.FINAL, "it may have been done", "not retriable")


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Iterator[Scene]:
    """A server with ten records in the stream `orders`, whose id is 1."""
    with sbp.Server(durability="none") as server, sbp.connect(server.address, timeout=10) as client:
        orders = client.create_stream("orders")
        for number in range(10):
            orders.append(b"%d" % number)
        yield Scene(spark, server, server.address, client, tmp_path)


def told(case: Case, scene: Scene) -> str:
    """The first line of ours in what Spark raises, with the address of the page."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by where it failed
        case.provoke(scene)
    lines = [line for line in str(caught.value).splitlines() if "[SBP-" in line]
    assert lines, str(caught.value)
    assert len(lines) == 1, lines
    return lines[0][lines[0].index("[SBP-") :].replace(scene.address, ADDRESS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_the_line_that_is_seen(case: Case, scene: Scene) -> None:
    line = told(case, scene)
    wanted = ".*".join(re.escape(part) for part in f"[SBP-{case.code:04}] {case.line}".split("..."))
    assert re.match(wanted, line), line
    assert any(outcome in line for outcome in OUTCOMES), line


def test_every_code_is_seen() -> None:
    provoked = {case.code for case in CASES}
    # Two are about installations, which spark_long/test_installations.py breaks.
    elsewhere = {errors.NATIVE_MISSING, errors.PYSPARK_TOO_OLD}
    assert set(errors.CODES) - provoked == elsewhere
