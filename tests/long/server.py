"""A server in its own process, what it uses, and a healthy client beside the abuse."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import wire

PATIENCE = 60.0


@dataclass
class Latency:
    """What a healthy client saw: one append of 64 bytes after the other."""

    appends_per_second: float
    p50_us: float
    p99_us: float


class Server:
    """`sbp serve` on a directory of its own."""

    def __init__(
        self, binary: Path, process: subprocess.Popen[str], listening: str, client: tuple[str, ...] = ()
    ) -> None:
        self.binary = binary
        self.process = process
        self.speaks_tls = listening.startswith("sbps://")
        host, port = listening.removeprefix("sbps://").rsplit(":", 1)
        self.address = (host, int(port))
        #: What a command says to be served.
        self.client = ("--servers", listening, *client)

    def other_listener(self) -> tuple[str, int]:
        """Where it listens for clients of another protocol, which it prints behind its own address."""
        assert self.process.stdout is not None
        host, port = self.process.stdout.readline().split()[-1].rsplit(":", 1)
        return host, int(port)

    def memory(self) -> tuple[int, int]:
        """Resident bytes now, and at most since the last `reset_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in status.splitlines() if line.endswith("kB")}
        return sizes["VmRSS"], sizes["VmHWM"]

    def descriptors(self) -> list[str]:
        """What its descriptors are."""
        links = []
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(entry))
        return links

    def reset_peak(self) -> None:
        """From here on the peak counts anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        """Processor time of all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def thread_seconds(self, name: str) -> float:
        """Processor time of its threads of that name."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def dial(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection that has been greeted: its PING was answered."""
        peer = socket.create_connection(self.address, timeout=PATIENCE, source_address=(source, 0))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(wire.frame(wire.PING, 1))
        receive(peer, 20)
        return peer

    def run(self, *arguments: str) -> str:
        """A command of `sbp` against this server."""
        command = [str(self.binary), *arguments, *self.client]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout

    @contextlib.contextmanager
    def healthy_client(self, seconds: float) -> Iterator[list[Latency]]:
        """Appends beside what the body does; the list has its figures when the body is done."""
        command = [str(self.binary), "bench", "append", *self.client, "--concurrency", "1"]
        command += ["--seconds", str(round(seconds)), "--json"]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        seen: list[Latency] = []
        try:
            yield seen
            out, _ = client.communicate(timeout=seconds + PATIENCE)
            figures = json.loads(out)
            latency = [float(figures[name]) for name in ("appends_per_s", "p50_us", "p99_us")]
            seen.append(Latency(*latency))
        finally:
            client.kill()
            client.wait()

    def latency(self, seconds: float) -> Latency:
        """The same with nothing beside it."""
        with self.healthy_client(seconds) as seen:
            pass
        return seen[0]


def receive(peer: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    out = b""
    while len(out) < count:
        piece = peer.recv(count - len(out))
        if not piece:
            raise ConnectionError(f"closed after {len(out)} of {count} bytes")
        out += piece
    return out


@contextlib.contextmanager
def serve_known(binary: Path, *options: str, tls: bool) -> Iterator[Server]:
    """As `serve`, and the server asks who its clients are; with `tls` it speaks nothing else."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        names, token, certificates = folder / "names.jsonl", folder / "token", folder / "tls"
        grants = [word for right in ("read", "write", "admin") for word in ("--allow", f"{right}:*")]
        create = [str(binary), "token", "create", "healthy", *grants, "--auth", str(names)]
        token.write_text(subprocess.run(create, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout)
        client: tuple[str, ...] = ("--token-file", str(token))
        options = ("--auth", str(names), *options)
        if tls:
            subprocess.run(
                [str(binary), "tls", "dev", str(certificates)], check=True, timeout=PATIENCE, capture_output=True
            )
            options += ("--tls-cert", f"{certificates}/server.crt", "--tls-key", f"{certificates}/server.key")
            client += ("--tls-ca", f"{certificates}/ca.crt")
        with serve(binary, *options, client=client) as server:
            yield server


@contextlib.contextmanager
def serve(binary: Path, *options: str, client: tuple[str, ...] = ()) -> Iterator[Server]:
    """A server for as long as the body runs. It must still be there at the end, and go down cleanly."""
    with tempfile.TemporaryDirectory() as directory:
        command = [str(binary), "serve", "--data-dir", directory, "--listen", "127.0.0.1:0", "--durability", "none"]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield Server(binary, process, process.stdout.readline().split()[-1], client)
            assert process.poll() is None, "the server is gone"
            process.terminate()
            assert process.wait(timeout=PATIENCE) == 0
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def settle(seconds: float = 1.0) -> None:
    """Lets what was closed go away before the next measurement."""
    time.sleep(seconds)
