"""Fixtures: a server in this process, and clients of it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

import sbp_native as sbp

_names = itertools.count()


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
