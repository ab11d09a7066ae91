"""Fixtures: a server in this process, and clients of it."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio
import uvloop

import sbp_native as sbp
from python.provoked import check, noted
from python.scripted_peer import ScriptedPeer

_names = itertools.count()


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of the bridge run on both kinds of loops."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith("test_bridge"):
        factories["uvloop"] = uvloop.new_event_loop
    return factories


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "provokes(*codes, by, in_child=False): the test makes errors of these codes happen; see provoked.py"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests begin first."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `code` runs once for each code that it provokes."""
    if "code" in metafunc.fixturenames and (mark := metafunc.definition.get_closest_marker("provokes")):
        metafunc.parametrize("code", mark.args)


@pytest.fixture(autouse=True)
def _provokes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sees to it that a test provokes what it says."""
    marks = [mark for mark in request.node.iter_markers("provokes") if not mark.kwargs.get("in_child")]
    if not marks:
        yield
        return
    with noted(monkeypatch) as made:
        yield
    for error in made:
        check(error)
    parameters = getattr(request.node, "callspec", None)
    codes = [parameters.params["code"]] if parameters and "code" in parameters.params else marks[0].args
    for code in codes:
        assert code in {error.code for error in made}, f"{code} was not provoked"


@pytest.fixture(scope="session")
def scripted() -> Iterator[ScriptedPeer]:
    """A scripted peer in front of a server of its own, which names the peer as the place of its ranges."""
    with ScriptedPeer() as peer, sbp.Server(advertise=peer.address, durability="none") as behind:
        peer.upstream = behind.listening
        yield peer


@pytest.fixture
def peer(scripted: ScriptedPeer) -> Iterator[ScriptedPeer]:
    """The scripted peer, without a script."""
    scripted.reset()
    yield scripted
    scripted.reset()


@pytest.fixture(scope="session")
def server() -> Iterator[sbp.Server]:
    """One durable server for the tests that share one."""
    with sbp.Server() as running:
        yield running


@pytest.fixture
def client(server: sbp.Server) -> Iterator[sbp.Client]:
    with sbp.connect(server.address, timeout=20) as connected:
        yield connected


@pytest_asyncio.fixture
async def aclient(server: sbp.Server) -> AsyncIterator[sbp.AsyncClient]:
    async with sbp.aio.connect(server.address, timeout=20) as connected:
        yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A stream name that no other test uses."""
    return f"{request.node.originalname}-{next(_names)}"


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script in a fresh interpreter and returns what it printed; it has to end by itself."""

    def run(script: str, *arguments: str, timeout: float = 40, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
