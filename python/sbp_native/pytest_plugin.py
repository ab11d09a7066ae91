"""Fixtures for pytest, found when the package is installed. They start nothing until a test asks for one.

==================  ========  ========================================================================================
fixture             scope     what it is
==================  ========  ========================================================================================
``sbp_server``      session   a server in the tests' process, in a temporary directory; see ``--sbp-durability``
``sbp_client``      function  a blocking client of that server
``sbp_connect``     function  ``sbp_connect()`` makes a client for asyncio inside a test's own loop: use ``async with``
``sbp_stream``      function  a stream of that server that no other test uses
``sbp_name``        function  the name of a stream that does not exist yet
``sbp_proxy``       function  a proxy with a server of its own behind it, for faults; see :class:`~sbp_native.Proxy`
==================  ========  ========================================================================================

With pytest-xdist each worker has a server of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from . import AsyncClient, Client, Proxy, Server, Stream

__all__ = ["sbp_client", "sbp_connect", "sbp_name", "sbp_proxy", "sbp_server", "sbp_stream"]

# A call against a server of this machine that takes longer than this has failed.
_TIMEOUT = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds what `sbp_server` can be told."""
    group = parser.getgroup("sbp", "servers of sbp_native")
    group.addoption(
        "--sbp-durability",
        choices=["none", "fsync"],
        default="none",
        help="what servers of the fixtures do before they acknowledge: nothing (the default), or wait for the disk",
    )


@pytest.fixture(scope="session")
def sbp_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server in this process, in a temporary directory, for all tests of the session."""
    from . import Server

    durability: Any = request.config.getoption("--sbp-durability")
    with Server(durability=durability) as server:
        yield server


@pytest.fixture
def sbp_client(sbp_server: Server) -> Iterator[Client]:
    """A blocking client of `sbp_server`."""
    from . import connect

    with connect(sbp_server.address, timeout=_TIMEOUT) as client:
        yield client


@pytest.fixture
def sbp_connect(sbp_server: Server) -> Callable[..., AsyncClient]:
    """Makes clients of `sbp_server` for asyncio: ``async with sbp_connect() as client``."""
    from . import aio

    def make(**keywords: Any) -> AsyncClient:
        return aio.connect(sbp_server.address, **{"timeout": _TIMEOUT, **keywords})

    return make


@pytest.fixture
def sbp_name(request: pytest.FixtureRequest) -> str:
    """The name of a stream that does not exist yet, with the test's own name in it."""
    from .testing import unique_name

    return unique_name(getattr(request.node, "originalname", None) or "test")


@pytest.fixture
def sbp_stream(sbp_client: Client, sbp_name: str) -> Stream:
    """A stream of `sbp_server` that no other test uses."""
    return sbp_client.create_stream(sbp_name)


@pytest.fixture
def sbp_proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """A proxy without rules, with a server of its own behind it: connect to its ``address``."""
    from .testing import proxied

    with proxied(durability=request.config.getoption("--sbp-durability")) as proxy:
        yield proxy
