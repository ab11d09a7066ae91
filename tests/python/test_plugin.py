"""The pytest plug-in, as a project that uses it sees it: in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import asyncio
import pytest
import sbp_native as sbp

names = []

def test_a_client(sbp_client, sbp_name):
    names.append(sbp_name)
    assert sbp_name.startswith("test_a_client-")
    assert sbp_client.create_stream(sbp_name).append(b"x").base_offset == 0

def test_a_stream(sbp_stream, sbp_server, sbp_client):
    names.append(sbp_stream.name)
    assert len(set(names)) == len(names)
    assert sbp_stream.append([b"a", b"b"]).durability == "none"
    assert sbp_server.stats()["streams"] >= 2
    assert sbp_client.servers == sbp_server.address

@pytest.mark.parametrize("count", [1, 2])
def test_asyncio(sbp_connect, sbp_name, count):
    async def work():
        async with sbp_connect() as client:
            stream = await client.create_stream(sbp_name)
            acks = await asyncio.gather(*(stream.append(b"x") for _ in range(count)))
            assert len(acks) == count
    asyncio.run(work())

def test_a_bad_network(sbp_proxy):
    sbp_proxy.add("cut answer APPEND nth=2")
    with sbp.connect(sbp_proxy.address, timeout=20) as client:
        stream = client.create_stream("s")
        stream.append(b"a")
        with pytest.raises(sbp.IndeterminateError):
            stream.append(b"b")

def test_each_proxy_is_new(sbp_proxy):
    assert sbp_proxy.rules == []
    assert sbp_proxy.stats()["connections"] == 0
"""


def pytest_in(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest there, with the plug-in and without anything of this project's own tests."""
    # Named by its entry point: where the package is installed, pytest has loaded it by itself.
    command = [sys.executable, "-m", "pytest", "-p", "sbp_native.pytest_plugin", "-p", "no:asyncio", "-c"]
    return subprocess.run(
        [*command, "/dev/null", "--rootdir", str(directory), *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    done = pytest_in(tmp_path, "-q", "-W", "error", "test_it.py")
    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_durability_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(sbp_stream):\n    assert sbp_stream.append(b'x').durability == 'fsync'\n"
    )
    done = pytest_in(tmp_path, "-q", "--sbp-durability", "fsync", "test_it.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_nothing_starts_unless_a_test_asks(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os, threading\n"
        "def test_it():\n"
        "    assert threading.active_count() == 1\n"
        "    assert len(os.listdir('/proc/self/task')) == 1\n"
    )
    done = pytest_in(tmp_path, "-q", "test_it.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_fixtures_are_listed_with_what_they_are(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--fixtures", "-q")
    for name in ("sbp_server", "sbp_client", "sbp_connect", "sbp_stream", "sbp_name", "sbp_proxy"):
        assert f"{name} " in done.stdout or f"{name}\n" in done.stdout, done.stdout
