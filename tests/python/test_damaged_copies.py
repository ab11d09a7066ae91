"""Readers of a range of which one copy is damaged are served by the others, and so is its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sbp_native as sbp
from clusters import Cluster
from sbp_native.testing import eventually

VALUES = [b"record %04d" % number for number in range(100)]
DAMAGED = 50
#: Where groups begin in the log, and where the head of their first batch has its range.
_GROUPS = 4096
_HEAD = 64 + 20


def flip(directory: Path, content: bytes, part: str) -> None:
    """Turns over a bit of a batch that has this, or of its head. The batch is the only one of its group."""
    for path in sorted(directory.glob("segment-*")):
        at = path.read_bytes().find(content)
        if at < 0:
            continue
        if part == "head":
            at = at // _GROUPS * _GROUPS + _HEAD
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        return
    raise AssertionError("the record is in no segment")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("which", [0, 1], ids=["primary", "follower"])
@pytest.mark.parametrize("part", ["batch", "head"])
def test_a_batch_that_is_damaged_on_one_server_is_read_from_another(tmp_path: Path, which: int, part: str) -> None:
    """Of an open range, which is sealed as its server ends, and of a sealed one. What has its head comes back."""
    with Cluster(tmp_path) as cluster, sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        for value in VALUES:
            stream.append(value)
        damaged = cluster.holders(stream)[which]
        cluster.away(damaged, "ended")
        flip(tmp_path / f"range-server-{damaged}", VALUES[DAMAGED], part)
        cluster.begin_again(damaged)
        said = cluster.log(damaged)
        assert "damaged records cannot be served" in said
        assert f"from={DAMAGED} to={DAMAGED + 1}" in said
        for _ in range(2):
            with sbp.connect(cluster.address, timeout=30) as reader:
                assert [value for batch in reader.stream("orders").read() for value in batch.values] == VALUES
                assert reader.fetch("orders", DAMAGED)[0].values[0] == VALUES[DAMAGED]
            stream.seal()
        if part == "head":
            # Where the batch was is not known any more: it stays damaged, and its server does not count for the range.
            eventually(lambda: not cluster.is_whole())
            assert "whole again" not in cluster.log(damaged)
            if which == 0:
                # It is asked first, so the records were read elsewhere.
                assert "code=RS_DATA_CORRUPTED (2502)" in cluster.log(damaged)
            return
        # It has read the batch of another server, or was sent it again.
        eventually(lambda: "damaged on the disk are whole again" in cluster.log(damaged), timeout=60)
        eventually(cluster.is_whole)
        cluster.away(damaged, "ended")
        verify = [str(Path(sys.executable).with_name("sbp")), "verify", str(tmp_path / f"range-server-{damaged}")]
        verified = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.timeout(120)
def test_a_record_that_all_disks_have_lost_keeps_its_stream_waiting_until_an_end_by_force(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, sbp.connect(cluster.address, timeout=30) as client:
        # The next range is on three servers too, so that this one does not end while they are killed.
        stream = client.create_stream("orders", replicas=3, acks=3)
        for value in VALUES:
            stream.append(value)
        for number in range(3):
            cluster.away(number, "killed")
            flip(tmp_path / f"range-server-{number}", VALUES[DAMAGED], "batch")
        for number in range(3):
            cluster.begin_again(number)
        with pytest.raises(sbp.SbpError, match=rf"have lost the same records \(offset {DAMAGED}\)") as waits:
            stream.seal(timeout=10)
        assert waits.value.retriable
        command = [str(Path(sys.executable).with_name("sbp")), "cluster", "force-seal", "orders/0", "--yes"]
        command += ["--servers", cluster.address]
        forced = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert forced.returncode == 0, forced.stderr
        assert f"ends at {len(VALUES)}" in forced.stdout
        assert forced.stdout.splitlines()[-1].split() == [str(DAMAGED), "to", str(DAMAGED)]
        assert stream.append(b"it goes on").base_offset == len(VALUES)
        read: list[bytes | None] = []
        with pytest.raises(sbp.DataCorruptedError) as lost:
            for batch in stream.read():
                read.extend(batch.values)
        assert (read, lost.value.offset) == (VALUES[:DAMAGED], DAMAGED)
        behind = [value for batch in stream.read(DAMAGED + 1) for value in batch.values]
        assert behind == [*VALUES[DAMAGED + 1 :], b"it goes on"]
