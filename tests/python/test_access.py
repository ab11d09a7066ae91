"""Tokens and grants through the package: who is known, what one may do, and that no token shows anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sbp_native as sbp
from sbp_native import aio


def token(names: Path, name: str, *allow: str) -> str:
    """Has ``sbp token create`` make a token."""
    grants = [word for grant in allow for word in ("--allow", grant)]
    command = [sys.executable, "-m", "sbp_native._cli", "token", "create", name, *grants, "--auth", str(names)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


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
