"""A real Kafka broker on loopback: one KRaft node whose jars Maven resolves."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

POM = Path(__file__).parent / "broker.xml"
JARS = Path(__file__).parents[2] / "target" / "bench-python" / "kafka"

_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
num.partitions=1
message.max.bytes=33554432
log.segment.delete.delay.ms=0
{flush}
"""


def jars() -> Path:
    """The broker's jars, resolved once."""
    if not any(JARS.glob("kafka_2.13-*.jar")):
        JARS.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(POM), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={JARS}", "-DincludeScope=runtime"], check=True, timeout=600)
    return JARS


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def kafka(*, fsync: bool = False) -> Iterator[tuple[str, int]]:
    """A broker on a directory that is gone afterwards: its address and process id.

    With `fsync` it syncs each append before it acknowledges it (`log.flush.interval.messages=1`).
    """
    classpath = f"{jars()}/*"
    with tempfile.TemporaryDirectory(prefix="sbp-bench-kafka-") as root:
        directory = Path(root)
        broker, controller = _free_port(), _free_port()
        flush = "log.flush.interval.messages=1" if fsync else ""
        config = directory / "server.properties"
        config.write_text(_CONFIG.format(broker=broker, controller=controller, logs=directory / "logs", flush=flush))
        java = ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", classpath]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with (directory / "broker.log").open("w") as log:
            tool = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(config)]
            subprocess.run(tool, check=True, stdout=log, stderr=log, timeout=120)
            child = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
            try:
                _wait(broker, child, directory / "broker.log")
                yield f"127.0.0.1:{broker}", child.pid
            finally:
                child.terminate()
                try:
                    child.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait(timeout=30)


def _wait(port: int, child: subprocess.Popen[bytes], log: Path) -> None:
    """Until the broker takes connections."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"the broker ended with {child.returncode}:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not listen within two minutes:\n{log.read_text()[-2000:]}")
