"""Three equal servers and an etcd on this machine, each a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

import sbp_native as sbp

from .service import ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_READY_WITHIN = 30.0


class Etcd:
    """An etcd of one member or of several on loopback, each a process with a directory of its own."""

    def __init__(self, place: Path, members: int = 1, certificates: Path | None = None) -> None:
        """Starts it and waits until all listen; directories and logs go below `place`.

        With `certificates`, a directory as ``sbp tls dev`` makes it, its clients have to show one, over TLS.
        Raises `RuntimeError` if there is no etcd, or if it does not listen in time.
        """
        self._place = place
        self._certificates = certificates
        self._clients = [f"127.0.0.1:{free_port()}" for _ in range(members)]
        self._peers = [f"http://127.0.0.1:{free_port()}" for _ in range(members)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for member in range(members):
                self.start_member(member)
            for member in range(members):
                self._wait(member)
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> str:
        """Where its members listen, for `--metadata`."""
        return ",".join(self._clients)

    def start_member(self, member: int) -> None:
        """Starts a member in its directory."""
        scheme = "https" if self._certificates else "http"
        client, peer = f"{scheme}://{self._clients[member]}", self._peers[member]
        command = ["etcd", "--name", f"etcd-{member}", "--data-dir", str(self._place / f"etcd-{member}")]
        if self._certificates:
            made = self._certificates
            command += ["--cert-file", str(made / "server.crt"), "--key-file", str(made / "server.key")]
            command += ["--client-cert-auth", "--trusted-ca-file", str(made / "ca.crt")]
        command += ["--log-level", "warn", "--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster"]
        command.append(",".join(f"etcd-{number}={url}" for number, url in enumerate(self._peers)))
        with self._log(member).open("ab") as log:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            except FileNotFoundError:
                raise RuntimeError("there is no etcd here: apt-get install etcd-server") from None
        self._processes[member] = process

    def leader(self) -> int:
        """The member that leads, as they say."""
        for member, client in enumerate(self._clients):
            request = urllib.request.Request(f"http://{client}/v3/maintenance/status", b"{}")
            with urllib.request.urlopen(request, timeout=5) as answer:
                status = json.load(answer)
            if status["leader"] == status["header"]["member_id"]:
                return member
        raise RuntimeError("no member of the etcd leads")

    def kill_member(self, member: int) -> None:
        """SIGKILL of one member."""
        self._processes[member].kill()
        self._processes[member].wait(_READY_WITHIN)

    def close(self) -> None:
        """Ends all of it."""
        for process in self._processes.values():
            process.kill()
            process.wait(_READY_WITHIN)

    def _wait(self, member: int) -> None:
        host, port = self._clients[member].split(":")
        deadline = time.monotonic() + _READY_WITHIN
        while time.monotonic() < deadline and self._processes[member].poll() is None:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        said = self._log(member).read_text(errors="replace")[-2000:]
        raise RuntimeError(f"etcd did not listen at {self._clients[member]}:\n{said}")

    def _log(self, member: int) -> Path:
        return self._place / f"etcd-{member}.log"


class Servers:
    """Three servers, each with both roles, that have their metadata in one etcd. They are called s1, s2 and s3."""

    def __init__(
        self,
        place: Path,
        options: Sequence[str] = (),
        etcd_members: int = 1,
        durability: str = "fsync",
        etcd_certificates: Path | None = None,
        connecting: dict[str, Any] | None = None,
    ) -> None:
        """With further `options` of ``sbp serve`` for each; directories and logs go below `place`. None is started.

        `connecting` is what clients are given beside the addresses; `etcd_certificates` as for `Etcd`.
        """
        self.etcd = Etcd(place, etcd_members, etcd_certificates)
        self._connecting = connecting or {}
        self.processes: dict[str, ServerProcess] = {}
        for name in ("s1", "s2", "s3"):
            process = ServerProcess(place / name, place / f"{name}.log")
            process.durability = durability
            process.connecting = self._connecting
            metadata = f"etcd://{self.etcd.addresses}/flights"
            process.options = ("--advertise", process.address, "--metadata", metadata, *options)
            self.processes[name] = process

    @property
    def address(self) -> str:
        """The addresses of all."""
        return ",".join(process.address for process in self.processes.values())

    def connect(self) -> sbp.Client:
        """A client of all three."""
        return sbp.connect(self.address, **self._connecting)

    def name(self, address: str) -> str:
        """Which of them is dialled there."""
        return next(name for name, process in self.processes.items() if process.address == address)

    def leader(self) -> str:
        """Which of them leads the placement drivers, or nothing while none does."""
        with self.connect() as client:
            leader = client.cluster().leader
        return "" if leader is None else self.name(leader.address)

    def wait_until_whole(self, within: float = 120.0) -> None:
        """Returns when all three are up and every range is, whole, on as many servers as wanted.

        Raises `TimeoutError` with what is missing.
        """
        deadline = time.monotonic() + within
        with self.connect() as client:
            while lacks := missing(client, len(self.processes)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"after {within:.0f} s the cluster is not whole: {lacks}")
                time.sleep(0.5)

    def start(self) -> float:
        """Starts all of them, one after the other; returns the seconds that took."""
        return sum(process.start() for process in self.processes.values())

    def stop(self) -> None:
        """Ends them and the etcd."""
        for process in self.processes.values():
            process.stop()
        self.etcd.close()

    def stored_bytes(self) -> int:
        """The size of all three directories."""
        return sum(process.stored_bytes() for process in self.processes.values())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def missing(client: sbp.Client, servers: int) -> str:
    """What a cluster of so many servers lacks, or nothing if every range is on as many servers as wanted, and whole."""
    try:
        cluster = client.cluster()
        # A range that was sealed a moment ago is not counted among those that wait for a copy yet.
        few = sum(
            len(each.servers) < stream.replicas
            for stream in client.list_streams()
            for each in client.describe_ranges(stream.name)
        )
    except sbp.SbpError as error:
        return str(error)
    known = cluster.range_servers
    if known is None:
        return "nobody leads"
    up = [server for server in known if server.is_up]
    counts = {
        "servers": servers - len(up),
        "ranges on too few servers": few,
        "ends of sealed ranges": sum(server.incomplete_ranges for server in up),
        "copies under way": cluster.copies_under_way,
        "copies that wait": cluster.ranges_waiting_for_a_copy,
        "ranges on servers that are away": sum(
            server.open_ranges + server.followed_ranges + server.sealed_ranges for server in known if not server.is_up
        ),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
