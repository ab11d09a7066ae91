"""One job through everything: run on the pinned PySpark, and on an older one by `make test-spark-old`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from spark.support import failure, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

    import sbp_native as sbp

#: Which PySpark this must be, where that is known.
WANTED = os.environ.get("SBP_TEST_PYSPARK")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.skipif(WANTED is None, reason="any PySpark will do")
def test_it_is_the_version_that_is_meant() -> None:
    assert pyspark.__version__ == WANTED


@pytest.mark.timeout(600)
def test_one_job(
    spark: SparkSession,
    server: sbp.Server,
    client: sbp.Client,
    name: str,
    checkpoint: str,
) -> None:
    """Batch write, batch read with and without pushdown, a query that is repeated from source to sink, an error."""
    written = [b"row %d" % number for number in range(5_000)]
    client.create_stream(name)

    def read() -> DataFrameReader:
        # A new one each time: what is set on a reader, a schema say, stays with it.
        return spark.read.format("sbp").option("servers", server.address)

    frame = spark.range(0, 5_000, numPartitions=3).selectExpr("concat('row ', id) value")
    frame.write.format("sbp").mode("append").options(servers=server.address, batchRows=500).save(name)
    assert sorted(values(client, name)) == sorted(written)

    before = spark.conf.get(PUSHDOWN)
    try:
        for pushdown in ("false", "true"):
            spark.conf.set(PUSHDOWN, pushdown)
            frame = read().schema("offset bigint, stream string").load(name)
            found = frame.where("offset >= 4000 AND offset < 4010").orderBy("offset").collect()
            assert [(row.offset, row.stream) for row in found] == [(offset, name) for offset in range(4_000, 4_010)]
    finally:
        spark.conf.set(PUSHDOWN, before)

    copy = client.create_stream(f"{name}/copy").name

    def run() -> int:
        query = (
            spark.readStream.format("sbp")
            .options(servers=server.address, startingOffsets="earliest", maxOffsetsPerTrigger=2_000)
            .load(name)
            .select("value")
            .writeStream.format("sbp")
            .options(servers=server.address, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start(copy)
        )
        assert query.awaitTermination(200), "the query did not end"
        assert query.exception() is None
        return len(query.recentProgress)

    assert run() >= 3
    assert sorted(values(client, copy)) == sorted(written)
    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    run()
    assert sorted(values(client, copy)) == sorted(written), "a batch was written twice"

    assert "did you mean 'maxPartitions'?" in failure(lambda: read().option("maxPartition", "4").load(name))
    # With a schema from outside Spark asks the source nothing before the query runs.
    unasked = read().schema("offset bigint").option("maxPartition", "4").load(name)
    assert "did you mean 'maxPartitions'?" in failure(unasked.collect)
