"""What a server may answer, said by a scripted peer where ours would not say it: class, repetition, and words."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sbp_native as sbp
from python.provoked import TABLE, told
from python.scripted_peer import (
    APPEND,
    CREATE_STREAMS,
    DELETE_STREAMS,
    DESCRIBE_STREAMS,
    FETCH,
    HANG_UP,
    HEARTBEAT,
    LIST_RANGES,
    SEAL_RANGES,
    SWALLOW,
    TRIM_STREAMS,
    UPDATE_STREAMS,
    Act,
    Frame,
    ScriptedPeer,
    encode,
    refuse,
    refuse_entries,
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def client(peer: ScriptedPeer) -> Iterator[sbp.Client]:
    """A client of the peer."""
    with sbp.connect(peer.address, timeout=20) as connected:
        yield connected


@pytest.fixture
def stream(client: sbp.Client, name: str) -> sbp.Stream:
    """A stream behind the peer."""
    return client.create_stream(name)


def refused(stream: sbp.Stream, code: int, timeout: float | None = None) -> sbp.SbpError:
    """What an append that the peer refuses raises."""
    error = told(lambda: stream.append(b"x", timeout=timeout))
    assert error.code == code
    return expected(error, stream)


def expected(error: sbp.SbpError, stream: sbp.Stream) -> sbp.SbpError:
    """The error of an append, whose outcome is what the table says."""
    assert error.stream == stream.name
    assert error.indeterminate == TABLE[error.code].may_have_been_done
    assert isinstance(error, sbp.IndeterminateError) == error.indeterminate
    assert isinstance(error, sbp.RejectedError) != error.indeterminate
    return error


# What is not worth sending again, and what may have been done: told at once.
@pytest.mark.provokes(
    *(1, 2, 3, 1401, 1403, 1404, 1409, 1412, 1413, 1431, 1461, 1463, 1464, 1465, 1466, 1470, 1471),
    *(1480, 1481, 1482, 1483, 1484, 1499, 1500, 1501, 2500, 2501, 2508),
    by="peer",
)
@pytest.mark.parametrize("how", [refuse, refuse_entries])
def test_an_append_refused_for_good(peer: ScriptedPeer, stream: sbp.Stream, code: int, how: Any) -> None:
    peer.once(APPEND, how(code))
    error = refused(stream, code)
    assert (error.attempts, error.retriable, error.endpoint) == (1, False, peer.address)
    assert peer.times(APPEND) == 1
    assert "so the script says" in str(error)
    assert stream.append(b"y").base_offset == 0, "the client goes on"


# What is refused for now, with nothing done: tried again by itself, and told when it stays so.
@pytest.mark.provokes(5, 1408, 1429, 1460, 1462, 1498, 1502, 2502, 2503, 2507, by="peer")
def test_an_append_refused_for_now(peer: ScriptedPeer, stream: sbp.Stream, code: int) -> None:
    peer.once(APPEND, refuse(code))
    assert stream.append(b"x").base_offset == 0
    assert peer.times(APPEND) == 2
    peer.on(APPEND, refuse(code))
    error = refused(stream, code, timeout=0.3)
    assert error.retriable == (code != 1498)
    assert error.endpoint == peer.address


@pytest.mark.provokes(1, 1404, 1464, by="peer")
def test_a_read_refused_for_good(peer: ScriptedPeer, stream: sbp.Stream, code: int) -> None:
    stream.append(b"x")
    peer.on(FETCH, refuse(code))
    with pytest.raises(sbp.SbpError) as caught:
        list(stream.read())
    assert (caught.value.code, caught.value.stream, caught.value.attempts) == (code, stream.name, 1)
    assert not caught.value.indeterminate, "a read changes nothing"


@pytest.mark.parametrize("code", [5, 1408, 1460, 1462, 1500, 2500, 2503, 2508])
def test_a_read_refused_for_now(peer: ScriptedPeer, stream: sbp.Stream, code: int) -> None:
    stream.append(b"x")
    peer.once(FETCH, refuse(code))
    assert [record.value for batch in stream.read(start=0) for record in batch.records()] == [b"x"]


def test_a_read_of_damage_fails_at_once_where_there_is_one_copy(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    stream.append(b"x")
    peer.on(FETCH, refuse(2502))
    reads: list[Callable[[], object]] = [
        lambda: list(stream.read(start=0)),
        lambda: next(stream.tail(start=0)),
        lambda: stream.fetch(0),
    ]
    for read in reads:
        before = peer.times(FETCH)
        with pytest.raises(sbp.DataCorruptedError) as caught:
            read()
        assert (caught.value.code, caught.value.stream, peer.times(FETCH) - before) == (2502, stream.name, 1)


@pytest.mark.provokes(1, 1404, by="peer")
def test_a_created_stream_refused(peer: ScriptedPeer, client: sbp.Client, name: str, code: int) -> None:
    peer.on(CREATE_STREAMS, refuse(code))
    with pytest.raises(sbp.SbpError) as caught:
        client.create_stream(name)
    assert (caught.value.code, caught.value.stream) == (code, name)


VERBS: dict[str, tuple[int, Callable[[sbp.Stream], object]]] = {
    "append": (APPEND, lambda stream: stream.append(b"x")),
    "delete": (DELETE_STREAMS, lambda stream: stream.delete()),
    "describe": (DESCRIBE_STREAMS, lambda stream: stream.describe()),
    "describe_ranges": (LIST_RANGES, lambda stream: stream.describe_ranges()),
    "fetch": (FETCH, lambda stream: stream.fetch(0)),
    "positions": (FETCH, lambda stream: stream.positions()),
    "read": (FETCH, lambda stream: list(stream.read())),
    "seal": (SEAL_RANGES, lambda stream: stream.seal()),
    "tail": (FETCH, lambda stream: next(stream.tail(start=0))),
    "trim": (TRIM_STREAMS, lambda stream: stream.trim(1)),
    "update": (UPDATE_STREAMS, lambda stream: stream.update(retention_bytes=1 << 20)),
}


@pytest.mark.provokes(1401, by="peer")
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_which_stream_and_which_server(peer: ScriptedPeer, stream: sbp.Stream, verb: str) -> None:
    stream.append([b"a", b"b"])
    opcode, call = VERBS[verb]
    peer.on(opcode, refuse(1401))
    with pytest.raises(sbp.AccessDeniedError) as caught:
        call(stream)
    error = caught.value
    assert (error.stream, error.endpoint, error.attempts) == (stream.name, peer.address, 1)


def test_a_code_without_a_row_is_final_and_promises_nothing(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.on(APPEND, refuse(4711))
    with pytest.raises(sbp.ServerError, match=r"\[SBP-4711\].*upgrade the client") as caught:
        stream.append(b"x")
    assert (caught.value.code, caught.value.indeterminate, peer.times(APPEND)) == (4711, True, 1)


@pytest.mark.provokes(2, 5, by="peer")
def test_words_of_other_dialects(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    for number, code, expected in [(1400, 2, sbp.InvalidRequestError), (1503, 5, sbp.UnavailableError)]:
        peer.on(APPEND, refuse(number))
        assert type(refused(stream, code, timeout=0.5)) is expected


@pytest.mark.provokes(9002, by="peer")
def test_a_connection_that_ends_before_the_answer(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.once(APPEND, lambda frame: HANG_UP)
    error = refused(stream, 9002)
    assert type(error) is sbp.ConnectionLostError
    assert isinstance(error, ConnectionError)
    assert peer.times(APPEND) == 1, "it may have been done, so it is not sent again"
    assert stream.append(b"y").base_offset == 0, "the client connects again"


def test_a_read_goes_on_over_a_lost_connection(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    stream.append(b"x")
    peer.once(FETCH, lambda frame: HANG_UP)
    assert [record.value for batch in stream.read() for record in batch.records()] == [b"x"]


@pytest.mark.provokes(9004, by="peer")
def test_an_answer_that_does_not_come_to_an_append(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.on(APPEND, lambda frame: SWALLOW)
    with pytest.raises(sbp.SbpError) as caught:
        stream.append(b"x", timeout=1)
    error = expected(caught.value, stream)
    assert error.code == 9004
    assert type(error) is sbp.OutcomeUnknownTimeoutError
    assert isinstance(error, TimeoutError)


@pytest.mark.provokes(9003, by="peer")
def test_an_answer_that_does_not_come_to_a_read(peer: ScriptedPeer, client: sbp.Client) -> None:
    peer.on(DESCRIBE_STREAMS, lambda frame: SWALLOW)
    with pytest.raises(sbp.DeadlineExceededError) as caught:
        client.list_streams(timeout=0.3)
    assert caught.value.retriable
    assert caught.value.endpoint == peer.address


@pytest.mark.provokes(9005, by="peer", in_child=True)
def test_an_append_under_way_when_everything_is_shut_down(
    peer: ScriptedPeer, name: str, run_python: Run, tmp_path: Path
) -> None:
    sent = tmp_path / "sent"

    def swallow(frame: Frame) -> Act:
        sent.touch()
        return SWALLOW

    with sbp.connect(peer.address, timeout=20) as client:
        client.create_stream(name)
    peer.on(APPEND, swallow)
    done = run_python(
        """
        import os, sys, threading, time
        import sbp_native as sbp

        client = sbp.connect(sys.argv[1])
        stream = client.stream(sys.argv[2])

        def append():
            try:
                stream.append(b"x")
            except sbp.IndeterminateError as error:
                print(error.code, error)

        appending = threading.Thread(target=append)
        appending.start()
        while not os.path.exists(sys.argv[3]):
            time.sleep(0.01)
        sbp._native.shut_down()
        appending.join()
        """,
        peer.address,
        name,
        str(sent),
    )
    assert done.stdout.startswith("9005 [SBP-9005] the client stopped before the outcome was known; ")


@pytest.mark.provokes(9006, by="peer")
def test_a_server_without_a_feature(peer: ScriptedPeer, name: str) -> None:
    plain = encode("HeartbeatResponse", {"client_role": 3, "protocol_revision": 1, "connection_id": 1})
    peer.rewrite(HEARTBEAT, lambda frame: replace(frame, header=plain))
    with sbp.connect(peer.address, timeout=20) as client, pytest.raises(sbp.UnsupportedError, match="names") as caught:
        client.create_stream(name)
    assert (caught.value.code, caught.value.retriable) == (9006, False)


@pytest.mark.provokes(1401, 1500, by="peer")
@pytest.mark.asyncio
async def test_an_awaited_append_raises_the_same(peer: ScriptedPeer, name: str, code: int) -> None:
    peer.on(APPEND, refuse(code))
    async with sbp.aio.connect(peer.address) as client:
        stream = await client.create_stream(name)
        with pytest.raises(sbp.SbpError) as awaited:
            await stream.append(b"x")
        with pytest.raises(sbp.SbpError) as at_once:
            await client.append_all({name: b"x"})
    with sbp.connect(peer.address) as blocking, pytest.raises(sbp.SbpError) as called:
        blocking.stream(name).append(b"x")
    for caught in (awaited, at_once):
        assert type(caught.value) is type(called.value)
        assert vars(caught.value) == vars(called.value)
        assert str(caught.value) == str(called.value)


@pytest.mark.provokes(9008, by="peer")
@pytest.mark.asyncio
async def test_more_under_way_than_the_client_may_have(peer: ScriptedPeer, name: str) -> None:
    peer.on(APPEND, lambda frame: SWALLOW)
    async with sbp.aio.connect(peer.address, max_in_flight_calls=2) as client:
        stream = await client.create_stream(name)
        accepted = [stream.try_append(b"x", timeout=0.5) for _ in range(2)]
        with pytest.raises(sbp.BackPressureError) as caught:
            stream.try_append(b"x")
        assert (caught.value.code, caught.value.retriable, caught.value.attempts) == (9008, True, 0)
        for outcome in await asyncio.gather(*accepted, return_exceptions=True):
            assert isinstance(outcome, TimeoutError)


@pytest.mark.provokes(9010, by="peer")
def test_an_answer_that_cannot_be_read(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.once(APPEND, lambda frame: replace(frame, flags=3, header=b"\xff" * 16, payload=b""))
    error = refused(stream, 9010)
    assert type(error) is sbp.ProtocolError


@pytest.mark.provokes(9011, by="peer")
def test_data_that_arrives_damaged(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    stream.append(b"abcdefghijklmnop" * 4)

    def damage(frame: Frame) -> Frame:
        payload = bytearray(frame.payload)
        if payload:
            payload[payload.index(b"abcd")] ^= 1
        return replace(frame, payload=bytes(payload))

    peer.rewrite(FETCH, damage)
    tail = stream.tail("earliest", timeout=20)
    for steps in (stream.read(), tail, tail):
        with pytest.raises(sbp.DataCorruptedError) as caught:
            next(steps)
        assert (caught.value.code, caught.value.stream, caught.value.offset) == (9011, stream.name, 0)
        assert caught.value.retriable
    peer.reset()
    stream.append(b"behind it")
    assert len(next(stream.read(end="latest"))) == 1, "it was only the way that was bad"
    assert [next(tail).base_offset, next(tail).base_offset] == [0, 1], "the step after an error skips nothing"
