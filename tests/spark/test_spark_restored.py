"""Checkpoints that were put back, or deleted in part: other rows under a known number are told, never dropped."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from spark.support import failure, forget_last_commit, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

pytestmark = pytest.mark.slow
ROWS = 10


def fill(client: sbp.Client, name: str, first: int, count: int = ROWS) -> None:
    client.create_stream(name, exist_ok=True).append([b"%d" % n for n in range(first, first + count)])


def numbers(count: int) -> Counter[bytes | None]:
    return Counter(b"%d" % n for n in range(count))


class Copy:
    """A query that copies one stream to another, a batch a run."""

    def __init__(self, spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, place: str) -> None:
        self.spark, self.server, self.client, self.place = spark, server, client, Path(place)
        self.source, self.target = f"{name}/in", f"{name}/out"
        client.create_stream(self.source)
        client.create_stream(self.target)

    def frame(self, **options: object) -> DataFrame:
        made = self.spark.readStream.format("sbp").option("servers", self.server.address).options(**options)
        return made.option("startingOffsets", "earliest").load(self.source).select("value")

    def writer(self, frame: DataFrame | None = None, **options: object) -> DataStreamWriter:
        made = (frame or self.frame()).writeStream.format("sbp").option("servers", self.server.address)
        made = made.options(**options).option("checkpointLocation", str(self.place))
        return made.trigger(availableNow=True)

    def run(self, frame: DataFrame | None = None, **options: object) -> None:
        assert self.writer(frame, **options).start(self.target).awaitTermination(120)

    def batches(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            fill(self.client, self.source, number * ROWS)
            self.run()

    def keep_copy(self) -> Path:
        kept = self.place.with_name("kept")
        shutil.copytree(self.place, kept)
        return kept

    def put_back(self, kept: Path) -> None:
        shutil.rmtree(self.place)
        shutil.copytree(kept, self.place)

    def forget_all_but_metadata(self) -> None:
        for path in self.place.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("metadata", ".metadata.crc"):
                path.unlink()

    def held(self) -> Counter[bytes | None]:
        return Counter(values(self.client, self.target))


@pytest.fixture
def copy(spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, checkpoint: str) -> Copy:
    return Copy(spark, server, client, name, checkpoint)


def test_an_older_checkpoint_is_put_back_and_rows_were_added(copy: Copy) -> None:
    copy.batches(2)
    kept = copy.keep_copy()
    copy.batches(1, first=2)
    copy.put_back(kept)
    fill(copy.client, copy.source, 3 * ROWS)
    told = failure(copy.run)
    assert "[SBP-9210]" in told
    assert "batch 2" in told
    assert "checkpoint" in told
    assert copy.held() == numbers(3 * ROWS), "nothing is written, and nothing is lost: the query does not go on"


def test_an_older_checkpoint_is_put_back_and_plans_the_same(copy: Copy) -> None:
    copy.batches(2)
    kept = copy.keep_copy()
    copy.batches(1, first=2)
    copy.put_back(kept)
    copy.run()
    assert copy.held() == numbers(3 * ROWS)
    copy.batches(1, first=3)
    assert copy.held() == numbers(4 * ROWS)


def test_a_checkpoint_of_which_only_the_metadata_is_left(copy: Copy) -> None:
    copy.batches(3)
    copy.forget_all_but_metadata()
    fill(copy.client, copy.source, 3 * ROWS)
    assert "[SBP-9210]" in failure(copy.run)
    assert copy.held() == numbers(3 * ROWS)


def test_batches_are_planned_anew_from_the_beginning_and_hold_the_same(copy: Copy) -> None:
    """Only the metadata is left, and limits cut the same batches again: these are passed over, the next is written."""
    fill(copy.client, copy.source, 0)
    fill(copy.client, copy.source, ROWS)
    limited = {"maxOffsetsPerTrigger": ROWS}
    copy.run(copy.frame(**limited))
    copy.forget_all_but_metadata()
    fill(copy.client, copy.source, 2 * ROWS)
    copy.run(copy.frame(**limited))
    assert copy.held() == numbers(3 * ROWS)


def test_a_query_goes_on_as_another_sink(copy: Copy) -> None:
    copy.batches(2)
    kept = copy.keep_copy()
    copy.batches(1, first=2)
    copy.put_back(kept)
    fill(copy.client, copy.source, 3 * ROWS)
    assert "a new 'sinkId'" in failure(copy.run)
    copy.run(sinkId="second")
    assert copy.held() == numbers(4 * ROWS) + numbers(3 * ROWS) - numbers(2 * ROWS), "what was read again is twice"


def test_a_repeated_batch_whose_rows_a_shuffle_has_moved(copy: Copy) -> None:
    """Spark forgot its commit; the rows come in other tasks and in another order, and they are the same."""
    fill(copy.client, copy.source, 0)
    for partitions in (1, 2, 3):
        copy.run(copy.frame().repartition(partitions))
        forget_last_commit(str(copy.place))
    assert copy.held() == numbers(ROWS)


def test_batches_of_foreach_batch(copy: Copy) -> None:
    """Their number is their version: what a restored checkpoint gives out again is refused if it holds other rows."""

    def write(batch: DataFrame, number: int) -> None:
        made = batch.write.format("sbp").mode("append").option("servers", copy.server.address)
        made.option("txnAppId", copy.target).option("txnVersion", number).save(copy.target)

    def run() -> None:
        query = copy.frame().writeStream.foreachBatch(write).option("checkpointLocation", str(copy.place))
        assert query.trigger(availableNow=True).start().awaitTermination(120)

    fill(copy.client, copy.source, 0)
    run()
    copy.forget_all_but_metadata()
    run()
    assert copy.held() == numbers(ROWS)
    fill(copy.client, copy.source, ROWS)
    copy.forget_all_but_metadata()
    told = failure(run)
    assert "[SBP-9210]" in told
    assert "version 0" in told
    assert copy.held() == numbers(ROWS)


def test_an_aggregation_with_sorted_tasks(copy: Copy) -> None:
    """What is documented as exactly once behind a shuffle: its batches are known again, other ones are refused."""

    def sums() -> DataFrame:
        at = "timestamp_seconds(cast(string(value) as int) div 10 * 3600) at"
        groups = copy.frame().selectExpr(at, "value").withWatermark("at", "0 seconds").groupBy("at")
        return groups.count().selectExpr("concat(string(at), ' ', count) value")

    for number in range(3):
        fill(copy.client, copy.source, number * ROWS)
    copy.run(sums(), sortWithinBatch=True)
    whole = copy.held()
    assert whole.total() == 2
    forget_last_commit(str(copy.place))
    copy.run(sums(), sortWithinBatch=True)
    assert copy.held() == whole
    for path in ("offsets", "commits", "state"):
        shutil.rmtree(copy.place / path)
    fill(copy.client, copy.source, 3 * ROWS)
    assert "[SBP-9210]" in failure(lambda: copy.run(sums(), sortWithinBatch=True))
    assert copy.held() == whole


def test_values_that_spark_computes_anew(copy: Copy) -> None:
    """The time of a batch is kept in the checkpoint, so it is the same again; what is random is not, and is told."""
    fill(copy.client, copy.source, 0)
    copy.run(copy.frame().selectExpr("concat(string(value), ' ', string(current_timestamp())) value"))
    written = copy.held()
    forget_last_commit(str(copy.place))
    copy.run(copy.frame().selectExpr("concat(string(value), ' ', string(current_timestamp())) value"))
    assert copy.held() == written
    fill(copy.client, copy.source, ROWS)
    copy.run(copy.frame().selectExpr("uuid() value"))
    forget_last_commit(str(copy.place))
    told = failure(lambda: copy.run(copy.frame().selectExpr("uuid() value")))
    assert "[SBP-9210]" in told
    assert "(10 then, others" in told
    assert copy.held().total() == 2 * ROWS
