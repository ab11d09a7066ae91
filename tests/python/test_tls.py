"""TLS as Python sees it: a server with a certificate, clients that trust it or do not, and what they are told."""

from __future__ import annotations

import http.client
import pickle
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import sbp_native as sbp
from python.names import token
from sbp_native import aio


def certificates(directory: Path, *more: str) -> Path:
    """Has ``sbp tls dev`` make certificates."""
    command = [sys.executable, "-m", "sbp_native._cli", "tls", "dev", str(directory), *more]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return directory


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls") / "made", "--name", "db.example.com")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls") / "strangers", "--client", "stranger.example.com")


def trusting(made: Path) -> sbp.Tls:
    return sbp.Tls(ca=made / "ca.crt")


def showing(made: Path, whose: Path | None = None) -> sbp.Tls:
    whose = whose or made
    return sbp.Tls(ca=made / "ca.crt", cert=whose / "client.crt", key=whose / "client.key")


@pytest.fixture(scope="module")
def secured(made: Path) -> Iterator[sbp.Server]:
    tls = sbp.Tls(cert=made / "server.crt", key=made / "server.key")
    with sbp.Server(durability="none", tls=tls, plain_listen="127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def mutual(made: Path) -> Iterator[sbp.Server]:
    tls = sbp.Tls(cert=made / "server.crt", key=made / "server.key", ca=made / "ca.crt")
    with sbp.Server(durability="none", tls=tls) as server:
        yield server


def test_a_client_that_trusts_the_server_talks_to_it(secured: sbp.Server, made: Path, name: str) -> None:
    assert secured.address.startswith("sbps://127.0.0.1:")
    with sbp.connect(secured.address, tls=trusting(made)) as client:
        stream = client.create_stream(name)
        stream.append([b"first", bytes(3 << 20)])
        assert [len(record.value or b"") for batch in stream.read() for record in batch] == [5, 3 << 20]
        # What it was made with goes along.
        with pickle.loads(pickle.dumps(client)) as again:
            assert again.stream(name).fetch(0)[0].base_offset == 0
    assert secured.plain_listening is not None
    with sbp.connect(secured.plain_listening) as plain:
        assert plain.stream(name).fetch(1)[0].base_offset == 1


@pytest.mark.asyncio
async def test_and_so_does_one_for_asyncio(mutual: sbp.Server, made: Path, name: str) -> None:
    async with aio.connect(mutual.address, tls=showing(made)) as client:
        stream = await client.create_stream(name)
        ack = await stream.append(b"x")
        assert ack.base_offset == 0
    with pytest.raises(sbp.TlsError, match="asks for a client certificate"):
        await aio.connect(mutual.address, tls=trusting(made))


def test_a_server_inside_a_process_may_be_named_by_the_environment(
    secured: sbp.Server, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBP_SERVERS", secured.address)
    monkeypatch.setenv("SBP_TLS_CA", str(made / "ca.crt"))
    monkeypatch.setenv("SBP_TLS_SERVER_NAME", "db.example.com")
    with sbp.connect() as client:
        client.ping()


@pytest.mark.provokes(9020, by="client")
def test_a_client_with_tls_is_told_of_a_plain_server(server: sbp.Server, made: Path) -> None:
    with pytest.raises(sbp.TlsError, match="does not speak TLS") as caught:
        sbp.connect(f"sbps://{server.address}", tls=trusting(made))
    error = caught.value
    assert (error.code, error.retriable, error.indeterminate, error.attempts) == (9020, False, False, 1)
    assert isinstance(error, sbp.ConnectionFailedError)


@pytest.mark.asyncio
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_plain_client_is_told_of_a_server_with_tls(secured: sbp.Server, blocking: bool) -> None:
    address = secured.address.removeprefix("sbps://")
    with pytest.raises(sbp.TlsError, match=r"speaks TLS.*sbps://"):
        if blocking:
            sbp.connect(address)
        else:
            await aio.connect(address)


def test_who_is_not_trusted_is_named(secured: sbp.Server, mutual: sbp.Server, made: Path, strangers: Path) -> None:
    with pytest.raises(sbp.TlsError, match=r"localhost.*sbp tls dev.*another key"):
        sbp.connect(secured.address, tls=trusting(strangers))
    with pytest.raises(sbp.TlsError, match=r"\"other\.example\.com\".*db\.example\.com"):
        sbp.connect(secured.address, tls=sbp.Tls(ca=made / "ca.crt", server_name="other.example.com"))
    with pytest.raises(sbp.TlsError, match=r"does not accept.*stranger\.example\.com"):
        sbp.connect(mutual.address, tls=showing(made, strangers))


def test_settings_that_contradict_themselves(secured: sbp.Server, made: Path, tmp_path: Path) -> None:
    plain = secured.address.replace("sbps://", "sbp://")
    with pytest.raises(sbp.InvalidRequestError, match=r"sbp://.*without TLS"):
        sbp.connect(plain, tls=trusting(made))
    with pytest.raises(sbp.InvalidRequestError, match=r"absent\.pem"):
        sbp.connect(secured.address, tls=sbp.Tls(ca=tmp_path / "absent.pem"))
    with pytest.raises(ValueError, match="cert and key go together"):
        sbp.Tls(cert="client.crt")
    with pytest.raises(sbp.ServerConfigError, match="needs cert and key"):
        sbp.Server(tls=trusting(made))
    with pytest.raises(sbp.ServerConfigError, match="server_name"):
        sbp.Server(tls=sbp.Tls(cert=made / "server.crt", key=made / "server.key", server_name="x"))
    with pytest.raises(sbp.ServerConfigError, match=r"client\.key.*not that of"):
        sbp.Server(tls=sbp.Tls(cert=made / "server.crt", key=made / "client.key"))


def test_a_proxy_says_that_it_reads_frames(secured: sbp.Server) -> None:
    with pytest.raises(ValueError, match="speaks TLS, and a proxy reads frames"):
        sbp.Proxy(secured)
    assert secured.plain_listening is not None
    with sbp.Proxy(secured.plain_listening) as proxy, sbp.connect(proxy.address) as client:
        client.ping()


def test_a_pickle_names_files_and_holds_no_key(made: Path) -> None:
    tls = showing(made)
    pickled = pickle.dumps(tls)
    assert pickle.loads(pickled) == tls
    assert hash(pickle.loads(pickled)) == hash(tls)
    assert (tls.ca, tls.server_name) == (str(made / "ca.crt"), None)
    secret = (made / "client.key").read_text().splitlines()[1]
    assert secret.encode() not in pickled
    assert secret not in repr(tls)
    assert repr(sbp.Tls(ca="a", server_name="b")) == 'Tls(ca="a", server_name="b")'


def test_certificates_are_replaced_under_writers(made: Path, tmp_path: Path, name: str) -> None:
    directory = certificates(tmp_path / "own")
    tls = sbp.Tls(cert=directory / "server.crt", key=directory / "server.key", ca=directory / "ca.crt")
    client_tls = showing(directory)
    failed: list[BaseException] = []
    stop = threading.Event()

    def write(client: sbp.Client) -> None:
        try:
            stream = client.stream(name)
            while not stop.is_set():
                stream.append(b"x")
        except BaseException as error:
            failed.append(error)

    with sbp.Server(durability="none", tls=tls) as server, sbp.connect(server.address, tls=client_tls) as client:
        client.create_stream(name)
        writers = [threading.Thread(target=write, args=(client,)) for _ in range(4)]
        for writer in writers:
            writer.start()
        for _ in range(3):
            certificates(directory)
            with sbp.connect(server.address, tls=client_tls) as fresh:
                fresh.ping()
        stop.set()
        for writer in writers:
            writer.join(20)
        assert not failed
        assert client.stream(name).fetch("latest-1")


def test_http_speaks_tls_too_with_a_token_for_other_machines(made: Path, tmp_path: Path) -> None:
    names = tmp_path / "names"
    ops = token(names, "ops", "admin:*")
    tls = sbp.Tls(cert=made / "server.crt", key=made / "server.key", ca=made / "ca.crt")
    with sbp.Server(durability="none", tls=tls, http="https://0.0.0.0:0", auth=names) as server:
        assert server.http_address is not None
        assert server.http_address.startswith("https://0.0.0.0:")
        url = server.http_address.replace("0.0.0.0", "127.0.0.1") + "/metrics"
        trusted = ssl.create_default_context(cafile=made / "ca.crt")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, context=trusted, timeout=20)
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {ops}"})
        with urllib.request.urlopen(request, context=trusted, timeout=20) as answer:
            assert answer.read().endswith(b"# EOF\n")
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(request, context=ssl.create_default_context(), timeout=20)
    with pytest.raises(sbp.ServerConfigError, match="--tls-cert"):
        sbp.Server(durability="none", http="https://127.0.0.1:0")


def test_a_proxy_asks_by_its_own_name() -> None:
    with sbp.Server(durability="none", http="127.0.0.1:0", http_hosts=["status.example"]) as server:
        for host, code in (("status.example", 200), ("evil.example", 421)):
            connection = http.client.HTTPConnection(server.http_address or "", timeout=20)
            connection.request("GET", "/health/live", headers={"Host": host})
            assert connection.getresponse().status == code
            connection.close()
