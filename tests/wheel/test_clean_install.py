"""The wheel, installed from a package index into an environment that has nothing else, reads its first row back."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST_ROW = """
import sys, threading
import sbp_native as sbp
assert threading.active_count() == 1, "import started a thread"
assert "pyarrow" not in sys.modules and "pyspark" not in sys.modules
with sbp.Server() as server, sbp.connect(server.address) as client:
    stream = client.create_stream("orders")
    stream.append([b"first", b"second"])
    rows = [bytes(r.value) for batch in stream.read(start="earliest", end="latest") for r in batch.records()]
assert rows == [b"first", b"second"], rows
print("first row:", rows[0].decode())
"""


def newest_wheel() -> Path:
    """The wheel that was built last: the one that is tested, or the release."""
    wheels = sorted((ROOT / "target").glob("wheels*/sbp_native-*.whl"), key=lambda p: p.stat().st_mtime)
    if not wheels:
        pytest.fail("there is no wheel: run `make install-tested` or `make wheel` first")
    return wheels[-1]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A directory over HTTP, without a log line per request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index on loopback that holds this one wheel."""
    project = tmp_path / "index" / "sbp-native"
    project.mkdir(parents=True)
    wheel = newest_wheel()
    (project / wheel.name).write_bytes(wheel.read_bytes())
    handler = functools.partial(_Quiet, directory=str(tmp_path / "index"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


@pytest.mark.timeout(180)
def test_the_first_row_is_read_back_from_a_clean_environment(index: str, tmp_path: Path) -> None:
    """`pip install` from an index, then a server, an append and a read, with nothing else installed."""
    environment = tmp_path / "clean"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [
        str(python),
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "install",
        "--quiet",
    ]
    subprocess.run([*pip, "--index-url", index, "sbp-native"], check=True, timeout=120)
    ran = subprocess.run([str(python), "-c", FIRST_ROW], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "first row: first"
    command = subprocess.run([str(environment / "bin" / "sbp"), "--help"], capture_output=True, text=True, timeout=60)
    assert command.returncode == 0, command.stderr
    assert "serve" in command.stdout


def test_the_wheel_serves_every_python_from_3_11_on() -> None:
    """One stable-ABI wheel, not one for each interpreter."""
    assert "-cp311-abi3-" in newest_wheel().name
    assert sys.version_info >= (3, 11)


def test_the_wheel_brings_the_licences_of_what_is_compiled_into_it() -> None:
    """Each crate with its text, also of the C sources that crates carry along."""
    with zipfile.ZipFile(newest_wheel()) as wheel:
        texts = wheel.read("sbp_native/THIRD-PARTY-LICENSES.txt").decode()
    for crate in ("tokio", "zstd-sys", "aws-lc-sys", "arrow-array", "pyo3"):
        assert f"\n{crate} " in texts, crate
    assert "Permission is hereby granted" in texts
    assert "BSD License\n\nFor Zstandard software" in texts


def test_pytest_finds_the_plugin() -> None:
    """The entry point is in the wheel, and so is what it names."""
    with zipfile.ZipFile(newest_wheel()) as wheel:
        names = wheel.namelist()
        entries = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "sbp_native/pytest_plugin.py" in names
    assert "sbp_native/testing.py" in names
    section = entries.partition("[pytest11]")[2].split("[")[0]
    # Named like its module: `-p sbp_native.pytest_plugin` and the entry point are then one plug-in, not two.
    assert "sbp_native.pytest_plugin=sbp_native.pytest_plugin" in section.replace(" ", "")
