"""The source distribution, built and installed by pip in an environment that has nothing else."""

from __future__ import annotations

import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPENDS = """
import sbp_native as sbp
with sbp.Server() as server, sbp.connect(server.address) as client:
    stream = client.create_stream("orders")
    print(stream.append([b"first", b"second"]).last_offset)
"""


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    """The distribution, made as `make dist` makes it, with what it was made from as it is now."""
    subprocess.run(["make", "sdist", f"DISTRIBUTIONS={tmp_path}"], cwd=ROOT, check=True, timeout=300)
    [made] = tmp_path.glob("sbp_native-*.tar.gz")
    return made


@pytest.mark.timeout(2_400)
def test_it_builds_and_works_in_a_clean_environment(sdist: Path, tmp_path: Path) -> None:
    environment = tmp_path / "clean"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(sdist)]
    subprocess.run(pip, cwd=tmp_path, check=True, timeout=2_000)
    done = subprocess.run([python, "-c", APPENDS], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "1\n", done.stderr


def test_it_has_what_the_crates_are_built_from_and_no_data(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "Cargo.lock",
        "LICENSE",
        "pyproject.toml",
        "crates/sbp-python/Cargo.toml",
        "python/README.md",
        "python/sbp_native/THIRD-PARTY-LICENSES.txt",
    } <= names
    assert not [name for name in names if name.startswith(("target/", ".venv/", "tests/python/"))]
