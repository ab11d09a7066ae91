"""The measuring process: a Spark session, queries with the clock and the CPU beside them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

import sbp_native.spark
from tests.bench_python.table import Row

from .fakes import FakeSource
from .processes import tree_seconds, worker_seconds
from .tuples import TupleSource


@dataclass(frozen=True)
class Given:
    """What a part is told: where the servers are, how much to measure."""

    part: str
    address: str
    server: int
    runs: int
    rows: int
    place: str
    broker: str = ""
    broker_pid: int = 0
    class_path: str = ""


@dataclass(frozen=True)
class Taken:
    """What one run took."""

    rows: int
    seconds: float
    cpu: float
    worker_cpu: float

    @property
    def rate(self) -> float:
        """Millions of rows a second."""
        return self.rows / self.seconds / 1e6

    @property
    def cpu_us(self) -> float:
        """CPU of Spark, its workers and the server, for each row."""
        return self.cpu / self.rows * 1e6

    @property
    def worker_us(self) -> float:
        """CPU of Spark's Python processes, for each row."""
        return self.worker_cpu / self.rows * 1e6


@dataclass
class Bench:
    """One Spark session with two task slots, and what is asked of it."""

    given: Given
    spark: SparkSession = field(init=False)

    def __post_init__(self) -> None:
        builder = sbp_native.spark.configure(SparkSession.builder.master("local[2]").appName("bench"))
        settings = {
            "spark.driver.memory": "4g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": f"{self.given.place}/local",
            "spark.sql.warehouse.dir": f"{self.given.place}/warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.parquet.compression.codec": "uncompressed",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.log.level": "ERROR",
        }
        if self.given.class_path:
            settings["spark.driver.extraClassPath"] = self.given.class_path
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        for source in (FakeSource, TupleSource):
            self.spark.dataSource.register(source)
        self._jvm: int = self.spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]

    def read(self, **options: object) -> DataFrameReader:
        """The package's batch source."""
        return self.spark.read.format("sbp").option("servers", self.given.address).options(**options)  # type: ignore[arg-type]

    def write(self, frame: DataFrame, **options: object) -> DataFrameWriter:
        """The package's batch sink."""
        writer = frame.write.format("sbp").mode("append").option("servers", self.given.address)
        return writer.options(**options)  # type: ignore[arg-type]

    def kafka(self, topic: str, **options: object) -> DataFrame:
        """A read from the broker."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.given.broker)
        return reader.option("subscribe", topic).options(**options).load()  # type: ignore[arg-type]

    def fill_kafka(self, frame: DataFrame, topic: str, **options: object) -> None:
        """A write to the broker."""
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self.given.broker)
        writer.option("topic", topic).options(**options).save()  # type: ignore[arg-type]

    @contextlib.contextmanager
    def topics(self, *names: str, partitions: int) -> Iterator[None]:
        """Topics of the broker, deleted at the end of the block."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.given.broker})
        for made in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            made.result(30)
        try:
            yield
        finally:
            for gone in admin.delete_topics(list(names)).values():
                gone.result(30)

    def rows_file(self, rows: int) -> DataFrame:
        """`rows` different values of 100 bytes, from an uncompressed Parquet file: the cheapest input Spark has."""
        place = f"{self.given.place}/rows-{rows}.parquet"
        if not os.path.exists(place):
            values = self.spark.range(0, rows, 1, 2).selectExpr("cast(lpad(string(id), 100, 'x') as binary) value")
            values.write.parquet(place)
        return self.spark.read.parquet(place)

    def cpu_seconds(self) -> float:
        """CPU so far of Spark, its workers, the server and the broker."""
        return tree_seconds(
            [os.getpid(), self.given.server, *([self.given.broker_pid] if self.given.broker_pid else [])]
        )

    def timed(self, rows: int, action: Callable[[], Any]) -> Taken:
        """Runs the action, and says what it took."""
        cpu, worker_cpu, started = self.cpu_seconds(), worker_seconds(self._jvm), time.perf_counter()
        action()
        seconds = time.perf_counter() - started
        return Taken(rows, seconds, self.cpu_seconds() - cpu, worker_seconds(self._jvm) - worker_cpu)

    def in_turns(self, *roads: Callable[[], Taken]) -> list[list[Taken]]:
        """Each road once to warm up, then all of them in turns."""
        for road in roads:
            road()
        taken = [[road() for road in roads] for _ in range(self.given.runs)]
        return [list(runs) for runs in zip(*taken, strict=True)]


def discard(frame: DataFrame) -> None:
    """Reads every row of the frame and drops it."""
    frame.write.format("noop").mode("overwrite").save()


def checked(frame: DataFrame, wanted: object) -> None:
    """Raises `RuntimeError` unless the first column of the first row is this: what is measured was done."""
    found = frame.collect()[0][0]
    if found != wanted:
        raise RuntimeError(f"{found} came back, {wanted} was expected")


def tell(row: Row) -> None:
    """Hands a row to the parent process."""
    print(json.dumps(asdict(row)), file=sys.stdout, flush=True)
