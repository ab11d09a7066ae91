"""One part in a process of its own, started by `python -m tests.bench_spark`: rows go to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from . import batches, counts, reads, writes
from .session import Bench, Given

_WITH_SPARK: dict[str, Callable[[Bench], None]] = {
    "read": reads.read,
    "typed": reads.typed,
    "spread": reads.spread,
    "write": writes.write,
    "batches": batches.batches,
    "kafka-read": reads.kafka_read,
    "kafka-typed": reads.kafka_typed,
    "kafka-write": writes.kafka_write,
    "kafka-batches": batches.kafka_batches,
}
_WITHOUT: dict[str, Callable[[Given], None]] = {"many": counts.many, "imports": counts.imports}


def main() -> None:
    """Measure what the argument, a JSON object, says."""
    given = Given(**json.loads(sys.argv[1]))
    if given.part in _WITHOUT:
        _WITHOUT[given.part](given)
        return
    bench = Bench(given)
    try:
        _WITH_SPARK[given.part](bench)
    finally:
        bench.spark.stop()


if __name__ == "__main__":
    main()
