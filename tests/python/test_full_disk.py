"""A disk that is full: refused with the reason, nothing acknowledged is lost, and it goes on when there is room."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from python.mounts import can_mount

SCRIPT = """
    import contextlib, os, sys
    import sbp_native as sbp

    directory = sys.argv[1]
    with sbp.Server(directory) as server, sbp.connect(server.address) as client:
        stream = client.create_stream("s")
        filler = os.path.join(directory, "filler")
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        acknowledged = 0
        try:
            for _ in range(2_000):
                try:
                    stream.append(acknowledged.to_bytes(4, "big") * (1 << 18), timeout=4)
                except sbp.IndeterminateError:
                    # The time was over in the middle of one of the attempts: then the stream knows.
                    assert stream.positions().latest == acknowledged
                else:
                    acknowledged += 1
        except sbp.StorageFullError as error:
            assert isinstance(error, sbp.RejectedError)
            assert (error.code, error.retriable, error.stream) == (2507, True, "s"), vars(error)
            assert "free space" in str(error)
        else:
            raise AssertionError("the disk never filled up")
        assert server.error is None, "a full disk is no failure of the log"
        assert stream.positions().latest == acknowledged
        os.remove(filler)
        assert stream.append((acknowledged).to_bytes(4, "big") * (1 << 18)).base_offset == acknowledged
    with sbp.Server(directory) as server, sbp.connect(server.address) as client:
        found = [record.value[:4] for batch in client.stream("s").read() for record in batch.records()]
        assert found == [n.to_bytes(4, "big") for n in range(acknowledged + 1)]
    print(acknowledged)
"""

# A small disk is filled by records, not by what is taken in advance; without a byte left it can still be read.
SMALL = """
    import contextlib, os, sys
    import sbp_native as sbp

    directory = sys.argv[1]
    acknowledged = 0
    with sbp.Server(directory) as server, sbp.connect(server.address) as client:
        stream = client.create_stream("s")
        with contextlib.suppress(sbp.StorageFullError, sbp.IndeterminateError):
            while True:
                stream.append(bytes(1 << 18), timeout=4)
                acknowledged += 1
    filler = os.path.join(directory, "filler")
    with open(filler, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    for name in os.listdir(directory):
        if name == "reserve":
            os.remove(os.path.join(directory, name))
            with open(filler, "ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
    for _ in range(2):
        with sbp.Server(directory) as server, sbp.connect(server.address) as client:
            found = sum(len(batch) for batch in client.stream("s").read())
            assert found >= acknowledged, (found, acknowledged)
    print(acknowledged)
"""

MOUNT_AND_RUN = 'mount -t tmpfs -o "size=$4" tmpfs "$1" && exec "$2" -c "$3" "$1"'


@pytest.mark.provokes(2507, by="server", in_child=True)
@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace of its own (unshare -Urm), for a small disk")
def test_a_full_disk(tmp_path: Path) -> None:
    assert on_a_disk(tmp_path, "300m", SCRIPT) > 0


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace of its own (unshare -Urm), for a small disk")
def test_a_small_disk(tmp_path: Path) -> None:
    stored = on_a_disk(tmp_path, "64m", SMALL) * (1 << 18)
    assert stored > 32 << 20, f"{stored >> 20} of 64 MiB hold records"


def on_a_disk(tmp_path: Path, size: str, script: str) -> int:
    """Runs a script on a file system of this size; the number that it prints."""
    mount = tmp_path / "mount"
    mount.mkdir()
    command = ["sh", "-c", MOUNT_AND_RUN, "sh", str(mount), sys.executable, textwrap.dedent(script), size]
    done = subprocess.run(
        ["unshare", "-Urm", *command],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
