"""One Spark session and one server for all tests of this directory."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from spark import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrameReader, DataFrameWriter, SparkSession

_numbers = itertools.count(1)

#: Seconds for a test that needs Spark: the first one starts a JVM and several Python workers.
_WITHIN = 240


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests with a session more time than the others, and has slow files begin first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_WITHIN))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def server() -> Iterator[sbp.Server]:
    """A server in this process; nothing in these tests depends on durability, so it does not wait for the disk."""
    with sbp.Server(durability="none") as running:
        yield running


@pytest.fixture(scope="session")
def client(server: sbp.Server) -> Iterator[sbp.Client]:
    """A blocking client of that server."""
    with sbp.connect(server.address, timeout=10) as connected:
        yield connected


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session: set up as users are told to, and nowhere told about the data source."""
    # Spark hands timestamps to Python in the zone of the machine.
    os.environ["TZ"] = "UTC"
    time.tzset()
    # Functions of the modules here are sent to workers by name.
    search = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, search))
    session = settings.session(tmp_path_factory.mktemp("spark"), "local[2]")
    yield session
    session.stop()


@pytest.fixture
def name() -> str:
    """A stream name that no other test uses."""
    return f"test/{next(_numbers)}"


@pytest.fixture
def read(spark: SparkSession, server: sbp.Server) -> Callable[..., DataFrameReader]:
    """``spark.read`` for the server, with options."""

    def reader(**options: object) -> DataFrameReader:
        return spark.read.format("sbp").option("servers", server.address).options(**options)

    return reader


@pytest.fixture
def write(server: sbp.Server) -> Callable[..., DataFrameWriter]:
    """A writer for a data frame to the server, with options."""

    def writer(frame: object, **options: object) -> DataFrameWriter:
        return frame.write.format("sbp").mode("append").option("servers", server.address).options(**options)

    return writer


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a query's checkpoint."""
    return str(tmp_path / "checkpoint")
