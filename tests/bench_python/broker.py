"""Real Kafka brokers on loopback: KRaft nodes, each broker and controller, whose jars Maven resolves."""

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
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
default.replication.factor={nodes}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={nodes}
transaction.state.log.replication.factor={nodes}
transaction.state.log.min.isr={in_sync}
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


class Broker:
    """One node, in a process of its own. It keeps its directory and its address when it is started again."""

    def __init__(self, directory: Path, port: int) -> None:
        """Of a directory that is formatted and has the node's settings."""
        self._directory = directory
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it. It may take some seconds until it listens."""
        with (self._directory / "broker.log").open("a") as log:
            command = [*_java(), "kafka.Kafka", str(self._directory / "server.properties")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it takes connections."""
        assert self._process is not None
        _wait(self._port, self._process, self._directory / "broker.log")

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=30)

    def stop(self) -> None:
        """Ends it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()


def _java() -> list[str]:
    return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", f"{jars()}/*"]


@contextlib.contextmanager
def brokers(nodes: int, *, fsync: bool = False) -> Iterator[list[Broker]]:
    """So many brokers on directories that are gone afterwards, by their numbers from 1. Topics are on all of them, and
    with three of them what two have is acknowledged.

    With `fsync` each syncs each append before it acknowledges it (`log.flush.interval.messages=1`).
    """
    with tempfile.TemporaryDirectory(prefix="sbp-bench-kafka-") as root:
        ports = {node: (_free_port(), _free_port()) for node in range(1, nodes + 1)}
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        running = []
        try:
            for node, (broker, controller) in ports.items():
                directory = Path(root) / str(node)
                directory.mkdir()
                config = directory / "server.properties"
                settings = _CONFIG.format(
                    node=node,
                    nodes=nodes,
                    in_sync=nodes // 2 + 1,
                    voters=",".join(f"{each}@127.0.0.1:{port}" for each, (_, port) in ports.items()),
                    broker=broker,
                    controller=controller,
                    logs=directory / "logs",
                    flush="log.flush.interval.messages=1" if fsync else "",
                )
                config.write_text(settings)
                tool = [*_java(), "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(config)]
                with (directory / "broker.log").open("w") as log:
                    subprocess.run(tool, check=True, stdout=log, stderr=log, timeout=120)
                running.append(Broker(directory, broker))
                running[-1].start()
            for each in running:
                each.wait()
            yield running
        finally:
            for each in running:
                each.stop()


@contextlib.contextmanager
def kafka(*, fsync: bool = False) -> Iterator[tuple[str, int]]:
    """One broker, as `brokers` has it: its address and process id."""
    with brokers(1, fsync=fsync) as (broker,):
        yield broker.address, broker.pid


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
