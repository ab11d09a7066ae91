"""Calls about streams, ranges and servers, on both faces."""

from __future__ import annotations

import math
import pickle
import re
from datetime import timedelta
from typing import Any

import pytest

import sbp_native as sbp


def test_settings_go_in_and_come_back(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(
        name, retention=timedelta(days=7), retention_bytes=1 << 30, replicas=1, properties={"owner": "me"}
    )
    info = client.describe_stream(name)
    assert info == stream.describe() == client.describe_stream(stream.id) == client.describe_stream(stream)
    assert info.retention == timedelta(days=7)
    assert (info.retention_bytes, info.replicas, info.properties) == (1 << 30, 1, {"owner": "me"})
    assert info.created_at > 1_600_000_000_000
    plain = client.create_stream(f"{name}-plain").info
    assert (plain.retention, plain.retention_bytes, plain.properties) == (None, None, {})
    assert client.create_stream(f"{name}-seconds", retention=1.5).info.retention == timedelta(seconds=1.5)


def test_a_stream_has_a_name(client: sbp.Client, name: str) -> None:
    before = len(client.list_streams())
    stream = client.create_stream(name)
    for nameless in (lambda: client.create_stream(""), lambda: stream.update(name="")):
        with pytest.raises(sbp.InvalidRequestError, match="a stream has a name") as caught:
            nameless()
        assert isinstance(caught.value, ValueError)
    with pytest.raises(sbp.StreamNotFoundError):
        client.stream("")
    assert len(client.list_streams()) == before + 1


def test_a_stream_keeps_its_identity(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    identity = stream.identity
    assert identity is not None
    assert len(bytes.fromhex(identity)) == 16
    assert stream.info.identity == client.describe_stream(stream).identity == identity
    assert stream.update(name=f"{name}-renamed", retention_bytes=1000).identity == identity
    assert client.stream(f"{name}-renamed").identity == identity
    assert client.create_stream(f"{name}-other").identity != identity
    stream.delete()
    assert client.create_stream(f"{name}-renamed").identity != identity


@pytest.mark.asyncio
async def test_a_stream_has_one_identity_for_both_clients(
    client: sbp.Client, aclient: sbp.AsyncClient, name: str
) -> None:
    created = client.create_stream(name)
    stream = await aclient.stream(name)
    assert stream.identity == stream.info.identity == created.identity


def test_an_update_changes_what_it_names(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, retention=60, retention_bytes=1000, properties={"a": "1"})
    updated = client.update_stream(name, retention_bytes=2000)
    assert (updated.retention, updated.retention_bytes) == (timedelta(seconds=60), 2000)
    assert updated.properties == {"a": "1"}
    updated = stream.update(retention="forever", properties={"b": "2"})
    assert (updated.retention, updated.retention_bytes, updated.properties) == (None, 2000, {"b": "2"})
    updated = stream.update(retention_bytes="unlimited", name=f"{name}-renamed")
    assert (updated.retention_bytes, updated.name) == (None, f"{name}-renamed")
    assert client.stream(f"{name}-renamed").id == stream.id
    with pytest.raises(sbp.StreamNotFoundError):
        client.stream(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"retention": 0},
        {"retention": -1},
        {"retention": math.inf},
        {"retention": "a week"},
        {"retention": timedelta(microseconds=1)},
        {"retention_bytes": 0},
        {"retention_bytes": "all"},
        {"retention_bytes": True},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(client: sbp.Client, name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="retention"):
        client.create_stream(name, **wrong)
    with pytest.raises(TypeError, match="properties"):
        client.create_stream(name, properties={"a": 1})  # type: ignore[dict-item]


def test_a_stream_is_named_in_every_way(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    keys: list[str | int | sbp.Stream | sbp.StreamInfo] = [name, stream.id, stream, stream.info]
    for place, key in enumerate(keys):
        assert client.append(key, b"x").base_offset == place
    assert client.append_all({stream.id: b"y"})[name].base_offset == 4
    with pytest.raises(TypeError, match="a stream is named"):
        client.append(1.5, b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a stream is named"):
        client.append(True, b"x")


def test_an_append_can_insist_on_its_offset(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    assert stream.append([b"a", b"b"], expected_offset=0).last_offset == 1
    with pytest.raises(sbp.PreconditionFailedError) as caught:
        stream.append(b"c", expected_offset=1)
    assert not caught.value.indeterminate
    assert client.append(name, b"c", expected_offset=2).base_offset == 2
    with pytest.raises(ValueError, match="expected_offset"):
        stream.append(b"d", expected_offset=-1)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_bodies_are_compressed(client: sbp.Client, name: str, compression: Any) -> None:
    stream = client.create_stream(name)
    before = client.stats()["bytes_out"]
    stream.append(bytes(200_000), compression=compression)
    stream.append([bytes(100_000)] * 2, compression=compression)
    sent = client.stats()["bytes_out"] - before
    assert (sent > 400_000) == (compression == "none"), sent
    assert [bytes(p or b"") for batch in stream.read() for p in batch.payloads] == [
        bytes(200_000),
        bytes(100_000),
        bytes(100_000),
    ]
    with pytest.raises(ValueError, match="compression is"):
        stream.append(b"x", compression="gzip")  # type: ignore[arg-type]


def test_a_fetch_reads_once(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    assert stream.fetch(0) == []
    for _ in range(4):
        stream.append(bytes(1000))
    assert [batch.base_offset for batch in client.fetch(name, 1)] == [1, 2, 3]
    assert [batch.base_offset for batch in stream.fetch(1, max_bytes=1)] == [1]
    with pytest.raises(sbp.OffsetOutOfRangeError) as caught:
        stream.fetch(5)
    assert caught.value.stream == name
    with pytest.raises(sbp.StreamNotFoundError):
        client.fetch("nowhere", 0)


@pytest.mark.asyncio
async def test_a_fetch_waits_for_data(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    waiting = stream.fetch(0, min_bytes=1, max_wait=30.0)
    await stream.append(b"x")
    assert [batch.base_offset for batch in await waiting] == [0]
    assert await stream.fetch(1, min_bytes=1, max_wait=0.01) == []


def test_trimmed_records_are_gone(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"%d" % number for number in range(10)])
    stream.append([b"%d" % number for number in range(10, 20)])
    assert client.trim(name, before=12) == 12
    assert client.trim(stream, before=3) == 12, "a start never moves back"
    assert stream.positions().earliest == 12
    assert stream.trim("latest-2") == 18
    with pytest.raises(sbp.OffsetOutOfRangeError):
        stream.trim(before=21)
    assert stream.trim("latest") == 20


def test_a_sealed_range_goes_on_in_the_next(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"b"])
    following = client.seal(name)
    assert (following.index, following.start_offset, following.is_open, following.end_offset) == (1, 2, True, None)
    assert stream.append(b"c").base_offset == 2
    first, second = stream.describe_ranges()
    assert (first.index, first.start_offset, first.end_offset, first.is_open) == (0, 0, 2, False)
    assert (second.index, second.start_offset, second.is_open) == (1, 2, True)
    assert first.stream_id == stream.id
    assert len(first.servers) == 1
    assert client.describe_ranges(stream) == [first, second]
    assert "index=0" in repr(first)
    assert [bytes(p or b"") for batch in stream.read() for p in batch.payloads] == [b"a", b"b", b"c"]


def test_a_deleted_stream_is_not_there(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    client.append(name, b"x")
    client.delete_stream(name)
    with pytest.raises(sbp.StreamNotFoundError):
        stream.append(b"y")
    with pytest.raises(sbp.StreamNotFoundError):
        client.describe_stream(name)
    with pytest.raises(sbp.StreamNotFoundError):
        client.delete_stream(stream)
    assert client.create_stream(name).id != stream.id
    assert client.append(name, b"z").base_offset == 0


def test_a_name_that_became_another_streams_is_looked_up_again(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as one, sbp.connect(server.address) as other:
        one.create_stream(name)
        one.append(name, b"x")
        other.delete_stream(name)
        other.create_stream(name)
        with pytest.raises(sbp.StreamNotFoundError):
            one.append(name, b"y")
        assert one.append(name, b"z").base_offset == 0


def test_a_stream_is_as_it_is_now(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as one, sbp.connect(server.address) as other:
        stream = one.create_stream(name)
        one.append(name, b"x")
        other.stream(name).update(name=f"{name}-renamed", properties={"a": "b"})
        assert one.stream(stream.id).name == f"{name}-renamed"
        assert one.stream(f"{name}-renamed").info.properties == {"a": "b"}
        with pytest.raises(sbp.StreamNotFoundError):
            one.append(name, b"y")
        other.stream(stream.id).delete()
        with pytest.raises(sbp.StreamNotFoundError):
            one.stream(f"{name}-renamed")
        assert one.create_stream(f"{name}-renamed").id != stream.id
        assert one.append(f"{name}-renamed", b"z").base_offset == 0


def test_a_client_travels_as_its_settings(server: sbp.Server, name: str) -> None:
    limits: dict[str, Any] = {"max_in_flight_bytes": 1 << 20, "max_in_flight_calls": 7, "max_pinned_bytes": 1 << 22}
    limits["read_from"] = "any"
    with sbp.connect([server.address], timeout=7.5, client_id="me", **limits) as client:
        client.create_stream(name)
        make, arguments = client.__reduce__()
        assert arguments == (server.address,)
        told = {key: value for key, value in make.keywords.items() if value is not None}
        assert told == {"timeout": 7.5, "client_id": "me", "token_in_clear": False, **limits}
        with pickle.loads(pickle.dumps(client)) as copy:
            assert copy.append(name, b"x").base_offset == 0


@pytest.mark.asyncio
async def test_the_same_goes_for_asyncio(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as one, sbp.aio.connect(server.address) as other:
        await one.create_stream(name)
        await one.append(name, b"x")
        await other.delete_stream(name)
        await other.create_stream(name)
        with pytest.raises(sbp.StreamNotFoundError):
            await one.append(name, b"y")
        assert (await one.append(name, b"z")).base_offset == 0


def test_the_cluster_says_who_decides(server: sbp.Server, client: sbp.Client) -> None:
    cluster = client.cluster()
    assert [member.address for member in cluster.members] == [server.address]
    assert cluster.leader == cluster.members[0]
    assert cluster.leader is not None
    assert cluster.leader.is_leader
    assert server.address in repr(cluster)
    assert cluster.id is not None
    assert re.fullmatch("[0-9a-f]{32}", cluster.id)
    assert client.cluster().id == cluster.id
    servers = cluster.range_servers
    assert servers is not None
    assert [server.address for server in servers] == [server.address]
    only = servers[0]
    assert only.is_up
    assert (only.is_draining, only.is_drained, only.stuck) == (False, False, [])
    assert (only.server_id, only.silent_for, only.followed_ranges, only.incomplete_ranges) == (1, 0.0, 0, 0)
    assert (only.withheld_ranges, only.withheld_bytes) == (0, 0)
    before = only.open_ranges
    client.create_stream("counted")
    again = (client.cluster().range_servers or [])[0]
    assert (again.open_ranges, again.sealed_ranges, again.missing_replicas) == (before + 1, only.sealed_ranges, 0)
    assert ": up>" in repr(again)
    assert (cluster.copies_under_way, cluster.ranges_waiting_for_a_copy) == (0, 0)


@pytest.mark.asyncio
async def test_every_verb_is_there_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name, retention=60)
    acks = [await aclient.append(key, b"x") for key in (name, stream.id, stream, stream.info)]
    assert [ack.base_offset for ack in acks] == [0, 1, 2, 3]
    assert (await stream.update(retention="forever")).retention is None
    assert (await aclient.update_stream(name, properties={"a": "b"})).properties == {"a": "b"}
    assert (await aclient.describe_stream(name)).id == stream.id
    assert (await stream.describe()).name == name
    assert (await aclient.seal(name)).index == 1
    assert (await stream.seal()).index == 2
    assert len(await aclient.describe_ranges(name)) == len(await stream.describe_ranges()) == 3
    assert await aclient.trim(name, 1) == 1
    assert await stream.trim("latest") == 4
    assert (await aclient.cluster()).leader is not None
    assert [info.name for info in await aclient.list_streams() if info.id == stream.id] == [name]
    await stream.delete()
    with pytest.raises(sbp.StreamNotFoundError):
        await aclient.delete_stream(name)


@pytest.mark.asyncio
async def test_a_first_append_takes_its_data_when_it_is_made(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as client:
        stream = client.create_stream(name)
    data = bytearray(b"before")
    async with sbp.aio.connect(server.address) as fresh:
        appended = fresh.append(stream.id, data, key=b"k", headers={"h": b"v"})
        data[:] = b"behind"
        await appended
        [batch] = await fresh.fetch(name, 0)
    [record] = batch.records()
    assert (record.value, record.key, record.headers) == (b"before", b"k", [("h", b"v")])


def test_a_try_goes_through_when_there_is_room(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    assert stream.try_append(b"x").base_offset == 0
    assert client.try_append(name, [b"y", b"z"]).last_offset == 2
