"""Places in streams: numbers, words, times, and what is counted from an end."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import sbp_native as sbp


@pytest.fixture
def filled(client: sbp.Client, name: str) -> sbp.Stream:
    """A stream of twenty records, the first five of which are gone."""
    stream = client.create_stream(name)
    for number in range(20):
        stream.append(b"%d" % number, timestamp=1_000 * (number + 1))
    assert stream.trim(5) == 5
    return stream


def values(batches: sbp.Batches) -> list[int]:
    return [int(record.value or b"") for batch in batches for record in batch.records()]


PLACES: list[tuple[Any, int]] = [
    (7, 7),
    ("earliest", 5),
    ("earliest+0", 5),
    ("earliest+3", 8),
    ("earliest+999", 20),
    ("latest-3", 17),
    ("latest-0", 20),
    ("latest-999", 5),
    (sbp.Relative("earliest", 3), 8),
    (sbp.Relative("latest", -3), 17),
    (datetime.fromtimestamp(10, UTC), 9),
]


@pytest.mark.parametrize(("place", "offset"), PLACES, ids=[str(place) for place, _ in PLACES])
def test_a_read_starts_at_every_kind_of_place(filled: sbp.Stream, place: Any, offset: int) -> None:
    assert values(filled.read(start=place)) == list(range(offset, 20))


@pytest.mark.parametrize(("place", "offset"), PLACES, ids=[str(place) for place, _ in PLACES])
def test_a_read_ends_at_every_kind_of_place(filled: sbp.Stream, place: Any, offset: int) -> None:
    assert values(filled.read(end=place)) == list(range(5, offset))


@pytest.mark.parametrize(("place", "offset"), PLACES, ids=[str(place) for place, _ in PLACES])
def test_a_tail_starts_at_every_kind_of_place(filled: sbp.Stream, place: Any, offset: int) -> None:
    with filled.tail(start=place, timeout=20) as tail:
        filled.append(b"20")
        assert next(tail).base_offset == offset


@pytest.mark.parametrize(("place", "offset"), PLACES, ids=[str(place) for place, _ in PLACES])
def test_a_fetch_starts_at_every_kind_of_place(filled: sbp.Stream, place: Any, offset: int) -> None:
    found = [record.offset for batch in filled.fetch(place) for record in batch.records()]
    assert found == list(range(offset, 20))


def test_a_timedelta_is_so_long_ago(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    now = datetime.now(UTC)
    stream.append(b"0", timestamp=now - timedelta(hours=2))
    stream.append(b"1", timestamp=now - timedelta(minutes=30))
    assert values(stream.read(start=timedelta(hours=1))) == [1]
    assert values(stream.read(start=timedelta(hours=3))) == [0, 1]


def test_streams_can_have_places_of_their_own(client: sbp.Client, name: str) -> None:
    a, b = client.create_stream(f"{name}-a"), client.create_stream(f"{name}-b")
    a.append([b"0", b"1", b"2"])
    b.append([b"10", b"11", b"12"])
    assert values(client.read([a, b])) == [0, 1, 2, 10, 11, 12]
    starts: dict[str, int | str] = {a.name: 1, b.name: "latest-1"}
    assert values(client.read([a.name, b.name], start=starts)) == [1, 2, 12]
    assert values(client.read([a, b], start=starts, end={a.name: 2, b.id: "latest"})) == [1, 12]
    with pytest.raises(TypeError, match="names no place"):
        client.read([a, b], start={a.name: 1})


@pytest.mark.parametrize(
    "wrong", ["now", "latest+1", "earliest-1", "latest-", -1, True, timedelta(seconds=-1), 1.5, None]
)
def test_what_is_no_place_is_refused(client: sbp.Client, name: str, wrong: Any) -> None:
    stream = client.create_stream(name)
    with pytest.raises((sbp.InvalidRequestError, TypeError)):
        stream.trim(wrong)


@pytest.mark.parametrize(("anchor", "records"), [("latest", 1), ("earliest", -1), ("middle", 0)])
def test_a_relative_place_points_into_the_stream(anchor: Any, records: int) -> None:
    with pytest.raises(ValueError, match="Relative is"):
        sbp.Relative(anchor, records)


def test_relative_places_are_values() -> None:
    place = sbp.Relative("latest", -5)
    assert place == sbp.Relative("latest", -5)
    assert place != sbp.Relative("latest", -6)
    assert len({place, sbp.Relative("latest", -5)}) == 1
    assert repr(place) == "Relative('latest', -5)".replace("'", '"')
    assert pickle.loads(pickle.dumps(place)) == place
    assert (place.anchor, place.records) == ("latest", -5)


@pytest.mark.asyncio
async def test_places_are_the_same_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    await stream.append([b"%d" % number for number in range(10)])
    found = [record.offset async for batch in stream.read("latest-3") for record in batch.records()]
    assert found == [7, 8, 9]
    fetched = await aclient.fetch(name, "earliest+8")
    assert [batch.base_offset for batch in fetched] == [8]


Connect = Callable[..., sbp.Client]


def test_servers_come_as_text_list_or_from_the_environment(server: sbp.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "127.0.0.1:1"
    for servers in (server.address, f"{nobody},{server.address}", [nobody, server.address], (server.address,)):
        with sbp.connect(servers) as client:
            assert client.ping() > 0
    monkeypatch.setenv("SBP_SERVERS", f"{nobody},{server.address}")
    with sbp.connect() as client:
        assert client.servers == f"{nobody},{server.address}"
    monkeypatch.delenv("SBP_SERVERS")
    with pytest.raises(ValueError, match="SBP_SERVERS"):
        sbp.connect()
    with pytest.raises(TypeError, match="host:port"):
        sbp.connect(7)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_the_environment_names_servers_for_asyncio_too(
    server: sbp.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBP_SERVERS", server.address)
    async with sbp.aio.connect() as client:
        assert await client.ping() > 0
