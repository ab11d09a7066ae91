"""Readers of a range of which one copy is damaged are served by the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import sbp_native as sbp
from clusters import Cluster

VALUES = [b"record %04d" % number for number in range(100)]
DAMAGED = 50


def flip(directory: Path, content: bytes) -> None:
    """Turns over a bit of the first byte of that in the log."""
    for path in sorted(directory.glob("segment-*")):
        at = path.read_bytes().find(content)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([content[0] ^ 1]))
            return
    raise AssertionError("the record is in no segment")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("which", [0, 1], ids=["primary", "follower"])
def test_a_batch_that_is_damaged_on_one_server_is_read_from_another(tmp_path: Path, which: int) -> None:
    """Of an open range, which is sealed as its server ends, and of a sealed one."""
    with Cluster(tmp_path) as cluster, sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        for value in VALUES:
            stream.append(value)
        damaged = cluster.holders(stream)[which]
        cluster.away(damaged, "ended")
        flip(tmp_path / f"range-server-{damaged}", VALUES[DAMAGED])
        cluster.back(damaged)
        said = cluster.log(damaged)
        assert "damaged records cannot be served" in said
        assert f"from={DAMAGED} to={DAMAGED + 1}" in said
        for _ in range(2):
            with sbp.connect(cluster.address, timeout=30) as reader:
                assert [value for batch in reader.stream("orders").read() for value in batch.values] == VALUES
                assert reader.fetch("orders", DAMAGED)[0].values[0] == VALUES[DAMAGED]
            stream.seal()
        if which == 0:
            # It is asked first, so the records were read elsewhere.
            assert "code=RS_DATA_CORRUPTED (2502)" in cluster.log(damaged)
