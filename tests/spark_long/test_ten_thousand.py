"""Ten thousand streams in one query from source to sink, repeated after a crash."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from spark import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_rows_of_ten_thousand_streams_go_to_ten_thousand_others(spark: SparkSession, checkpoint: str) -> None:
    with sbp.Server(durability="none") as server, sbp.connect(server.address, timeout=60) as client:
        many.make(server.address, "from")
        many.make(server.address, "into", filled=False)

        def run() -> int:
            query = (
                spark.readStream.format("sbp")
                .options(servers=server.address, streamsPattern="from/.*", startingOffsets="earliest")
                .option("maxOffsetsPerTrigger", 12_000)
                .load()
                .selectExpr("replace(stream, 'from/', 'into/') stream", "value")
                .writeStream.format("sbp")
                .options(servers=server.address, checkpointLocation=checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(200), "the query did not end"
            return len(query.recentProgress)

        def held() -> Counter[tuple[str, int, bytes]]:
            found: Counter[tuple[str, int, bytes]] = Counter()
            for batch in client.read(many.names("into"), start="earliest", end="latest"):
                found.update(
                    (batch.stream, offset, value) for offset, value in zip(batch.offsets, batch.values, strict=True)
                )
            return found

        assert run() >= 3
        # Records of one stream keep their order, also over batches.
        assert held() == many.wanted("into")
        last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        run()
        assert held() == many.wanted("into")
