"""Our server, and the clients of Pravega as others made them: `python3 -m tests.pravega.ours --client java`.

The package `pravega` for Python is fetched from its registry, into an environment of its own; the client for Java is
fetched with Maven.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from .server import HERE, classpath, free_ports, wheel_python

#: How long a client may take for what it is asked, in seconds.
PATIENCE = 240
#: Longer than either client waits for an answer, in seconds.
PAUSE = 35.0

Client = Callable[[str], Sequence[str]]


def wheel(controller: str) -> Sequence[str]:
    """The command of the package for Python, without what it is asked to do."""
    return [str(wheel_python()), str(HERE / "wheel.py"), controller]


def java(controller: str) -> Sequence[str]:
    """The command of the client for Java, without what it is asked to do."""
    return ["java", "-cp", classpath(), str(HERE / "StockClient.java"), controller]


CLIENTS: dict[str, Client] = {"wheel": wheel, "java": java}


class Ours:
    """`sbp serve` in a process of its own, which can be killed and started again at the same addresses."""

    def __init__(self, sbp: str | None = None) -> None:
        self.sbp = sbp or str(Path(sys.executable).parent / "sbp")
        self.folder = tempfile.TemporaryDirectory(prefix="sbp-pravega-")
        native, pravega = free_ports(2)
        self.address, self.pravega = f"127.0.0.1:{native}", f"127.0.0.1:{pravega}"
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
        self.folder.cleanup()

    def start(self) -> None:
        """Returns when clients are served."""
        data = str(Path(self.folder.name) / "data")
        addresses = ["--listen", self.address, "--pravega-listen", self.pravega]
        self.process = subprocess.Popen(
            [self.sbp, "serve", "--data-dir", data, *addresses], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("Pravega on "):
                return
        status = self.process.wait()
        self.__exit__()
        raise RuntimeError(f"the server did not start: exit status {status}")

    def kill(self) -> None:
        """Ends it without a word."""
        if self.process is not None:
            assert self.process.stdout is not None
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def pause(self, seconds: float) -> None:
        """Has it stand still for so long."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)


def told(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """What a client tells; what its libraries print is left out."""
    for line in lines:
        if line.startswith("{"):
            yield json.loads(line)


def ask(client: Client, server: Ours, *asked: str) -> dict[str, Any]:
    """Has a client do something to its end, and returns the last thing that it tells."""
    return ask_at(client, server.pravega, *asked)


def ask_at(client: Client, address: str, *asked: str) -> dict[str, Any]:
    """The same, of whoever serves clients at this address."""
    command = [*client(address), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{asked}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    *_, last = told(iter(done.stdout.splitlines()))
    return last


def check_events(events: Sequence[str], count: int) -> None:
    """Each of the numbered events is there once, and those with one key in their order."""
    seen: dict[str, list[int]] = {}
    for event in events:
        key, number = event.split(":")
        seen.setdefault(key, []).append(int(number))
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(count))
    for key, numbers in seen.items():
        assert numbers == sorted(numbers), f"events with key {key} are out of order: {numbers}"


def read_and_check(client: Client, server: Ours, stream: str, count: int, readers: int = 1) -> None:
    """Reads a stream with a reader group."""
    scope, name = stream.split("/")
    events = ask(client, server, "read", scope, name, f"group-{name}", str(count), str(readers))["events"]
    check_events(events, count)


def streams_and_groups(client: Client, server: Ours) -> None:
    """Events are written and read with a group of two readers, and bytes are written, read and truncated."""
    assert ask(client, server, "write", "sc", "plain", "2", "500") == {"stored": 500}
    read_and_check(client, server, "sc/plain", 500, readers=2)
    stored = ask(client, server, "bytes", "sc", "bytes")
    assert all(stored.pop("same"))
    assert stored == {"tail": 102_400, "head": 50_001}


def interrupted(
    client: Client, server: Ours, stream: str, count: int, interrupt: Callable[[], None], times: int
) -> None:
    """Events are written while the server is interrupted, and each is stored once."""
    scope, name = stream.split("/")
    command = [*client(server.pravega), "write", scope, name, "2", str(count)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as writer,
    ):
        assert writer.stdout is not None
        due = [count * (number + 1) // (times + 1) for number in range(times)]
        stored = 0
        try:
            for line in told(writer.stdout):
                stored = line["stored"]
                if due and stored >= due[0]:
                    del due[0]
                    # It goes on writing meanwhile.
                    interrupt()
            status = writer.wait(PATIENCE)
        finally:
            writer.kill()
        errors.seek(0)
        assert (status, stored, due) == (0, count, []), errors.read()[-4_000:]
    read_and_check(client, server, stream, count)


def killed(client: Client, server: Ours) -> None:
    """The server is killed amid appends, and started again."""

    def kill() -> None:
        server.kill()
        server.start()

    interrupted(client, server, "sc/killed", 5_000, kill, 4)


def paused(client: Client, server: Ours) -> None:
    """The server stands still for longer than clients wait."""
    interrupted(client, server, "sc/paused", 2_000, lambda: server.pause(PAUSE), 1)


def beside_a_gateway(client: Client, server: Ours) -> None:
    """Two clients write to a stream that both make, one of them over a gateway: each event of both is stored once."""
    command = [server.sbp, "gateway", "--servers", server.address, "--pravega-listen", "127.0.0.1:0", "--log", "warn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway, ThreadPoolExecutor() as threads:
        try:
            assert gateway.stdout is not None
            address = gateway.stdout.readline().removeprefix("Pravega on ").strip()
            asked = ("write", "sc", "two", "2", "500")
            writing = [threads.submit(ask_at, client, to, *asked) for to in (server.pravega, address)]
            assert [each.result() for each in writing] == [{"stored": 500}] * 2
            events = ask_at(client, address, "read", "sc", "two", "group-two", "1000", "1")["events"]
        finally:
            gateway.kill()
    assert sorted(Counter(events).values()) == [2] * 500


def wheel_admin(server: Ours) -> None:
    """Scopes and streams, as the package for Python knows them."""
    result = ask(wheel, server, "admin")
    assert result["made"] == [True, False, True, False, True]
    assert [sorted(tags) for tags in result["tags"]] == [["blue", "green"], ["red"]]
    assert result["changed"] is True
    assert result["listed"] == [["admin"], ["other", "st"]]
    assert result["ended"] == [True] * 5


def java_admin(server: Ours) -> None:
    """Scopes and streams, as the client for Java knows them."""
    result = ask(java, server, "admin")
    assert result["made"] == [True, False, True, False, True, True, False]
    assert (result["scopes"], result["streams"]) == (["jadmin"], ["st"])
    assert result["changed"] == [True, True]
    assert result["ended"] == [True, True, True]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--sbp", help="the command to run as `sbp`; that of this environment, if it is left out")
    parser.add_argument("--only", choices=["admin", "streams", "killed", "paused", "gateway"], help="one part of it")
    arguments = parser.parse_args()
    client = CLIENTS[arguments.client]
    admin = {"wheel": wheel_admin, "java": java_admin}[arguments.client]
    parts: dict[str, Callable[[Ours], None]] = {
        "admin": admin,
        "streams": lambda server: streams_and_groups(client, server),
        "killed": lambda server: killed(client, server),
        "paused": lambda server: paused(client, server),
        "gateway": lambda server: beside_a_gateway(client, server),
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            began = time.monotonic()
            with Ours(arguments.sbp) as server:
                part(server)
            print(f"{arguments.client}: {name} in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
