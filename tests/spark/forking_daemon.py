"""A user's ``spark.python.daemon.module`` that works with the package before Spark has it fork workers."""

from __future__ import annotations

import os

from pyspark.daemon import manager

from spark import forks

if __name__ == "__main__":
    # Its standard output is Spark's: nothing may be printed.
    forks.kept(os.environ["FORKING_DAEMON_SERVERS"]).stream(os.environ["FORKING_DAEMON_STREAM"]).append(b"daemon")
    manager()
