"""Spark's batch read, against the same rows as Python tuples."""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import sbp_native.spark

from .tuples import TupleSource


def session() -> SparkSession:
    """Local Spark with two cores."""
    # Spark looks for data sources, and runs its workers, with this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    builder = builder.config("spark.driver.memory", "4g").config("spark.sql.shuffle.partitions", "2")
    spark = sbp_native.spark.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TupleSource)
    return spark


def _rows_a_second(frame: DataFrame, rows: int) -> float:
    started = time.perf_counter()
    counted = frame.groupBy("stream").agg(sql.count("*"), sql.max("offset"), sql.sum(sql.length("value"))).collect()
    elapsed = time.perf_counter() - started
    if counted[0][1] != rows:
        raise RuntimeError(f"{counted[0][1]} rows came back, {rows} were appended")
    return rows / elapsed


def batch_read(spark: SparkSession, address: str, stream: str, rows: int) -> float:
    """Rows a second of a grouped aggregation over all columns, through the data source."""
    frame = spark.read.format("sbp").option("servers", address).load(stream)
    return _rows_a_second(frame, rows)


def tuple_read(spark: SparkSession, address: str, stream: str, rows: int) -> float:
    """The same over tuples. `rows` may be fewer: the rate is what counts."""
    frame = spark.read.format("sbp_tuples").option("servers", address).option("rows", str(rows))
    return _rows_a_second(frame.option("partitions", "2").load(stream), rows)
