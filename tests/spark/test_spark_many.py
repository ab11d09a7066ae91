"""Ten thousand streams in one load: packed into few tasks, and every row there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from spark import many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def crowded() -> Iterator[str]:
    """The address of a server that holds them, and nothing else."""
    with sbp.Server(durability="none") as server:
        many.make(server.address, "many")
        yield server.address


def test_ten_thousand_streams(spark: SparkSession, crowded: str) -> None:
    frame = (
        spark.read.format("sbp")
        .options(servers=crowded, streamsPattern="many/[0-9]+")
        .schema("stream string, offset bigint, value binary")
        .load()
    )
    assert frame.rdd.getNumPartitions() <= 256
    rows = frame.collect()
    assert Counter((row.stream, row.offset, bytes(row.value)) for row in rows) == many.wanted("many")


def test_bounds_hold_for_ten_thousand_streams(spark: SparkSession, crowded: str) -> None:
    """Split as finely as allowed: no more tasks than that, and still every row once."""
    frame = (
        spark.read.format("sbp")
        .options(servers=crowded, streamsPattern="many/.*", minPartitions=12, maxPartitions=20)
        .schema("stream string, offset bigint")
        .load()
    )
    assert 12 <= frame.rdd.getNumPartitions() <= 20
    found = Counter((row.stream, row.offset) for row in frame.collect())
    assert found == Counter((stream, offset) for stream, offset, _ in many.wanted("many").elements())
