"""Tokens and grants through the package: who is known, what one may do, and that no token shows anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sbp_native as sbp
from python import oauth
from python.names import run, token
from sbp_native import aio


@pytest.fixture
def names(tmp_path: Path) -> Path:
    return tmp_path / "names.jsonl"


@pytest.fixture
def root(names: Path) -> str:
    return token(names, "root", "read:*", "write:*", "admin:*")


@pytest.fixture
def billing(names: Path) -> str:
    return token(names, "billing", "read:orders")


@pytest.fixture
def guarded(names: Path, root: str, billing: str) -> Iterator[sbp.Server]:
    with sbp.Server(durability="none", auth=names) as server:
        with sbp.connect(server.address, token=root) as client:
            client.create_stream("orders").append(b"first")
            client.create_stream("secret").append(b"hidden")
        yield server


def test_a_name_does_what_it_may(guarded: sbp.Server, billing: str) -> None:
    with sbp.connect(guarded.address, token=billing) as client:
        assert [info.name for info in client.list_streams()] == ["orders"]
        orders = client.stream("orders")
        assert [record.value for batch in orders.read() for record in batch] == [b"first"]
        with pytest.raises(
            sbp.AccessDeniedError, match=r"billing may not append to stream.*the grant write"
        ) as refused:
            orders.append(b"more")
        assert refused.value.code == 1403
        assert isinstance(refused.value, PermissionError)
        for name in ("secret", "nothing"):
            with pytest.raises(sbp.AccessDeniedError, match=f"read:{name}"):
                client.stream(name)
        with pytest.raises(sbp.AccessDeniedError, match="admin:more"):
            client.create_stream("more")


@pytest.mark.parametrize("wrong", [None, "sbp_unheard_of", lambda: "sbp_unheard_of"])
def test_who_is_not_known_is_told_at_once(guarded: sbp.Server, wrong: object) -> None:
    with pytest.raises(sbp.AccessDeniedError, match="token") as refused:
        sbp.connect(guarded.address, token=wrong, timeout=600)  # type: ignore[arg-type]
    assert refused.value.code == 1401
    assert "unheard_of" not in f"{refused.value!s} {refused.value!r}"


def test_a_function_is_asked_in_a_thread_of_its_own(guarded: sbp.Server, billing: str) -> None:
    threads = []

    def fresh() -> str:
        threads.append(threading.current_thread())
        return billing

    with sbp.connect(guarded.address, token=fresh) as client:
        assert client.stream("orders").name == "orders"
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.asyncio
async def test_asyncio_takes_a_function_too(guarded: sbp.Server, billing: str) -> None:
    async with aio.connect(guarded.address, token=lambda: billing) as client:
        assert [info.name for info in await client.list_streams()] == ["orders"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [(lambda: 7, "returned int, not str"), (lambda: 1 // 0, "ZeroDivisionError"), (lambda: "", "the token is empty")],
)
def test_a_function_that_fails_is_told(guarded: sbp.Server, wrong: object, why: str) -> None:
    with pytest.raises(sbp.AccessDeniedError, match=why):
        sbp.connect(guarded.address, token=wrong)  # type: ignore[arg-type]


def test_a_file_and_the_environment(
    guarded: sbp.Server, billing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "billing.token"
    file.write_text(billing + "\n")
    with sbp.connect(guarded.address, token=file) as client:
        again = pickle.loads(pickle.dumps(client))
        with again:
            assert len(again.list_streams()) == 1
    monkeypatch.setenv("SBP_SERVERS", guarded.address)
    monkeypatch.setenv("SBP_TOKEN", billing)
    with sbp.connect() as client:
        assert len(client.list_streams()) == 1
    monkeypatch.setenv("SBP_TOKEN_FILE", str(file))
    monkeypatch.setenv("SBP_TOKEN", "sbp_unheard_of")
    with sbp.connect() as client:
        assert len(client.list_streams()) == 1


def test_no_token_shows(guarded: sbp.Server, billing: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    logging.getLogger("sbp").setLevel(1)
    for given in (billing, lambda: billing):
        with sbp.connect(guarded.address, token=given) as client:
            with pytest.raises(TypeError, match="would be in the pickle"):
                pickle.dumps(client)
            with pytest.raises(sbp.AccessDeniedError) as refused:
                client.stream("secret")
            shown = f"{client!r} {client.stats()} {refused.value!r} {refused.value!s} {pickle.dumps(refused.value)!r}"
            assert billing[4:] not in shown
    assert billing[4:] not in caplog.text


def test_what_is_no_token_is_told(guarded: sbp.Server) -> None:
    with pytest.raises(TypeError, match="a callable that returns a str"):
        sbp.connect(guarded.address, token=7)  # type: ignore[arg-type]


def test_a_server_tells_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "names.jsonl"
    with pytest.raises(sbp.ServerConfigError, match="cannot read"):
        sbp.Server(auth=file)
    file.write_text("{}\n")
    with pytest.raises(sbp.ServerConfigError, match="line 1"):
        sbp.Server(auth=file)


def connections(server: sbp.Server) -> int:
    return int(server.stats()["connections_accepted"])


@pytest.mark.parametrize("kind", ["text", "file", "function"])
def test_who_was_refused_does_not_ask_again_with_each_call(
    guarded: sbp.Server, names: Path, tmp_path: Path, kind: str
) -> None:
    """Calls that come at once are answered from memory; later ones connect, and what gives the token is asked anew."""
    file = tmp_path / "job.token"
    file.write_text("sbp_unheard_of")
    asked = []

    def function() -> str:
        asked.append(file.read_text())
        return asked[-1]

    given: str | Path | Callable[[], str] = function
    if kind != "function":
        given = file if kind == "file" else "sbp_unheard_of"
    before, began = connections(guarded), time.monotonic()
    client = aio.connect(guarded.address, token=given)

    async def calls() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            for _ in range(200):
                with pytest.raises(sbp.AccessDeniedError, match="does not know the token"):
                    await client.list_streams()
            # At least a quarter of a second lies between two attempts, and each is one connection.
            attempts = connections(guarded) - before
            assert 1 <= attempts <= 1 + (time.monotonic() - began) / 0.25
            if kind == "function":
                assert len(asked) == attempts
            if kind != "text":
                file.write_text(token(names, "late", "read:*"))
                deadline = time.monotonic() + 30
                while True:
                    assert time.monotonic() < deadline, "it is never believed"
                    with contextlib.suppress(sbp.AccessDeniedError):
                        await client.list_streams()
                        break
                    await asyncio.sleep(0.01)

    asyncio.run(calls())


def test_a_function_that_hangs_is_given_up_and_not_asked_again_meanwhile(guarded: sbp.Server, billing: str) -> None:
    release, asked = threading.Event(), []

    def hangs() -> str:
        asked.append(threading.current_thread())
        release.wait(60)
        return billing

    # The time that connecting may take is this timeout too.
    client = aio.connect(guarded.address, token=hangs, timeout=1.0)

    async def calls() -> None:
        try:
            for _ in range(20):
                with pytest.raises(sbp.AccessDeniedError, match="none within 900ms"):
                    await client.list_streams(timeout=5)
            assert len(asked) == 1
            release.set()
            deadline = time.monotonic() + 30
            while True:
                assert time.monotonic() < deadline, "it is never asked again"
                with contextlib.suppress(sbp.SbpError):
                    await client.list_streams()
                    break
                await asyncio.sleep(0.01)
        finally:
            release.set()
            await client.close()

    asyncio.run(calls())


def test_a_token_is_sent_in_clear_to_this_machine_alone(names: Path, billing: str) -> None:
    own = own_address()
    with sbp.Server(durability="none", auth=names, listen=f"{own}:0", insecure_listen=True) as server:
        with pytest.raises(sbp.AccessDeniedError, match=r"not sent in clear to.*sbps://.*token_in_clear") as refused:
            sbp.connect(server.address, token=billing)
        assert refused.value.code == 1401
        assert billing not in str(refused.value)
        command = [sys.executable, "-m", "sbp_native._cli", "stream", "list", "--servers", server.address]
        environment = {**os.environ, "SBP_TOKEN": billing}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
        assert done.returncode != 0
        assert "--token-in-clear" in done.stderr
        done = subprocess.run(
            [*command, "--token-in-clear"], capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        with sbp.connect(server.address, token=billing, token_in_clear=True) as client:
            assert client.list_streams() == []


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(any_socket.getsockname()[0])


@pytest.fixture
def believing(names: Path, root: str, tmp_path: Path) -> Iterator[sbp.Server]:
    """A server that believes OAuth tokens, and lets the subject of those read ``orders``."""
    token(names, "reports", "read:orders", more=("--subject", oauth.SUBJECT))
    keys = oauth.keys(tmp_path)
    with sbp.Server(
        durability="none", auth=names, jwks=keys, jwt_issuer=oauth.ISSUER, jwt_audience=oauth.AUDIENCE
    ) as server:
        with sbp.connect(server.address, token=root) as client:
            client.create_stream("orders").append(b"first")
        yield server


@pytest.mark.parametrize("given", [oauth.VALID, lambda: oauth.VALID])
def test_an_oauth_token_is_believed(believing: sbp.Server, given: object) -> None:
    with sbp.connect(believing.address, token=given) as client:  # type: ignore[arg-type]
        assert [info.name for info in client.list_streams()] == ["orders"]
        with pytest.raises(sbp.AccessDeniedError, match="reports may not append to stream") as refused:
            client.stream("orders").append(b"more")
        assert refused.value.code == 1403


@pytest.mark.asyncio
async def test_asyncio_shows_an_oauth_token_too(believing: sbp.Server) -> None:
    async with aio.connect(believing.address, token=lambda: oauth.VALID) as client:
        assert [info.name for info in await client.list_streams()] == ["orders"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (oauth.EXPIRED, "OAuth token expired at 2001-01-01"),
        (oauth.ELSEWHERE, r'not for this server, which is "sbp.example" \(aud\)'),
        (oauth.FORGED, "its signature is wrong"),
    ],
)
def test_what_is_wrong_with_an_oauth_token_is_told(believing: sbp.Server, wrong: str, why: str, tmp_path: Path) -> None:
    for given in (wrong, lambda: wrong):
        with pytest.raises(sbp.AccessDeniedError, match=why) as refused:
            sbp.connect(believing.address, token=given, timeout=600)
        assert refused.value.code == 1401
    file = tmp_path / "oauth.token"
    file.write_text(wrong)
    said = run("stream", "list", "--servers", believing.address, "--token-file", str(file), status=1).stderr
    assert "1401" in said
    assert re.search(why, said), said
    for shown in (str(refused.value), repr(refused.value), said):
        assert wrong.rpartition(".")[2] not in shown


def test_the_command_shows_an_oauth_token(believing: sbp.Server) -> None:
    listed = run("stream", "list", "--servers", believing.address, "--json", SBP_TOKEN=oauth.VALID)
    assert json.loads(listed.stdout)["name"] == "orders"


def test_arguments_about_oauth_tokens_go_together(names: Path, root: str, tmp_path: Path) -> None:
    keys = oauth.keys(tmp_path)
    with pytest.raises(ValueError, match="belong together, beside auth"):
        sbp.Server(auth=names, jwks=keys)
    with pytest.raises(ValueError, match="belong together, beside auth"):
        sbp.Server(jwks=keys, jwt_issuer="i", jwt_audience="a")
    keys.write_text("{}")
    with pytest.raises(sbp.ServerConfigError, match="no keys for OAuth tokens"):
        sbp.Server(auth=names, jwks=keys, jwt_issuer="i", jwt_audience="a")


LARGE = bytes(100_000)


def test_a_rate_is_kept_and_beyond_it_a_client_is_told(names: Path, root: str) -> None:
    slow = token(names, "slow", "read:*", "write:*", more=("--quota", "bytes-in=1000", "--quota", "bytes-out=1000"))
    with sbp.Server(durability="none", auth=names) as server:
        with sbp.connect(server.address, token=root) as client:
            client.create_stream("orders")
        with sbp.connect(server.address, token=slow) as client, sbp.connect(server.address, token=slow) as other:
            client.stream("orders").append(LARGE)
            # Another connection, which has not been asked to wait.
            with pytest.raises(sbp.ThrottledError, match=r"slow appends.*quota of 1000 bytes a second") as refused:
                other.stream("orders").append(LARGE, timeout=2)
            assert refused.value.code == 1429
            assert sum(len(batch) for batch in client.stream("orders").read()) == 1
            with pytest.raises(sbp.ThrottledError, match=r"slow reads.*quota of 1000 bytes a second"):
                list(other.stream("orders").read(timeout=2))


def test_streams_and_connections_have_quotas(names: Path) -> None:
    tenant = token(names, "tenant", "admin:*", more=("--quota", "streams=1", "--quota", "connections=1"))
    with sbp.Server(durability="none", auth=names) as server, sbp.connect(server.address, token=tenant) as client:
        client.create_stream("one")
        with pytest.raises(sbp.AccessDeniedError, match=r"has made 1 that exist, and its quota is 1") as refused:
            client.create_stream("two")
        assert refused.value.code == 1403
        with (
            sbp.connect(server.address, token=tenant, timeout=2) as other,
            pytest.raises(sbp.SbpError, match="tenant has 1 connections to this server, and its quota is 1"),
        ):
            other.list_streams()


def test_quotas_are_made_and_shown_by_the_command(names: Path) -> None:
    token(names, "tenant", "read:*", more=("--quota", "calls=3", "--quota", "bytes-in=5"))
    shown = json.loads(run("token", "list", "--auth", str(names), "--json").stdout)
    assert shown["quota"] == {"calls": 3, "bytes_in_per_second": 5}
    assert "bytes-in=5 calls=3" in run("token", "list", "--auth", str(names)).stdout
    said = run("token", "create", "x", "--allow", "read:*", "--quota", "calls", "--auth", str(names), status=1).stderr
    assert "bytes-in=N" in said


def test_who_did_what_is_written(names: Path, root: str, billing: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with sbp.Server(durability="none", auth=names, audit=file) as server:
        with sbp.connect(server.address, token=root) as client:
            client.create_stream("orders")
        with sbp.connect(server.address, token=billing) as client, pytest.raises(sbp.AccessDeniedError):
            client.stream("orders").append(b"more")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [(line["who"], line["operation"], line["name"], line["outcome"]) for line in lines]
    assert told == [("root", "CREATE_STREAMS", "orders", "ok"), ("billing", "APPEND", "orders", "1403")]
    with pytest.raises(sbp.ServerStartError, match="audit file"):
        sbp.Server(audit=tmp_path / "no" / "audit.jsonl")
