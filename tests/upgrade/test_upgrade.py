"""Three equal servers of an earlier version on an etcd are replaced by those of this one, one at a time, and back.

Writers append and a tail reads all the while, and an administrator makes, seals and deletes. The command of the earlier
version is built from the commit that `earlier.py` names.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

import sbp_native as sbp
from clusters import Pace
from demo.servers import Servers
from sbp_native.testing import eventually
from upgrade import earlier

#: Sets are renewed, and lost servers replaced, sooner than by default.
OPTIONS = ("--renew-after", "1s", "--replace-after", "20s")
#: Further batches that show that appends go on.
MORE = 50
WRITERS = ("a", "b", "c")
TAIL = "tail of a"
#: The last record of the stream with a tail.
END = b"end"
#: The version of a range server's record in etcd that keeps how often its directory was started.
WITH_STARTS = 3
WITHIN = 60.0
#: What a placement driver says that cannot read the metadata.
CANNOT_LEAD = "cannot lead its cluster: it cannot use the metadata"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="session")
def earlier_command() -> Path:
    return earlier.command()


@pytest.fixture
def servers(earlier_command: Path, tmp_path: Path) -> Iterator[Servers]:
    """Three servers of the earlier version."""
    made = Servers(tmp_path, OPTIONS)
    for process in made.processes.values():
        process.sbp_command = earlier_command
    with made as started:
        started.wait_until_whole(within=WITHIN)
        yield started


class Traffic:
    """Writers that number their records: one with a stream of its own, which a tail reads, and two of another one."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._over = threading.Event()
        self._failures: list[str] = []
        self._acknowledged: dict[str, int] = {}
        self.paces = {name: Pace() for name in (*WRITERS, TAIL)}
        with servers.connect() as client:
            for name in ("a", "common"):
                client.create_stream(name, replicas=3, acks=2)
        self._tail = self._thread(self._read)
        appending = (("a", "a"), ("b", "common"), ("c", "common"))
        self._writers = [self._thread(self._append, who, stream) for who, stream in appending]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def goes_on(self) -> None:
        """Waits until every writer and the tail have got on."""
        wanted = {name: pace.count + MORE for name, pace in self.paces.items()}

        def all_got_on() -> bool:
            assert not self._failures, self._failures[0]
            return all(self.paces[name].count >= count for name, count in wanted.items())

        eventually(all_got_on, WITHIN)

    def check(self) -> None:
        """Ends it; every record that was acknowledged is stored once, and in the order of its writer."""
        self._end()
        assert not self._failures, self._failures[0]
        stored: dict[str, list[int]] = {name: [] for name in WRITERS}
        with self._servers.connect() as client:
            for stream in ("a", "common"):
                for batch in client.stream(stream).read():
                    for value in batch.values:
                        if value is None or value == END:
                            continue
                        writer, _, number = value.decode().partition(" ")
                        stored[writer].append(int(number))
        for writer, numbers in stored.items():
            assert numbers == list(range(self._acknowledged[writer])), writer

    def _end(self) -> None:
        self._over.set()
        for writer in self._writers:
            writer.join(WITHIN)
            assert not writer.is_alive()
        if self._tail.is_alive():
            with self._connect() as client:
                client.stream("a").append(END)
        self._tail.join(WITHIN)
        assert not self._tail.is_alive()

    def _thread(self, job: Callable[..., None], *arguments: str) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(job, *arguments), daemon=True)
        thread.start()
        return thread

    def _run(self, job: Callable[..., None], *arguments: str) -> None:
        try:
            job(*arguments)
        except Exception:
            self._failures.append(traceback.format_exc())

    def _append(self, who: str, stream: str) -> None:
        with self._connect() as client:
            writer = client.stream(stream).writer()
            for number in itertools.count():
                writer.append(f"{who} {number}".encode())
                writer.flush()
                self._acknowledged[who] = number + 1
                self.paces[who].note()
                if self._over.wait(0.01):
                    return

    def _read(self) -> None:
        with self._connect() as client:
            number = 0
            for batch in client.stream("a").tail(0):
                for record in batch.records():
                    if record.value == END:
                        return
                    assert (record.offset, record.value) == (number, b"a %d" % number)
                    number += 1
                    self.paces[TAIL].note()

    def _connect(self) -> sbp.Client:
        return sbp.connect(self._servers.address, timeout=WITHIN)


class Administrator:
    """Makes, seals and deletes streams, whichever version leads."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._kept: list[str] = []

    def works(self, when: str) -> None:
        """Some of all that."""
        with sbp.connect(self._servers.address, timeout=WITHIN) as client:
            kept, deleted = (client.create_stream(f"{what}/{when}", replicas=3, acks=2) for what in ("kept", "deleted"))
            for stream in (kept, deleted):
                stream.append(b"before")
                stream.seal()
                stream.append(b"behind")
            deleted.delete()
            self._kept.append(kept.name)

    def check(self, others: tuple[str, ...] = ("a", "common")) -> None:
        """All that was made, and not deleted, is there, and nothing but that and the `others`."""
        with self._servers.connect() as client:
            assert sorted(info.name for info in client.list_streams()) == sorted([*self._kept, *others])
            for name in self._kept:
                stored = [value for batch in client.stream(name).read() for value in batch.values]
                assert stored == [b"before", b"behind"], name


def replace(servers: Servers, name: str, command: Path) -> None:
    """Ends a server in order, and starts this command on its directory."""
    process = servers.processes[name]
    process.stop()
    process.sbp_command = command
    process.start()
    servers.wait_until_whole(within=WITHIN)


def replace_with_kills(servers: Servers, name: str, command: Path) -> None:
    """Kills a server, starts this command on its directory, kills that as soon as it answers, and starts it again."""
    process = servers.processes[name]
    process.kill()
    process.sbp_command = command
    process.start()
    process.kill()
    process.start()
    servers.wait_until_whole(within=WITHIN)


class EarlierClient:
    """The command of the earlier version, as a client of servers of whichever version."""

    def __init__(self, servers: Servers, command: Path) -> None:
        self._servers = servers
        self._command = command
        self._appended: list[str] = []
        with servers.connect() as client:
            client.create_stream("of-earlier-clients", replicas=3, acks=2)

    def works(self, when: str) -> None:
        """Appends, and reads all that was appended before."""
        lines = [f"{when} {number}" for number in range(10)]
        self._run("append", "of-earlier-clients", given="".join(f"{line}\n" for line in lines))
        self._appended += lines
        fetched = self._run("fetch", "of-earlier-clients", "--json").splitlines()
        assert [json.loads(line)["value"] for line in fetched] == self._appended
        made = f"made-{when}"
        self._run("stream", "create", made, "--replicas", "3", "--acks", "2")
        assert made in self._run("stream", "list")
        self._run("stream", "delete", made)

    def _run(self, *arguments: str, given: str = "") -> str:
        command = [str(self._command), *arguments, "--servers", self._servers.address]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=WITHIN)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def present() -> Path:
    return Path(sys.executable).with_name("sbp")


def next_of(left: list[str], leader: str, leader_first: bool) -> str:
    """The server to go on with: the one that leads before all others, or behind them."""
    ranked = sorted(left, key=lambda name: (name == leader) != leader_first)
    return ranked[0]


def record_versions(servers: Servers) -> set[int]:
    """Of the records of range servers in etcd."""
    first, behind = b"/sbp/flights/v1/server/", b"/sbp/flights/v1/server0"
    asked = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(behind).decode()}
    url = f"http://{servers.etcd.addresses}/v3/kv/range"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode()), timeout=5) as answer:
        found = json.load(answer)["kvs"]
    return {base64.b64decode(each["value"])[0] for each in found}


def verify(servers: Servers, tmp_path: Path) -> None:
    """Nothing is wrong with any directory, once all servers have ended."""
    for name, process in servers.processes.items():
        process.stop()
        done = subprocess.run(
            [str(present()), "verify", str(tmp_path / name)], capture_output=True, text=True, timeout=WITHIN
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("leader_first", [False, True], ids=["leader last", "leader first"])
def test_servers_are_upgraded_one_at_a_time(servers: Servers, tmp_path: Path, leader_first: bool) -> None:
    administrator = Administrator(servers)
    with Traffic(servers) as traffic:
        administrator.works("before")
        left = list(servers.processes)
        while left:
            traffic.goes_on()
            assert WITH_STARTS not in record_versions(servers), "a server of the earlier version could not read it"
            name = next_of(left, servers.leader(), leader_first)
            left.remove(name)
            replace(servers, name, present())
            traffic.goes_on()
            administrator.works(f"upgraded-{name}")
        # Every placement driver that lives reads the new records.
        eventually(lambda: record_versions(servers) == {WITH_STARTS}, WITHIN)
        traffic.goes_on()
        traffic.check()
        administrator.check()
    verify(servers, tmp_path)


def test_servers_that_are_killed_while_they_are_upgraded_go_on(servers: Servers, tmp_path: Path) -> None:
    administrator = Administrator(servers)
    with Traffic(servers) as traffic:
        for name in servers.processes:
            traffic.goes_on()
            replace_with_kills(servers, name, present())
            administrator.works(f"killed-{name}")
        eventually(lambda: record_versions(servers) == {WITH_STARTS}, WITHIN)
        traffic.goes_on()
        traffic.check()
        administrator.check()
    verify(servers, tmp_path)


def test_clients_of_before_go_on_with_upgraded_servers(servers: Servers, earlier_command: Path, tmp_path: Path) -> None:
    client = EarlierClient(servers, earlier_command)
    client.works("before")
    for name in servers.processes:
        replace(servers, name, present())
        client.works(f"upgraded-{name}")
    eventually(lambda: record_versions(servers) == {WITH_STARTS}, WITHIN)
    client.works("after")
    verify(servers, tmp_path)


def test_an_upgrade_that_was_begun_is_taken_back(servers: Servers, earlier_command: Path, tmp_path: Path) -> None:
    """While one server has not been upgraded yet, the others can go back."""
    administrator = Administrator(servers)
    with Traffic(servers) as traffic:
        first, second, _ = servers.processes
        for what, command in (("upgraded", present()), ("back", earlier_command)):
            for name in (first, second):
                replace(servers, name, command)
                traffic.goes_on()
                administrator.works(f"{name}-{what}")
        assert WITH_STARTS not in record_versions(servers)
        traffic.check()
        administrator.check()
    verify(servers, tmp_path)


def test_a_server_of_before_beside_upgraded_ones_serves_and_does_not_lead(
    servers: Servers, earlier_command: Path, tmp_path: Path
) -> None:
    administrator = Administrator(servers)
    with Traffic(servers) as traffic:
        for name in servers.processes:
            replace(servers, name, present())
        eventually(lambda: record_versions(servers) == {WITH_STARTS}, WITHIN)
        back = servers.leader()
        replace(servers, back, earlier_command)
        traffic.goes_on()
        administrator.works("one-of-before")
        assert servers.leader() != back
        replace(servers, back, present())
        traffic.goes_on()
        traffic.check()
        administrator.check()
    verify(servers, tmp_path)


def test_a_placement_driver_of_before_that_has_the_lease_first_does_not_keep_upgraded_ones_from_leading(
    servers: Servers, earlier_command: Path, tmp_path: Path
) -> None:
    """It cannot read the metadata, and begins term after term, milliseconds one after the other."""
    administrator = Administrator(servers)
    administrator.works("before")
    for name in servers.processes:
        replace(servers, name, present())
    eventually(lambda: record_versions(servers) == {WITH_STARTS}, WITHIN)
    for process in servers.processes.values():
        process.stop()
    back, *others = servers.processes
    servers.processes[back].sbp_command = earlier_command
    # It has not started before somebody leads.
    starts = threading.Thread(target=servers.processes[back].start, daemon=True)
    starts.start()
    eventually(lambda: CANNOT_LEAD in (tmp_path / f"{back}.log").read_text(), WITHIN)
    began = time.monotonic()
    for name in others:
        servers.processes[name].start()
    eventually(lambda: servers.leader() in others, WITHIN)
    print(f"another one led {time.monotonic() - began:.1f} s after the first of the others began to start")
    starts.join(WITHIN)
    assert not starts.is_alive()
    servers.wait_until_whole(within=WITHIN)
    administrator.works("one-of-before")
    assert servers.leader() != back
    replace(servers, back, present())
    administrator.works("after")
    administrator.check(others=())
    verify(servers, tmp_path)
