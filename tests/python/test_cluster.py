"""Streams with several copies on servers in this process: what happens when one of them is away."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

import sbp_native as sbp
from python.pauses import pause
from sbp_native import testing

if TYPE_CHECKING:
    from collections.abc import Iterator


def values(stream: sbp.Stream) -> list[bytes | None]:
    return [value for batch in stream.read() for value in batch.values]


@pytest.fixture
def cluster() -> Iterator[testing.Cluster]:
    with testing.Cluster(3) as cluster:
        yield cluster


def test_a_stream_with_three_copies_survives_each_server_in_turn(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        wanted = []
        for number in range(3):
            for when in ("before", "while"):
                if when == "while":
                    cluster.stop(number)
                value = f"{when} {number}".encode()
                stream.append(value)
                wanted.append(value)
            cluster.start(number)
        assert values(stream) == wanted


def test_a_writer_goes_through_a_takeover(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        with stream.writer() as writer:
            for number in range(600):
                if number == 200:
                    cluster.stop(0)
                if number == 400:
                    cluster.start(0)
                    cluster.stop(1)
                writer.append(b"%d" % number)
        assert values(stream) == [b"%d" % number for number in range(600)]


@pytest.mark.parametrize("read_from", ["primary", "any"])
def test_a_tail_goes_through_takeovers(cluster: testing.Cluster, read_from: Literal["primary", "any"]) -> None:
    seen: list[bytes | None] = []
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)

        def follow() -> None:
            with sbp.connect(cluster.address, timeout=30, read_from=read_from) as other:
                for batch in other.stream("orders").tail("earliest"):
                    seen.extend(batch.values)
                    if len(seen) == 40:
                        return

        tail = threading.Thread(target=follow, daemon=True)
        tail.start()
        for number in range(40):
            if number in (10, 20, 30):
                cluster.stop(number // 10 - 1)
            stream.append(b"%d" % number)
            if number in (15, 25, 35):
                cluster.start(number // 10 - 1)
        tail.join(60)
        assert seen == [b"%d" % number for number in range(40)]


def test_reads_are_spread_over_the_copies(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append([b"%d" % number for number in range(100)])
        expected = values(stream)
        assert len(expected) == 100
    # Each client begins with a server that chance has chosen.
    for _ in range(20):
        with sbp.connect(cluster.address, read_from="any") as client:
            assert values(client.stream("orders")) == expected
    with pytest.raises(ValueError, match='read_from is "primary" or "any", not "nearest"'):
        sbp.connect(cluster.address, read_from="nearest")  # type: ignore[arg-type]


@contextlib.contextmanager
def range_servers(directory: Path, driver: sbp.Server) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Three range servers in processes of their own, by their addresses."""
    command = [str(Path(sys.executable).with_name("sbp")), "serve", "--log", "error", "--listen", "127.0.0.1:0"]
    command += ["--role", "range-server", "--placement-driver", driver.address, "--durability", "none", "--data-dir"]
    with contextlib.ExitStack() as stack:
        processes = {}
        for number in range(3):
            arguments = [*command, str(directory / str(number)), "--zone", f"rack {number}"]
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            processes[process.stdout.readline().split()[-1]] = process
        yield processes


def test_servers_say_where_they_stand(tmp_path: Path) -> None:
    with (
        sbp.Server(role="placement-driver", durability="none") as driver,
        range_servers(tmp_path, driver) as processes,
        sbp.connect(driver.address) as client,
    ):

        def zones() -> dict[str, str | None]:
            return {server.address: server.zone for server in client.cluster().range_servers or [] if server.is_up}

        expected = {address: f"rack {number}" for number, address in enumerate(processes)}
        end = time.monotonic() + 20
        while zones() != expected:
            assert time.monotonic() < end, zones()
        command = [str(Path(sys.executable).with_name("sbp")), "cluster", "status", "--servers", driver.address]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True).stdout
        assert "ZONE" in shown
        assert all(zone in shown for zone in expected.values()), shown
        told = json.loads(subprocess.run([*command, "--json"], capture_output=True, timeout=40, check=True).stdout)
        assert {server["zone"] for server in told["range_servers"]} == set(expected.values())


def test_a_primary_that_is_paused_is_done_without(tmp_path: Path) -> None:
    wanted: list[bytes | None] = [b"%d" % number for number in range(300)]
    driver = sbp.Server(role="placement-driver", durability="none")
    with (
        driver,
        range_servers(tmp_path, driver) as processes,
        sbp.connect(driver.address, timeout=40) as client,
        sbp.connect(driver.address, timeout=40) as other,
    ):
        stream = client.create_stream("orders", replicas=3, acks=2)
        with stream.writer() as writer:
            for value in wanted[:100]:
                writer.append(value)
            writer.flush()
            # What another client knows is where the paused server is, too.
            read = other.stream("orders")
            assert values(read) == wanted[:100]
            (primary, *_) = stream.describe_ranges()[-1].servers
            pause(processes[primary])
            for value in wanted[100:200]:
                writer.append(value)
            writer.flush()
            assert values(read) == wanted[:200]
            processes[primary].send_signal(signal.SIGCONT)
            for value in wanted[200:]:
                writer.append(value)
        assert values(stream) == values(read) == wanted


def test_a_primary_that_was_stopped_is_another_one(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        first = cluster.primary(stream)
        cluster.stop(first)
        stream.append(b"x")
        assert cluster.primary(stream) != first


def test_what_the_package_makes_for_itself_has_as_many_copies(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        client.create_stream("plain")
        client.create_stream("orders", replicas=3, acks=2)
        client.cursor("one", "plain")
        client.cursor("several", ["plain", "orders"])
        keyed = client.keyed("keyed", 2, replicas=3)
        copies = {info.name: (info.replicas, info.acks) for info in client.list_streams()}
        assert copies["_sbp/cursors/one"] == (1, 1)
        assert copies["_sbp/cursors/several"] == (3, 2)
        assert [copies[name] for name in keyed] == [(3, 2)] * 2
        # Those that are missing are made like the first.
        client.delete_stream("keyed-1")
        assert [client.describe_stream(name).replicas for name in client.keyed("keyed", 2)] == [3, 3]


def test_a_cursor_outlives_its_server(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append([b"first", b"second"])
        for batch in client.cursor("billing", "orders").read():
            client.cursor("billing", "orders").commit(batch)
        cluster.lose(cluster.primary(client.stream("_sbp/cursors/billing")))
        assert client.cursor("billing", "orders").positions == {"orders": 2}


def test_copies_that_cannot_be_had_are_told(cluster: testing.Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        with pytest.raises(sbp.InvalidRequestError, match="ack_count 3 is more than replica_nums 2"):
            client.create_stream("orders", replicas=2, acks=3)
        with pytest.raises(sbp.UnavailableError, match="need at least 4 range servers; 3 are up") as caught:
            client.create_stream("orders", replicas=7)
        assert caught.value.code == 1502
        # As many as acknowledge are there: it opens on those.
        [opened] = client.create_stream("wide", replicas=5).describe_ranges()
        assert (len(opened.servers), opened.replicas, opened.acks) == (3, 5, 3)
        assert "one server alone acknowledges" not in caplog.text
        client.create_stream("risky", replicas=3, acks=1)
        said = 'stream "risky" (2) is to have 3 copies, and one server alone acknowledges an append'
        testing.eventually(lambda: said in caplog.text)
        info = client.update_stream("risky", acks=2)
        assert (info.replicas, info.acks) == (3, 2)
        info = client.stream("risky").update(replicas=1)
        assert (info.replicas, info.acks) == (1, 1)


def test_the_command_says_the_same(cluster: testing.Cluster) -> None:
    def create(*arguments: str) -> tuple[int, str]:
        command = [str(Path(sys.executable).with_name("sbp")), "stream", "create", *arguments]
        command += ["--servers", cluster.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
        return done.returncode, done.stderr

    status, said = create("orders", "--replicas", "2", "--acks", "3")
    assert (status, "[SBP-0002] ack_count 3 is more than replica_nums 2" in said) == (1, True), said
    status, said = create("orders", "--replicas", "7")
    assert (status, "[SBP-1502] 7 replicas of which 4 acknowledge need at least 4" in said) == (1, True), said
    assert create("orders", "--replicas", "3", "--acks", "2") == (0, "")
    status, said = create("risky", "--replicas", "3", "--acks", "1")
    assert (status, said.startswith('warning: stream "risky" (2) is to have 3 copies')) == (0, True), said


def test_with_too_few_servers_nothing_opens_and_appends_wait(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append(b"before")
        first = cluster.primary(stream)
        cluster.stop(first)
        stream.append(b"one away")
        second = cluster.primary(stream)
        cluster.stop(second)
        with stream.writer() as writer:
            writer.append(b"two away")
            with pytest.raises(sbp.SbpError) as caught:
                writer.flush(timeout=3)
            assert isinstance(caught.value, TimeoutError)
            cluster.start(first)
            writer.flush()
        assert values(stream) == [b"before", b"one away", b"two away"]


def test_the_placement_driver_can_be_away(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append(b"before")
        cluster.restart_driver()
        stream.append(b"after")
        assert values(stream) == [b"before", b"after"]
        client.create_stream("others", replicas=3, acks=2).append(b"x")


def test_an_append_whose_only_server_is_away_names_it_and_can_be_tried_again(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders")
        stream.append(b"before")
        [server] = stream.describe_ranges()[-1].servers
        number = cluster.primary(stream)
        assert cluster.servers[number].address == server
        cluster.stop(number)
        with sbp.connect(cluster.address, timeout=30) as other:
            for known in (stream, other.stream("orders")):
                with pytest.raises(sbp.SbpError) as caught:
                    known.append(b"refused", timeout=1.5)
                assert caught.value.retriable
                assert not caught.value.indeterminate
                assert caught.value.code in (9001, 9003)
                assert server in str(caught.value)
        cluster.start(number)
        stream.append(b"after")
        assert values(stream) == [b"before", b"after"]


def test_what_one_server_has_lost_the_others_have(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append(b"kept")
        cluster.lose(0)
        stream.append(b"on the two others")
        cluster.start(0)
        assert values(stream) == [b"kept", b"on the two others"]


def test_numbers_are_those_of_range_servers(cluster: testing.Cluster) -> None:
    assert list(cluster.servers) == [0, 1, 2]
    cluster.stop(1)
    assert list(cluster.servers) == [0, 2]
    cluster.stop(1)
    with pytest.raises(ValueError, match="there is no range server 3: they have the numbers 0 to 2"):
        cluster.stop(3)
    with pytest.raises(ValueError, match="a cluster has at least one range server, not 0"):
        testing.Cluster(0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"role": "range-server"}, "needs placement_driver="),
        ({"placement_driver": "127.0.0.1:1"}, 'is for role="range-server"'),
        ({"role": "primary"}, 'not "primary"'),
    ],
)
def test_a_role_that_cannot_be_is_told(arguments: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sbp.Server(**arguments)  # type: ignore[arg-type]


def number_of(client: sbp.Client, cluster: testing.Cluster, number: int) -> int:
    """What the placement driver calls a range server of the cluster."""
    address = cluster.servers[number].listening

    def known() -> list[int]:
        servers = client.cluster().range_servers or []
        return [server.server_id or 0 for server in servers if server.address == address]

    testing.eventually(known)
    return known()[0]


@pytest.mark.timeout(120)
def test_a_server_is_emptied_and_taken_back() -> None:
    with testing.Cluster(4) as cluster, sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append(b"before")
        stream.seal()
        stream.append(b"behind")
        primary = cluster.primary(stream)
        server = number_of(client, cluster, primary)
        emptied = client.drain(server, wait=60)
        assert (emptied.server_id, emptied.is_draining, emptied.is_drained) == (server, True, True)
        assert cluster.primary(stream) != primary
        cluster.stop(primary)
        assert values(stream) == [b"before", b"behind"]
        stream.append(b"without it")
        cluster.start(primary)
        client.undrain(server)
        again = next(one for one in client.cluster().range_servers or [] if one.server_id == server)
        assert not again.is_draining


@pytest.mark.timeout(120)
def test_what_cannot_leave_a_server_is_said_and_it_stays_marked(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append(b"a record")
        server = number_of(client, cluster, 0)
        stuck = client.drain(server)
        assert (stuck.is_draining, stuck.is_drained) == (True, False)
        [(of, index, reason)] = stuck.stuck
        assert (of, index) == (stream.id, 0)
        assert "3 replicas, and 2 range servers are up" in reason
        client.undrain(server)
        with pytest.raises(sbp.NotFoundError):
            client.drain(99)
        with pytest.raises(ValueError, match="0 or more"):
            client.drain(server, wait=-1)
        with pytest.raises(sbp.NotFoundError):
            client.undrain(99)


@pytest.mark.timeout(120)
def test_open_ranges_are_spread(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        crowded = [number_of(client, cluster, number) for number in (1, 2)]
        for server in crowded:
            client.drain(server, wait=0)
        streams = [client.create_stream(f"stream-{number}", replicas=1) for number in range(6)]
        for server in crowded:
            client.undrain(server)
        planned = client.balance(dry_run=True)
        assert len(planned) == 4
        assert all(one.is_open and one.index == 0 for one in planned)
        assert [stream.describe_ranges()[-1].index for stream in streams] == [0] * 6
        assert len(client.balance(most=1)) == 1
        testing.eventually(lambda: not client.balance(), timeout=60)
        testing.eventually(lambda: {one.open_ranges for one in client.cluster().range_servers or []} == {2}, timeout=60)
        with pytest.raises(ValueError, match="from 1 to 100"):
            client.balance(most=0)


@pytest.mark.timeout(120)
@pytest.mark.asyncio
async def test_a_server_is_emptied_and_ranges_are_spread_from_asyncio() -> None:
    with testing.Cluster(2) as cluster:
        async with sbp.aio.connect(cluster.address, timeout=30) as client:
            streams = [await client.create_stream(name, replicas=1) for name in ("a", "b")]
            for stream in streams:
                await stream.append(b"a record")
            servers = (await client.cluster()).range_servers or []
            server = servers[0].server_id or 0
            emptied = await client.drain(server, wait=60)
            assert emptied.is_drained
            await client.undrain(server)
            assert await client.balance(dry_run=True)
            assert await client.balance()
            with pytest.raises(sbp.NotFoundError):
                await client.drain(99)
