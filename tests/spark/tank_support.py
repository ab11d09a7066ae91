"""What tests of ``format("tank")`` need: a broker whose partitions can be changed, and one to be killed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sbp_native import tank
from sbp_native.errors import SbpError
from sbp_native.spark.tank.source import TankDataSource
from sbp_native.testing import eventually
from spark.test_spark_stream_reader import Query

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from tank.broker import Running

TESTS = Path(__file__).parents[1]


def produce(address: str, topic: str, partition: int, start: int, end: int) -> None:
    """Messages that say which they are: ``topic/partition number``."""
    with tank.connect(address, timeout=20) as broker:
        for first in range(start, end, 10):
            contents = [b"%s/%d %d" % (topic.encode(), partition, n) for n in range(first, min(first + 10, end))]
            broker.produce(topic, partition, contents)


def make(address: str, topic: str, partitions: int = 1) -> None:
    """Makes a topic."""
    with tank.connect(address, timeout=20) as broker:
        broker.create_topic(topic, partitions)


def wanted(topic: str, partition: int, start: int, end: int) -> list[tuple[str, int, bytes]]:
    """The rows of `produce`, when it was the first."""
    name = f"{topic}/{partition}"
    return [(name, number, b"%s %d" % (name.encode(), number)) for number in range(start, end)]


def sparse(*numbers: int) -> bytes:
    """A bundle of at least two messages with these numbers, by hand from the page; each says its number."""
    first, last = numbers[0], numbers[-1]
    bundle = bytes([0x40 | len(numbers) << 2]) + first.to_bytes(8, "little") + bytes([last - first - 1])
    for place, (before, number) in enumerate(zip((first, *numbers), numbers, strict=False)):
        inner = 0 < place < len(numbers) - 1
        bundle += bytes([0x02 if place else 0]) + (bytes([number - before - 1]) if inner else b"")
        bundle += (1_000).to_bytes(8, "little") if place == 0 else b""
        content = b"%d" % number
        bundle += bytes([len(content)]) + content
    return bundle


def add(running: Running, topic: str, bundle: bytes) -> None:
    """Has a broker keep a bundle as it is, in partition 0."""
    running.do(lambda: running.partition(topic.encode(), 0).add(bundle))


def load(address: str, schema: str | None = None, **options: object) -> list[dict[str, Any]]:
    """A batch read, with the calls and in the order of Spark's, in this process."""
    from pyspark.sql.types import StructType

    source = TankDataSource({"broker": address, **{key: str(each) for key, each in options.items()}})
    columns = source.schema()
    if schema is not None:
        columns = StructType([field for name in schema.split(",") for field in columns if field.name == name])
    reader = source.reader(columns)
    batches: list[pa.RecordBatch] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


class TankQuery(Query):
    """A streaming query of ``format("tank")``, as `Query` is one of ``format("sbp")``."""

    def __init__(self, address: str, **options: object) -> None:
        self._options = {
            "broker": address,
            "startingOffsets": "earliest",
            **{key: str(each) for key, each in options.items()},
        }
        self.batches = []
        self.place = None
        self.restart()

    def restart(self) -> None:
        """What a new driver does: everything but the checkpoint is forgotten."""
        source = TankDataSource(self._options)
        self.reader = source.streamReader(source.schema())
        self._default = self.reader.getDefaultReadLimit()


class BrokerProcess:
    """A broker in a process of its own, to be killed; it keeps its port and its topics over a restart."""

    def __init__(self, place: Path) -> None:
        self._keep = place / "topics"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        command = [sys.executable, "-m", "tank.broker", "--port", str(self.port), "--keep", str(self._keep)]
        self.process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        eventually(self._answers)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None
        try:
            tank.connect(self.address, timeout=2).close()
        except SbpError:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
