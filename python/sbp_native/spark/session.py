"""Setting up a Spark session for Python data sources."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from .source import SbpDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    # Over loopback TCP every task waits 40 ms for a delayed acknowledgement between the JVM and the Python worker.
    "spark.python.unix.domain.socket.enabled": "true",
    # Filters on streams, offsets and times choose what is read, where Spark hands them on safely.
    "spark.sql.python.filterPushdown.enabled": "true",
    # A crash in native code prints a stack instead of "worker exited unexpectedly".
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Adds the settings that a Python data source gains by, and returns the builder.

    These are Unix sockets between the JVM and Python, filter pushdown, and stacks of native crashes; what the builder
    already says of others stays. A builder with a local master gets workers of this Python, unless ``PYSPARK_PYTHON``
    says otherwise: Spark would take the ``python3`` of the path, in which this package need not be.
    """
    if str(getattr(builder, "_options", {}).get("spark.master", "")).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    return builder


def register(spark: SparkSession) -> None:
    """Makes the sources known to a session that does not find them by itself, such as one behind Spark Connect."""
    from .tank.source import TankDataSource

    spark.dataSource.register(SbpDataSource)
    spark.dataSource.register(TankDataSource)
