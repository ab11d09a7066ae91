"""A real Pravega server for all tests of this directory, and a Spark session for those that ask for one."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pravega.server import Server
from sbp_native import pravega
from spark import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def real() -> Iterator[Server]:
    """The server: Java, from the registry of its makers."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def source(real: Server) -> Iterator[pravega.Pravega]:
    """A client of it."""
    with pravega.connect(f"127.0.0.1:{real.controller}", timeout=60) as client:
        client.create_scope("shop")
        yield client


@pytest.fixture
def stream(source: pravega.Pravega) -> str:
    """A stream with one segment."""
    name = f"shop/orders-{next(_numbers)}"
    source.create_stream(name, 1)
    return name


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as users are told to make one."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    search = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, search))
    session = settings.session(tmp_path_factory.mktemp("spark"), "local[2]")
    yield session
    session.stop()
