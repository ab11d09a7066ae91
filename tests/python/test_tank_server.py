"""`Server(tank=...)`: clients of TANK are served from the streams of an embedded server."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sbp_native as sbp
from sbp_native import tank
from sbp_native.errors import PortTakenError, ServerConfigError, TankError

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def address_of(server: sbp.Server) -> str:
    address = server.tank_address
    assert address is not None
    return address


def test_topics_are_streams() -> None:
    with sbp.Server(durability="none", tank="127.0.0.1:0") as server:
        with tank.connect(address_of(server), timeout=20) as broker:
            broker.create_topic("orders", 2)
            broker.produce("orders", 1, [(b"key", b"a"), b"b"])
            assert [batch.values for batch in broker.read("orders", end="latest")] == [[b"a", b"b"]]
        with sbp.connect(server.address, timeout=20) as client:
            [batch] = client.stream("orders/1").read(start="earliest", end="latest")
            assert (batch.keys, batch.values) == ([b"key", None], [b"a", b"b"])
            client.stream("orders/0").append([b"x"])
        with tank.connect(address_of(server), timeout=20) as broker:
            assert [batch.values for batch in broker.read("orders", 0, end="latest")] == [[b"x"]]


def test_without_it_nobody_is_served() -> None:
    with sbp.Server(durability="none") as server:
        assert server.tank_address is None


def test_closing_ends_clients_and_frees_the_port() -> None:
    server = sbp.Server(durability="none", tank="127.0.0.1:0")
    address = address_of(server)
    with tank.connect(address, timeout=20) as broker:
        broker.create_topic("t")
        waiting = broker.read("t")
        server.close()
        server.close()
        with pytest.raises(TankError):
            broker.topics(timeout=1)
        waiting.close()
    port = int(address.rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_server_that_is_dropped_ends_it_too() -> None:
    server = sbp.Server(durability="none", tank="127.0.0.1:0")
    address = address_of(server)
    del server
    with pytest.raises(TankError):
        tank.connect(address, timeout=1)


@pytest.mark.asyncio
async def test_on_an_event_loop() -> None:
    server = sbp.Server(durability="none", tank="127.0.0.1:0")
    async with server, tank.aio.connect(address_of(server), timeout=20) as broker:
        await broker.create_topic("t")
        await broker.produce("t", 0, [b"a"])
        assert [batch.values async for batch in broker.read("t", end="latest")] == [[b"a"]]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with sbp.Server(durability="none", tank="127.0.0.1:0") as server, pytest.raises(PortTakenError):
        sbp.Server(durability="none", tank=address_of(server))
    with pytest.raises(ServerConfigError, match="everything, because TANK has no passwords"):
        sbp.Server(durability="none", tank="0.0.0.0:0")
    with pytest.raises(ServerConfigError):
        sbp.Server(durability="none", tank="nowhere")
    with pytest.raises(ValueError, match="give tank= too"):
        sbp.Server(tank_token_file=tmp_path / "token")
    with pytest.raises(ValueError, match="beside a range server alone use `sbp gateway`"):
        sbp.Server(role="range-server", placement_driver="127.0.0.1:1", tank="127.0.0.1:0")
    # Nothing is left of a server whose broker did not start.
    data = tmp_path / "data"
    with pytest.raises(ServerConfigError):
        sbp.Server(data, tank="0.0.0.0:0")
    sbp.Server(data, tank="127.0.0.1:0").close()


FORKED = """
import os, sys
import sbp_native as sbp
from sbp_native import tank

server = sbp.Server(durability="none", tank="127.0.0.1:0")
address = server.tank_address
with tank.connect(address, timeout=20) as broker:
    broker.create_topic("t")
    child = os.fork()
    if child == 0:
        # The child has nothing of it but the address; what it makes is its own.
        sockets = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
        kept = [name for name in sockets if os.readlink(f"/proc/self/fd/{name}").startswith("socket:")]
        try:
            server.tank_address
        except sbp.ForkedClientError:
            refused = True
        with tank.connect(address, timeout=20) as own:
            own.produce("t", 0, [b"child"])
        del server
        print("child", kept, refused, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    broker.produce("t", 0, [b"parent"])
    print([value for batch in broker.read("t", end="latest") for value in batch.values])
server.close()
"""


def test_a_forked_child_has_no_part_of_it(run_python: Run) -> None:
    done = run_python(FORKED)
    assert done.stdout == "child [] True\n[b'child', b'parent']\n"


def test_the_interpreter_ends_while_it_serves(run_python: Run) -> None:
    done = run_python(
        "import sbp_native as sbp\n"
        "from sbp_native import tank\n"
        "server = sbp.Server(durability='none', tank='127.0.0.1:0')\n"
        "broker = tank.connect(server.tank_address, timeout=20)\n"
        "broker.create_topic('t')\n"
        "waiting = broker.read('t')\n"
        "print('over')\n"
    )
    assert (done.stdout, done.stderr) == ("over\n", "")
