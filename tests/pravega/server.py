"""A real Pravega server, and the tests of the client with it: `python3 -m tests.pravega.server`.

Needs Java 17 and Maven, which fetches the server (some 200 MB) once.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGET = ROOT / "target" / "pravega"
MAIN = "io.pravega.local.LocalPravegaEmulator"
OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"


def classpath() -> str:
    """Where the classes of the server are."""
    TARGET.mkdir(parents=True, exist_ok=True)
    listed = TARGET / "server.classpath"
    if not listed.exists() or listed.stat().st_mtime < (HERE / "server.xml").stat().st_mtime:
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "server.xml"), PLUGIN]
        subprocess.run([*command, f"-Dmdep.outputFile={listed}"], check=True, cwd=TARGET)
    return listed.read_text()


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def answers(port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


class Server:
    """A stand-alone server: a controller and a segment store in one process, with all data in memory."""

    def __init__(self) -> None:
        self.zookeeper, self.controller, self.store, self.rest, self.admin = free_ports(5)
        self.folder = tempfile.TemporaryDirectory(prefix="pravega-")
        settings = Path(self.folder.name) / "server.properties"
        settings.write_text(
            f"singlenode.zk.port={self.zookeeper}\n"
            f"singlenode.controller.rpc.port={self.controller}\n"
            f"singlenode.controller.rest.enable=false\n"
            f"singlenode.controller.rest.port={self.rest}\n"
            f"singlenode.segmentStore.port={self.store}\n"
            f"pravegaservice.admin.gateway.port={self.admin}\n"
        )
        opened = [option for name in OPENED for option in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
        command = ["java", "-Xmx700m", f"-Dsinglenode.configurationFile={settings}", *opened, "-cp", classpath(), MAIN]
        self.log = Path(self.folder.name) / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=self.folder.name, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        limit = time.monotonic() + 120
        while not (b"Pravega Sandbox is running" in self.log.read_bytes() and answers(self.controller)):
            if self.process.poll() is not None or time.monotonic() > limit:
                tail = self.log.read_text(errors="replace")[-4_000:]
                self.__exit__()
                sys.exit(f"the server did not start:\n{tail}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()


#: What the Python package `pravega` writes, for the client to read.
WRITES = """
import pravega_client
manager = pravega_client.StreamManager("tcp://127.0.0.1:{port}", False, False)
manager.create_scope("wheel")
manager.create_stream("wheel", "st", 2)
writer = manager.create_writer("wheel", "st")
for number in range(100):
    writer.write_event(f"event-{{number}}", routing_key=f"key-{{number % 5}}")
writer.flush()
"""


def wheel_python() -> Path:
    """The Python of an environment that has the package `pravega`, which is there for Python 3.8 to 3.11."""
    TARGET.mkdir(parents=True, exist_ok=True)
    python = TARGET / "wheel" / "bin" / "python"
    ready = TARGET / "wheel" / "ready"
    # Tests run in several processes, and one of them makes it.
    with (TARGET / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", TARGET / "wheel"], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "pravega==0.3.8"], check=True)
            ready.touch()
    return python


def write_with_wheel(server: Server) -> None:
    """Has another client write."""
    subprocess.run([wheel_python(), "-c", WRITES.format(port=server.controller)], check=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="only run the server, until its input ends")
    arguments = parser.parse_args()
    with Server() as server:
        if arguments.serve:
            print(f"controller 127.0.0.1:{server.controller}, segment store 127.0.0.1:{server.store}", flush=True)
            sys.stdin.read()
            return
        write_with_wheel(server)
        # Of the whole workspace, so that what `make test` has built is used.
        command = ["cargo", "test", "--locked", "--workspace", "--test", "pravega_server", "--", "--ignored"]
        environment = os.environ | {"SBP_PRAVEGA": f"127.0.0.1:{server.controller}"}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)


if __name__ == "__main__":
    main()
