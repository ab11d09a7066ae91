"""What a real server refuses: calls that are wrong, and requests that a peer spoils on their way."""

from __future__ import annotations

import itertools
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sbp_native as sbp
from python.provoked import is_refusal, told
from python.scripted_peer import APPEND, CREATE_STREAMS, FETCH, Act, Frame, ScriptedPeer, changed, encode
from vectors.batches import aligned
from vectors.make import to_json

HEAD = struct.Struct(">bqi")
#: Call numbers from here on are the peer's own.
CROWD = 1_000_000
WRITER = {"high": 1, "low": 2}

Change = Callable[[Frame], Act]
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


def entry(**facts: Any) -> Change:
    """Changes the only entry of an APPEND."""

    def change(frame: Frame) -> Act:
        request = frame.decode("AppendRequest")
        request["append_requests"][0].update(facts)
        return changed(frame, header=encode("AppendRequest", request))

    return change


def head(**facts: Any) -> Change:
    """Changes the head of the only batch of an APPEND."""

    def change(frame: Frame) -> Act:
        magic, base_offset, size = HEAD.unpack_from(frame.payload)
        meta = to_json("RecordBatchMeta", frame.payload[13 : 13 + size].rstrip(b"\0") + bytes(16))
        meta.update(facts)
        table = encode("RecordBatchMeta", meta)
        table += bytes(-(13 + len(table)) % 16)
        body = frame.payload[13 + size :][: meta["body_length"]]
        payload = aligned(HEAD.pack(magic, base_offset, len(table)) + table + body)
        request = frame.decode("AppendRequest")
        request["append_requests"][0]["batch_length"] = len(payload)
        return changed(frame, header=encode("AppendRequest", request), payload=payload)

    return change


def refused(stream: sbp.Stream, data: Any = b"x", timeout: float | None = None, **options: Any) -> sbp.SbpError:
    """What the server's refusal of an append raises."""
    error = told(lambda: stream.append(data, timeout=timeout, **options))
    assert isinstance(error, sbp.RejectedError)
    assert error.stream == stream.name
    assert error.endpoint is not None
    assert error.attempts >= 1
    return error


@pytest.mark.provokes(2, by="server")
def test_a_header_that_cannot_be_read(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.once(APPEND, lambda frame: changed(frame, header=b"\xff" * len(frame.header)))
    assert refused(stream).code == 2


@pytest.mark.provokes(3, by="server")
def test_a_header_in_another_form(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.once(APPEND, lambda frame: changed(frame, form=7))
    assert refused(stream).code == 3


@pytest.mark.provokes(1404, by="server")
def test_a_stream_that_was_deleted(client: sbp.Client, stream: sbp.Stream) -> None:
    with sbp.connect(client.servers) as other:
        other.delete_stream(stream.name)
    assert type(refused(stream)) is sbp.StreamNotFoundError


@pytest.mark.provokes(1408, by="server")
def test_a_request_that_waited_for_longer_than_it_may(tmp_path: Path, name: str) -> None:
    """The placement driver does one thing after the other, and looks at the time when it begins."""
    rounds, numbers = itertools.count(), itertools.count(CROWD)
    streams = [{"name": f"other-{number}"} for number in range(200)]
    work = encode("CreateStreamsRequest", {"timeout_ms": 60_000, "streams": streams})

    def behind_much_work(frame: Frame) -> Act:
        """Much is asked for in front of the one: what an earlier round asked for may still be in flight."""
        late = encode("CreateStreamsRequest", frame.decode("CreateStreamsRequest") | {"timeout_ms": 1})
        before = [replace(frame, call=number, header=work) for number in itertools.islice(numbers, 10)]
        return Act(up=(*before, replace(frame, header=late)))

    with ScriptedPeer() as peer, sbp.Server(tmp_path) as server:
        peer.upstream = server.address
        peer.on(CREATE_STREAMS, behind_much_work)
        peer.rewrite(CREATE_STREAMS, lambda answer: answer if answer.call < CROWD else None)
        with sbp.connect(peer.address) as client:
            error = None
            while error is None:  # it may come just before the work begins
                try:
                    client.create_stream(f"{name}-{next(rounds)}", timeout=1)
                except sbp.SbpError as caught:
                    error = caught if is_refusal(caught) else None
        assert (type(error), error.code, error.retriable) == (sbp.DeadlineExceededError, 1408, True)


@pytest.mark.provokes(1412, by="server")
def test_an_offset_that_is_not_the_next_one(stream: sbp.Stream) -> None:
    stream.append([b"a", b"b"], expected_offset=0)
    error = refused(stream, b"c", expected_offset=1)
    assert (error.code, error.offset, error.retriable) == (1412, 2, False)
    assert type(error) is sbp.PreconditionFailedError
    assert "is at offset 2, not 1" in str(error)


@pytest.mark.provokes(1429, by="server")
def test_one_fetch_too_many_to_wait(peer: ScriptedPeer, client: sbp.Client, stream: sbp.Stream) -> None:
    def crowd(frame: Frame) -> Act:
        """Sends the request 256 times more, to wait for long, under numbers that the client will not use."""
        waiting = encode("FetchRequest", frame.decode("FetchRequest") | {"max_wait_ms": 60_000})
        numbers = range(frame.call + CROWD, frame.call + CROWD + 256)
        return Act(up=(*(replace(frame, call=number, header=waiting) for number in numbers), frame))

    peer.once(FETCH, crowd)
    peer.rewrite(FETCH, lambda answer: answer if answer.call < CROWD else None)
    error = told(lambda: client.fetch(stream.id, 0, min_bytes=1, max_wait=0.2, timeout=0.5))
    assert (type(error), error.code, error.retriable) == (sbp.ThrottledError, 1429, True)


@pytest.mark.provokes(1460, by="server")
def test_a_range_that_is_sealed(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    stream.seal()
    peer.on(APPEND, entry(range_index=0))
    error = refused(stream, timeout=0.5)
    assert (error.code, error.retriable) == (1460, True)
    peer.reset()
    assert stream.append(b"x").base_offset == 0


@pytest.mark.provokes(1462, by="server")
def test_a_range_that_is_not_there(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.on(APPEND, entry(range_index=9))
    error = refused(stream, timeout=0.5)
    assert (error.code, error.retriable) == (1462, True)


@pytest.mark.provokes(1471, by="server")
def test_an_epoch_that_the_range_has_not(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.once(APPEND, entry(range_index=0, epoch=9))
    assert refused(stream).code == 1471


@pytest.mark.provokes(1480, 1481, 1482, by="server")
def test_the_numbers_of_a_writer(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    def numbered(epoch: int, sequence: int) -> Change:
        return head(writer_id=WRITER, writer_epoch=epoch, base_sequence=sequence)

    peer.on(APPEND, numbered(1, 0), numbered(1, 5), numbered(1, 1), numbered(0, 2), numbered(1, 2))
    stream.append([b"a", b"b"])
    gap = refused(stream, b"f")
    overlap = refused(stream, [b"b", b"c"])
    fenced = refused(stream, b"c")
    assert (gap.code, overlap.code, fenced.code) == (1480, 1481, 1482)
    assert stream.append(b"c").base_offset == 2, "a refused batch changes nothing"


@pytest.mark.provokes(1483, by="server")
def test_columns_that_the_stream_has_not(peer: ScriptedPeer, client: sbp.Client, name: str) -> None:
    typed = client.create_stream(name, schema=pa.schema([("n", pa.int64())]))
    peer.once(APPEND, head(schema_fingerprint=7))
    error = refused(typed, pa.table({"n": [1]}))
    assert (error.code, type(error)) == (1483, sbp.SchemaMismatchError)


@pytest.mark.provokes(1484, by="server")
def test_a_batch_that_does_not_add_up(peer: ScriptedPeer, stream: sbp.Stream) -> None:
    peer.once(APPEND, head(body_crc32c=1))
    error = refused(stream)
    assert (error.code, type(error)) == (1484, sbp.BatchCorruptError)


@pytest.mark.provokes(1502, by="server")
def test_more_copies_than_servers(client: sbp.Client, name: str) -> None:
    with pytest.raises(sbp.UnavailableError) as caught:
        client.create_stream(name, replicas=3)
    assert (caught.value.code, caught.value.retriable) == (1502, True)


@pytest.mark.provokes(2502, by="server")
def test_a_disk_that_changed_its_mind(tmp_path: Path, name: str) -> None:
    with sbp.Server(tmp_path) as server, sbp.connect(server.address) as client:
        for value in (b"the first record", b"the second record"):
            client.append(client.create_stream(name, exist_ok=True), value)
    segment = next(path for path in sorted(tmp_path.glob("segment-*")) if b"the first record" in path.read_bytes())
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(b"the first record"))
        file.write(b"T")
    with sbp.Server(tmp_path) as server, sbp.connect(server.address) as client:
        stream = client.stream(name)
        error = told(lambda: list(stream.read()))
        assert (type(error), error.code, error.stream, error.offset) == (sbp.DataCorruptedError, 2502, name, 0)
        assert f"damaged from offset 0 to 1 in {segment.name}; `sbp verify`" in str(error)
        # There is one copy: that is looked up once, and nothing is repeated, nor worth repeating.
        assert error.attempts <= 2
        assert not error.retriable
        assert "not worth trying again unchanged; read on behind the damage" in str(error)
        assert "another server" not in str(error)
        assert [record.value for batch in stream.read(start=1) for record in batch.records()] == [b"the second record"]


@pytest.mark.provokes(2508, by="server", in_child=True)
def test_a_disk_that_fails(tmp_path: Path, run_python: Run) -> None:
    done = run_python(
        """
        import os, sys
        import sbp_native as sbp

        server = sbp.Server(sys.argv[1])
        with sbp.connect(server.address) as client:
            stream = client.create_stream("s")
            stream.append(b"stored")
            for number in os.listdir("/proc/self/fd"):
                if os.path.basename(os.path.realpath(f"/proc/self/fd/{number}")).startswith("segment-"):
                    os.dup2(os.open(os.devnull, os.O_RDONLY), int(number))      # every write fails from now on
            try:
                stream.append(b"lost", timeout=5)
            except sbp.LogFailedError as error:
                assert error.indeterminate and not error.retriable and error.stream == "s", vars(error)
                print(error.code, error)
            assert isinstance(server.error, sbp.LogFailedError), server.error
            assert server.error.code == 2508
            assert stream.positions().latest == 1
        try:
            server.close()
        except sbp.LogFailedError as error:
            assert "did not close cleanly" in str(error)
        else:
            raise AssertionError("closed")
        """,
        str(tmp_path),
    )
    assert done.stdout.startswith("2508 [SBP-2508] ")
    assert "check its disk and restart it" in done.stdout


@pytest.mark.provokes(9013, by="server")
def test_records_that_are_gone(client: sbp.Client, stream: sbp.Stream) -> None:
    stream.append([b"a", b"b", b"c"])
    stream.trim(2)
    with pytest.raises(sbp.DataLossError) as caught, stream.tail(start=0) as tail:
        next(tail)
    assert (caught.value.code, caught.value.stream, caught.value.offset) == (9013, stream.name, 0)
    assert "2 records are gone" in str(caught.value)
