"""Runs wheels of `make dist`: the one for x86_64 in an empty environment, the one for aarch64 with CPython and its
libraries from Debian's arm64 packages, under qemu-user.

    python3 tests/wheel/distributions.py target/dist

Needs `apt-get` and `qemu-aarch64` (package qemu-user). Nothing is installed: the packages are unpacked into a temporary
directory, and the machine's own list of architectures stays as it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

# CPython of Debian 12 and what it and the wheel link to.
PACKAGES = (
    "python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libssl3 libexpat1 zlib1g libffi8 "
    "libbz2-1.0 liblzma5"
).split()
FIRST_STEPS = """
import asyncio, platform
import sbp_native as sbp

async def appends(address):
    async with sbp.aio.connect(address) as client:
        stream = await client.stream("orders")
        await asyncio.gather(*(stream.append(b"y") for _ in range(256)))

with sbp.Server() as server, sbp.connect(server.address) as client:
    stream = client.create_stream("orders")
    stream.append([b"x" * 100] * 1_000)
    with stream.writer(compression="zstd") as writer:
        for index in range(100):
            writer.append(b"%d" % index)
    asyncio.run(appends(server.address))
    batches = stream.read(start="earliest", end="latest")
    values = [bytes(record.value) for batch in batches for record in batch.records()]
assert values[:1_000] == [b"x" * 100] * 1_000
assert values[1_000:1_100] == [b"%d" % index for index in range(100)]
assert values[1_100:] == [b"y"] * 256
print(f"{platform.machine()}, CPython {platform.python_version()}, sbp-native {sbp.__version__}: {len(values)} records")
"""
# A thread that waits in a call when the interpreter is gone is ended by the C library, which walks through its frames.
ENDS_WHILE_A_THREAD_WAITS = """
import threading
import sbp_native as sbp

server = sbp.Server()
client = sbp.connect(server.address)
tail = client.create_stream("orders").tail()
waits = threading.Event()
threading.Thread(target=lambda: (waits.set(), next(tail)), daemon=True).start()
waits.wait()
print("ends while a thread waits")
"""
PROGRAMS = (FIRST_STEPS, ENDS_WHILE_A_THREAD_WAITS)


def _unpack(packages: Path, root: Path) -> None:
    """Debian's arm64 packages into a directory, with lists and a cache of their own."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (packages / folder).mkdir(parents=True)
    status = packages / "status"
    status.touch()
    options = ["APT::Architecture=arm64", "APT::Architectures=arm64", f"Dir::State={packages}/state"]
    options += [f"Dir::State::status={status}", f"Dir::Cache={packages}/cache", "APT::Sandbox::User=root"]
    apt = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
    subprocess.run([*apt, "update"], check=True, timeout=300)
    subprocess.run([*apt, "download", *PACKAGES], cwd=packages, check=True, timeout=300)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, timeout=60)


def _newest(directory: str, pattern: str) -> Path:
    wheels = sorted(Path(directory).glob(pattern), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit(f"there is no {pattern} in {directory}: make dist")
    return wheels[-1]


def _run_here(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory) / "bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", wheel], check=True, timeout=300)
        for program in PROGRAMS:
            subprocess.run([python, "-X", "faulthandler", "-c", program], check=True, timeout=120)


def _run_emulated(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        packages, root, site = (Path(directory) / name for name in ("packages", "root", "site"))
        _unpack(packages, root)
        with zipfile.ZipFile(wheel) as files:
            files.extractall(site)
        for program in PROGRAMS:
            found = f"import sys\nsys.path.insert(0, {str(site)!r})\n{program}"
            command = ["qemu-aarch64", "-L", str(root), str(root / "usr/bin/python3.11"), "-c", found]
            subprocess.run(command, check=True, timeout=600)


def main() -> None:
    """Append to a server of its own, read back, and end while a thread waits, with each wheel."""
    if shutil.which("qemu-aarch64") is None:
        sys.exit("qemu-aarch64 is missing: apt-get install qemu-user")
    _run_here(_newest(sys.argv[1], "sbp_native-*manylinux_2_28_x86_64.whl"))
    _run_emulated(_newest(sys.argv[1], "sbp_native-*aarch64.whl"))


if __name__ == "__main__":
    main()
