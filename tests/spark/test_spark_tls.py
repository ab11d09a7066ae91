"""A server with TLS that asks who comes: read and written by Spark, as batches and as queries, and what it is told."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from sbp_native.spark.options import SbpOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROWS = 500


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "made"
    command = [sys.executable, "-m", "sbp_native._cli", "tls", "dev", str(directory)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return directory


@pytest.fixture(scope="module")
def mutual(made: Path) -> Iterator[sbp.Server]:
    tls = sbp.Tls(cert=made / "server.crt", key=made / "server.key", ca=made / "ca.crt")
    with sbp.Server(durability="none", tls=tls) as running:
        yield running


@pytest.fixture
def options(mutual: sbp.Server, made: Path) -> dict[str, Any]:
    return {
        "servers": mutual.address,
        "tlsCa": str(made / "ca.crt"),
        "tlsCert": str(made / "client.crt"),
        "tlsKey": str(made / "client.key"),
    }


def test_batches_and_queries_go_over_tls(
    spark: SparkSession, options: dict[str, Any], name: str, checkpoint: str
) -> None:
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("sbp").mode("append").options(**options, createStreams=True).save(name)
    read = spark.read.format("sbp").options(**options).load(name)
    assert {int(row.value) for row in read.select(read.value.cast("string").alias("value")).collect()} == set(
        range(ROWS)
    )

    copy = f"{name}-copy"
    stream = spark.readStream.format("sbp").options(**options, startingOffsets="earliest").load(name).select("value")
    sink = stream.writeStream.format("sbp").options(**options, createStreams=True)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(copy)
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert spark.read.format("sbp").options(**options).load(copy).count() == ROWS


def test_what_is_wrong_is_told_at_planning(spark: SparkSession, options: dict[str, Any], made: Path) -> None:
    def told(change: dict[str, str | None]) -> str:
        given = {key: value for key, value in {**options, **change}.items() if value is not None}
        with pytest.raises(Exception, match="SBP-") as caught:
            spark.read.format("sbp").options(**given).load("orders")
        return str(caught.value)

    stranger = told({"tlsCa": str(made / "client.crt")})
    assert "[SBP-9020]" in stranger
    assert "no authority that is trusted here has issued it" in stranger
    assert "asks for a client certificate" in told({"tlsCert": None, "tlsKey": None})
    assert "[SBP-9007]" in told({"tlsCa": "/absent/ca.pem"})
    assert "absent" in told({"tlsCa": "/absent/ca.pem"})
    assert "'tlsCert' does nothing without 'tlsKey'" in told({"tlsKey": None})


def test_tasks_get_names_of_files(options: dict[str, Any], made: Path) -> None:
    travels = pickle.dumps(SbpOptions.parse(options))
    assert str(made / "client.key").encode() in travels
    for line in (made / "client.key").read_text().splitlines()[1:-1]:
        assert line.encode() not in travels
