"""`Server(pravega=...)`: clients of Pravega, its own Python package among them, are served from streams of a server."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sbp_native as sbp
from pravega import ours
from sbp_native import pravega
from sbp_native.errors import PortTakenError, PravegaError, ServerConfigError

#: There is no wheel of the package `pravega` for later ones.
needs_wheel = pytest.mark.skipif(sys.version_info >= (3, 12), reason="the package pravega is for Python up to 3.11")


def address_of(server: sbp.Server) -> str:
    address = server.pravega_address
    assert address is not None
    return address


def test_events_are_records() -> None:
    with sbp.Server(durability="none", pravega="127.0.0.1:0") as server:
        with pravega.connect(address_of(server), timeout=20) as client:
            client.create_scope("sc")
            client.create_stream("sc/st", 2)
            with client.writer("sc/st") as writer:
                writer.append_many((str(n), b"event-%d" % n) for n in range(100))
            batches = list(client.read("sc/st", end="latest"))
            assert sorted(value or b"" for batch in batches for value in batch.values) == sorted(
                b"event-%d" % n for n in range(100)
            )
        with sbp.connect(server.address, timeout=20) as client:
            values = [
                value or b""
                for number in range(2)
                for batch in client.stream(f"sc/st/{number}").read(start="earliest", end="latest")
                for value in batch.values
            ]
            assert sorted(values) == sorted(b"event-%d" % n for n in range(100))


def test_a_stream_that_was_imported_is_served_with_its_bytes_where_they_were() -> None:
    with (
        sbp.Server(durability="none", pravega="127.0.0.1:0") as source,
        sbp.Server(durability="none", pravega="127.0.0.1:0") as target,
    ):
        with pravega.connect(address_of(source), timeout=20) as client:
            client.create_scope("sc")
            client.create_stream("sc/st", 2)
            with client.writer("sc/st") as writer:
                writer.append_many((str(n), b"event-%d" % n) for n in range(3_000))
            there = events_of(client)
        command = [str(Path(sys.executable).with_name("sbp")), "import", "pravega", "sc/st"]
        command += ["--from", address_of(source), "--servers", target.address]
        subprocess.run(command, check=True, capture_output=True, timeout=40)
        with pravega.connect(address_of(target), timeout=20) as client:
            assert events_of(client) == there
        assert len(there) == 3_000


def events_of(client: pravega.Pravega) -> dict[tuple[str, int], bytes | None]:
    """The events of a stream, by segment and byte."""
    batches = list(client.read("sc/st", end="latest"))
    return {(batch.stream, record.offset): record.value for batch in batches for record in batch}


def test_without_it_nobody_is_served() -> None:
    with sbp.Server(durability="none") as server:
        assert server.pravega_address is None


def test_it_serves_beside_a_broker_and_closing_frees_the_port() -> None:
    server = sbp.Server(durability="none", pravega="127.0.0.1:0", tank="127.0.0.1:0")
    address = address_of(server)
    with pravega.connect(address, timeout=20) as client:
        client.create_scope("sc")
        assert client.scopes() == ["sc"]
        server.close()
        server.close()
        with pytest.raises(PravegaError):
            client.scopes()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(address.rpartition(":")[2])))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with sbp.Server(durability="none", pravega="127.0.0.1:0") as server, pytest.raises(PortTakenError):
        sbp.Server(durability="none", pravega=address_of(server))
    with pytest.raises(ServerConfigError, match="everything, because Pravega has no passwords"):
        sbp.Server(durability="none", pravega="0.0.0.0:0")
    with pytest.raises(ValueError, match="clients of Pravega: give pravega= too"):
        sbp.Server(pravega_token_file=tmp_path / "token")
    with pytest.raises(ValueError, match="beside a range server alone use `sbp gateway`"):
        sbp.Server(role="range-server", placement_driver="127.0.0.1:1", pravega="127.0.0.1:0")
    # Nothing is left of a server whose gateway did not start.
    data = tmp_path / "data"
    with pytest.raises(ServerConfigError):
        sbp.Server(data, tank="127.0.0.1:0", pravega="0.0.0.0:0")
    sbp.Server(data, pravega="127.0.0.1:0").close()


@pytest.fixture
def server() -> Iterator[ours.Ours]:
    """A server in a process of its own."""
    with ours.Ours() as running:
        yield running


@needs_wheel
def test_the_wheel_makes_and_deletes_scopes_and_streams(server: ours.Ours) -> None:
    ours.wheel_admin(server)


@needs_wheel
def test_the_wheel_writes_and_reads_events_and_bytes(server: ours.Ours) -> None:
    ours.streams_and_groups(ours.wheel, server)


@needs_wheel
def test_two_wheels_share_a_stream_over_two_gateways(server: ours.Ours) -> None:
    ours.beside_a_gateway(ours.wheel, server)


@needs_wheel
@pytest.mark.slow
def test_the_wheel_stores_each_event_once_though_the_server_is_killed(server: ours.Ours) -> None:
    ours.killed(ours.wheel, server)


@needs_wheel
@pytest.mark.slow
def test_the_wheel_stores_each_event_once_though_the_server_stands_still(server: ours.Ours) -> None:
    ours.paused(ours.wheel, server)
