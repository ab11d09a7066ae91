"""A lean Spark session: two threads, no pages, logs in a file."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import sbp_native.spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A driver lives for a minute or two, of which the optimizing compiler would take its share and give little back.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.append = false
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def start(directory: Path) -> SparkSession:
    """Starts Spark in this process; what it writes goes below `directory`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING.format(log=directory / "spark.log"))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging} {_SHORT_LIVED}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "spark-local"),
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # Every trigger's progress is read again at the end, for the rows that the watermark dropped.
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # The checkpoint is on a local disk: no checksum file beside every file.
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    builder = sbp_native.spark.configure(SparkSession.builder.master("local[2]").appName("flights of 2013"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_into(directory / "spark.err"):
        return builder.getOrCreate()


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """What the JVM and its Python workers say on their way up and down goes to a file: they inherit it as stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
