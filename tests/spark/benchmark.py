"""Batch read: Arrow batches against the same reader yielding Python tuples. Run with `python -m tests.spark.benchmark`.

Rows have 100 bytes of value. Each road runs once to warm up and then `--runs` times; the best run counts, since what
slows a run down on a shared machine is never the reader's merit.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

import sbp_native as sbp
import sbp_native.spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

STREAM = "benchmark"
_BATCH = 10_000


class TupleReader(DataSourceReader):
    """The package's reader, its batches taken apart into tuples: what a Python source without Arrow does."""

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def partitions(self) -> Sequence[InputPartition]:
        """The same plan."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The same rows."""
        for batch in self._reader.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleSource(sbp_native.spark.SbpDataSource):
    """The package's source with that reader."""

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "sbp_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The tuple reader."""
        return TupleReader(super().reader(schema))


def fill(address: str, rows: int) -> None:
    """Appends `rows` records of 100 bytes, 10,000 in a batch."""
    values = [b"%-100d" % number for number in range(_BATCH)]
    with sbp.connect(address) as client:
        stream = client.create_stream(STREAM)
        for _ in range(rows // _BATCH):
            stream.append(values)


def measure(spark: SparkSession, address: str, source: str, rows: int, runs: int) -> float:
    """The best rate of `runs`, in rows a second."""
    frame = (
        spark.read.format(source)
        .option("servers", address)
        .option("endingOffsets", f'{{"{STREAM}": {rows}}}')
        .schema("stream string, stream_id bigint, offset bigint, timestamp timestamp, key binary, value binary")
        .load(STREAM)
        .selectExpr("count(*)", "max(offset)", "sum(length(value))")
    )
    best = 0.0
    for run in range(runs + 1):
        started = time.perf_counter()
        found = tuple(frame.collect()[0])
        seconds = time.perf_counter() - started
        assert found == (rows, rows - 1, 100 * rows), found
        if run:
            best = max(best, rows / seconds)
    return best


def main() -> None:
    """Prints both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--tuple-rows", type=int, default=1_000_000, help="tuples are too slow for all of them")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as place, sbp.Server(data_dir=place, durability="none") as server:
        started = time.perf_counter()
        fill(server.address, arguments.rows)
        print(f"{arguments.rows:,} rows appended, {arguments.rows / (time.perf_counter() - started):,.0f} rows/s")
        builder = sbp_native.spark.configure(SparkSession.builder.master("local[2]"))
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.adaptive.enabled": "false",
        }.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.dataSource.register(TupleSource)
        arrow = measure(spark, server.address, "sbp", arguments.rows, arguments.runs)
        tuples = measure(spark, server.address, "sbp_tuples", arguments.tuple_rows, arguments.runs)
        spark.stop()
    print(f"Arrow batches {arrow:>12,.0f} rows/s, best of {arguments.runs}")
    print(f"tuples        {tuples:>12,.0f} rows/s, best of {arguments.runs}")
    print(f"ratio         {arrow / tuples:>12.1f}")


if __name__ == "__main__":
    main()
