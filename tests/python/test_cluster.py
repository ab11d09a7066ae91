"""Streams with several copies on servers in this process: what happens when one of them is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from sbp_native import testing

if TYPE_CHECKING:
    from collections.abc import Iterator


def values(stream: sbp.Stream) -> list[bytes | None]:
    return [value for batch in stream.read() for value in batch.values]


@pytest.fixture
def cluster() -> Iterator[testing.Cluster]:
    with testing.Cluster(3) as cluster:
        yield cluster


def test_a_stream_with_three_copies_survives_each_server_in_turn(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        wanted = []
        for number in range(3):
            for when in ("before", "while"):
                if when == "while":
                    cluster.stop(number)
                value = f"{when} {number}".encode()
                stream.append(value)
                wanted.append(value)
            cluster.start(number)
        assert values(stream) == wanted


def test_the_placement_driver_can_be_away(cluster: testing.Cluster) -> None:
    with sbp.connect(cluster.address, timeout=30) as client:
        stream = client.create_stream("orders", replicas=3, acks=2)
        stream.append(b"before")
        cluster.restart_driver()
        stream.append(b"after")
        assert values(stream) == [b"before", b"after"]
        client.create_stream("others", replicas=3, acks=2).append(b"x")


def test_numbers_are_those_of_range_servers(cluster: testing.Cluster) -> None:
    assert list(cluster.servers) == [0, 1, 2]
    cluster.stop(1)
    assert list(cluster.servers) == [0, 2]
    cluster.stop(1)
    with pytest.raises(ValueError, match="there is no range server 3: they have the numbers 0 to 2"):
        cluster.stop(3)
    with pytest.raises(ValueError, match="a cluster has at least one range server, not 0"):
        testing.Cluster(0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"role": "range-server"}, "needs placement_driver="),
        ({"placement_driver": "127.0.0.1:1"}, 'is for role="range-server"'),
        ({"role": "primary"}, 'not "primary"'),
    ],
)
def test_a_role_that_cannot_be_is_told(arguments: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sbp.Server(**arguments)  # type: ignore[arg-type]
