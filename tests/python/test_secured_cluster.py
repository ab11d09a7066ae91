"""Three equal servers that talk TLS with clients, with each other and with their etcd, and ask everybody who he is."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sbp_native as sbp
from clusters import Pace
from demo.servers import Servers
from demo.service import ServerProcess
from python.names import run, token

#: Further batches that show that appends go on.
MORE = 100
RENEW = ("--renew-after", "1s")


@dataclass
class Secured:
    """A cluster, and what its operator has: certificates, the file of names and tokens of it."""

    servers: Servers
    certificates: Path
    names: Path
    options: tuple[str, ...]
    tokens: dict[str, str]

    def connect(self, whose: str) -> sbp.Client:
        """A client that shows this token."""
        return sbp.connect(self.servers.address, tls=tls(self.certificates), token=self.tokens[whose], timeout=30)


def tls(certificates: Path) -> sbp.Tls:
    return sbp.Tls(ca=certificates / "ca.crt", cert=certificates / "client.crt", key=certificates / "client.key")


def files(certificates: Path, whose: str, prefix: str) -> tuple[str, ...]:
    """The options of ``sbp serve`` that give it a certificate and its key."""
    return (f"--{prefix}tls-cert", f"{certificates / whose}.crt", f"--{prefix}tls-key", f"{certificates / whose}.key")


def as_peer(file: Path, token: str) -> tuple[str, ...]:
    """The options of ``sbp serve`` that have it show a token to other servers."""
    file.write_text(token)
    file.chmod(0o600)
    return ("--peer-token-file", str(file))


@pytest.fixture
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    """Servers know each other by a token, or by the certificates that they show anyway."""
    made, names = tmp_path / "made", tmp_path / "names.jsonl"
    run("tls", "dev", str(made))
    tokens = {
        "root": token(names, "root", "read:*", "write:*", "admin:*"),
        "billing": token(names, "billing", "read:orders", "write:orders"),
        "other": token(names, "other", "read:others/*"),
    }
    options = (*RENEW, *files(made, "server", ""), *files(made, "client", "metadata-"))
    options += (
        "--tls-client-ca",
        str(made / "ca.crt"),
        "--metadata-tls-ca",
        str(made / "ca.crt"),
        "--auth",
        str(names),
    )
    known: tuple[str, ...] = ()
    if request.param == "by token":
        known = as_peer(tmp_path / "peers.token", token(names, "servers", "server"))
    else:
        run("token", "create", "servers", "--allow", "server", "--certificate", "localhost", "--auth", str(names))
    connecting = {"tls": tls(made), "token": tokens["root"]}
    with Servers(tmp_path, (*options, *known), etcd_certificates=made, connecting=connecting) as servers:
        servers.wait_until_whole(within=30)
        yield Secured(servers, made, names, options, tokens)


class Appends:
    """A writer that appends numbers until it is ended."""

    def __init__(self, secured: Secured) -> None:
        self._pace = Pace()
        self._over = threading.Event()
        self._failed: sbp.SbpError | None = None
        self._thread = threading.Thread(target=self._run, args=(secured,), daemon=True)
        self._thread.start()

    def _run(self, secured: Secured) -> None:
        try:
            with secured.connect("billing") as client:
                writer = client.stream("orders").writer()
                for number in itertools.count():
                    writer.append(b"%d" % number)
                    writer.flush()
                    self._pace.note()
                    if self._over.is_set():
                        return
        except sbp.SbpError as error:
            self._failed = error

    def goes_on(self) -> None:
        """Returns when appends have gone on."""
        self._pace.goes_on(MORE, within=40)
        assert self._failed is None

    def end(self) -> int:
        """Ends it; returns how many were acknowledged."""
        self._over.set()
        self._thread.join(40)
        assert not self._thread.is_alive()
        assert self._failed is None
        return self._pace.count


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("secured", ["by token", "by certificate"], indirect=True)
def test_streams_go_on_while_servers_are_lost(secured: Secured) -> None:
    servers = secured.servers
    with secured.connect("root") as root:
        root.create_stream("orders", replicas=3, acks=2)
        appends = Appends(secured)
        appends.goes_on()
        for how in ("kill", "stop"):
            leader = servers.processes[servers.leader()]
            getattr(leader, how)()
            appends.goes_on()
            leader.start()
            servers.wait_until_whole(within=60)
        count = appends.end()
        stored = [value for batch in root.stream("orders").read() for value in batch.values]
    assert stored == [b"%d" % number for number in range(count)]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("secured", ["by token"], indirect=True)
def test_each_server_gives_everybody_what_he_may_have(secured: Secured) -> None:
    with secured.connect("root") as root:
        root.create_stream("orders", replicas=3, acks=2).append(b"first")
    with secured.connect("other") as other:
        assert other.list_streams() == []
        said = []
        for name in ("orders", "absent"):
            with pytest.raises(sbp.AccessDeniedError) as unseen:
                other.fetch(name, 0)
            said.append(str(unseen.value).partition("; server")[0].replace(name, "NAME"))
        assert said[0] == said[1]
        with pytest.raises(sbp.AccessDeniedError, match=r'may not see stream "orders-too": that needs the grant'):
            other.create_stream("orders-too")
    for process in secured.servers.processes.values():
        with pytest.raises(sbp.TlsError, match="the server asks for a client certificate"):
            sbp.connect(process.address, tls=sbp.Tls(ca=secured.certificates / "ca.crt"), timeout=5).list_streams()
        with pytest.raises(sbp.AccessDeniedError) as refused:
            sbp.connect(process.address, tls=tls(secured.certificates), token="none" * 11, timeout=5).list_streams()
        assert refused.value.code == 1401
        # Whoever may read reads at each of them, not only at the one that takes the appends.
        with sbp.connect(
            process.address, tls=tls(secured.certificates), token=secured.tokens["billing"], timeout=20
        ) as billing:
            assert [value for batch in billing.stream("orders").read() for value in batch.values] == [b"first"]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("secured", ["by certificate"], indirect=True)
def test_a_server_that_nobody_knows_gets_no_part(secured: Secured, tmp_path: Path) -> None:
    """It has a certificate that counts, and may go to the etcd, but has no grant to be a server."""
    fourth = ServerProcess(tmp_path / "s4", tmp_path / "s4.log")
    metadata = f"etcd://{secured.servers.etcd.addresses}/flights"
    known = as_peer(tmp_path / "wrong.token", secured.tokens["billing"])
    fourth.options = (*secured.options, *known, "--advertise", fourth.address, "--metadata", metadata)
    fourth.connecting = {"tls": tls(secured.certificates), "token": secured.tokens["root"]}
    try:
        with pytest.raises(RuntimeError, match=r"billing may not .*the grant server"):
            fourth.start()
    finally:
        fourth.stop()
    with secured.connect("root") as root:
        assert len(root.cluster().range_servers or ()) == 3
