"""`make publish` puts the wheel into a private index that asks for a password, and `pip` installs it from there."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from .test_clean_install import FIRST_ROW, ROOT, newest_wheel

USER, PASSWORD = "builder", "a password that nobody guesses"


@dataclass(frozen=True)
class Index:
    """A private package index on loopback."""

    port: int
    packages: Path

    def simple(self, user: str = USER, password: str = PASSWORD) -> str:
        """The address that `pip` is given."""
        return f"http://{user}:{password.replace(' ', '%20')}@127.0.0.1:{self.port}/simple/"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An index that asks for a password for everything."""
    packages, passwords = tmp_path / "packages", tmp_path / "passwords"
    packages.mkdir()
    digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
    passwords.write_text(f"{USER}:{{SHA}}{digest}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pypiserver", "run", "--interface", "127.0.0.1", "--port", str(port)]
    command += ["--authenticate", "update,download,list", "--passwords", str(passwords), "--disable-fallback"]
    with subprocess.Popen([*command, str(packages)]) as server:
        try:
            _until_it_listens(server, port)
            yield Index(port, packages)
        finally:
            server.terminate()


def _until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.05)
    pytest.fail("the index does not listen")


def _publish(index: Index, dist: Path, password: str) -> subprocess.CompletedProcess[str]:
    """Runs `make publish` with what is in a directory."""
    environment = {**os.environ, "TWINE_USERNAME": USER, "TWINE_PASSWORD": password}
    return subprocess.run(
        ["make", "--no-print-directory", "publish", f"INDEX=http://127.0.0.1:{index.port}/", f"DIST={dist}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.timeout(300)
def test_what_was_published_is_installed_from_a_private_index(index: Index, tmp_path: Path) -> None:
    """A wrong password is refused, the right one uploads; `pip` needs it too, and the command and the library work."""
    dist = tmp_path / "dist"
    dist.mkdir()
    shutil.copy(newest_wheel(), dist)

    refused = _publish(index, dist, "something else")
    assert refused.returncode != 0
    assert "403" in refused.stdout + refused.stderr
    assert not list(index.packages.iterdir())

    published = _publish(index, dist, PASSWORD)
    assert published.returncode == 0, published.stdout + published.stderr
    assert PASSWORD not in published.stdout + published.stderr
    assert [path.name for path in index.packages.iterdir()] == [newest_wheel().name]

    environment = tmp_path / "clean"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    install = [
        python,
        "-m",
        "pip",
        "--isolated",
        "--no-input",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "install",
    ]

    def install_from(address: str) -> subprocess.CompletedProcess[str]:
        command = [*install, "--quiet", "--index-url", address, "sbp-native"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    stranger = install_from(index.simple(password="wrong"))
    assert stranger.returncode != 0, "the index asks for a password"
    installed = install_from(index.simple())
    assert installed.returncode == 0, installed.stderr
    ran = subprocess.run([python, "-c", FIRST_ROW], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "first row: first", ran.stderr


def test_without_an_index_it_says_what_is_missing() -> None:
    """Nothing is built and nothing is sent."""
    ran = subprocess.run(
        ["make", "--no-print-directory", "publish", "DIST=/nowhere"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    assert "INDEX=https://" in ran.stderr
