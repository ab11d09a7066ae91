"""What forks the Python workers of the tests' sessions: it has imported what each of them would import for itself.

A session forks hundreds of workers, and each took half a second of a processor or more for it.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
