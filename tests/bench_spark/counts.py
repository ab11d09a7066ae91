"""What the driver does by itself: offsets and plans of many streams, and imports. Needs no JVM."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import sbp_native as sbp
from sbp_native.spark.source import SbpDataSource
from tests.bench_python.table import Row

from .session import Given, tell

STREAMS = 10_000


def _ms(action: Callable[[], Any], runs: int) -> list[float]:
    """Milliseconds of each run, the first one not counted."""
    taken = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        action()
        taken.append((time.perf_counter() - started) * 1_000)
    return taken[1:]


async def fill(address: str, names: list[str], records: list[bytes]) -> None:
    """Creates the streams, many at a time, and appends the same records to each."""
    async with sbp.aio.connect(address) as client:
        for start in range(0, len(names), 500):
            some = names[start : start + 500]
            await asyncio.gather(*(client.create_stream(name) for name in some))
            await client.append_all(dict.fromkeys(some, records))


def many(given: Given) -> None:
    """`latestOffset` and the plan of 10,000 streams with ten records each."""
    names = [f"many/{number:05}" for number in range(STREAMS)]
    asyncio.run(fill(given.address, names, [b"x"] * 10))
    options = CaseInsensitiveDict({"servers": given.address, "streams": ",".join(names), "startingOffsets": "earliest"})
    source = SbpDataSource(options)
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.streamReader(schema)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())  # type: ignore[call-arg]
    everything = _ms(lambda: reader.latestOffset(start, ReadAllAvailable()), given.runs)  # type: ignore[call-arg]
    nothing_new = _ms(lambda: reader.latestOffset(end, ReadAllAvailable()), given.runs)  # type: ignore[call-arg]
    plans = _ms(lambda: reader.partitions(start, end), given.runs)
    tasks = len(reader.partitions(start, end))
    if tasks > 256:
        raise RuntimeError(f"{STREAMS} streams became {tasks} tasks")
    tell(Row("latestOffset, 10,000 streams, all with new rows", "ms", everything, [], "", 25, 10, less_is_better=True))
    tell(Row("latestOffset, 10,000 streams, nothing new", "ms", nothing_new, [], "", 25, 10, less_is_better=True))
    tell(Row("plan of a micro-batch of 10,000 streams", "ms", plans, [], "", 150, 60, less_is_better=True))
    batch = source.reader(schema)
    plans = _ms(batch.partitions, given.runs)
    tell(Row("plan of a batch read of 10,000 streams", "ms", plans, [], "", 150, 60, less_is_better=True))


def _import_ms(before: str) -> float:
    program = f"import time\n{before}\nstarted = time.perf_counter()\nimport sbp_native, sbp_native.spark\n"
    program += "print((time.perf_counter() - started) * 1_000)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    return float(done.stdout)


def imports(given: Given) -> None:
    """Imports in fresh processes, with PySpark already there, and with all it brings."""
    # A worker has these before it unpickles a reader.
    there = "import pyspark.sql.datasource, pyspark.sql.streaming.datasource, pyspark.sql.types"
    _import_ms(there)
    alone = [_import_ms(there) for _ in range(given.runs)]
    whole = [_import_ms("") for _ in range(given.runs)]
    name = "with PySpark's own modules"
    tell(Row("import sbp_native and sbp_native.spark", "ms", alone, whole, name, 100, 40, less_is_better=True))
