"""What goes wrong is a typed exception that names the thing and says what to do."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sbp_native as sbp
from python.pauses import pause

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.provokes(1404, by="server")
def test_an_unknown_stream(client: sbp.Client) -> None:
    with pytest.raises(sbp.StreamNotFoundError, match="no/such/stream") as caught:
        client.stream("no/such/stream")
    error = caught.value
    assert isinstance(error, LookupError)
    assert isinstance(error, sbp.RejectedError)
    assert (error.code, error.retriable, error.indeterminate) == (1404, False, False)
    assert str(error).startswith("[SBP-1404] ")
    assert "create the stream" in str(error)
    with pytest.raises(sbp.StreamNotFoundError):
        client.append_all({"no/such/stream": b"x"})
    with pytest.raises(sbp.StreamNotFoundError):
        next(client.tail(["no/such/stream"]))
    with pytest.raises(sbp.StreamNotFoundError):
        client.stream(987_654_321)


@pytest.mark.provokes(1463, by="server")
def test_an_offset_out_of_range(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"b"])
    with pytest.raises(sbp.OffsetOutOfRangeError) as caught:
        list(stream.read(start=100, end=200))
    error = caught.value
    assert (error.code, error.offset) == (1463, 100)
    assert error.stream in (name, str(stream.id))
    assert error.endpoint is not None


@pytest.mark.provokes(1413, by="client")
def test_too_large(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with pytest.raises(sbp.PayloadTooLargeError, match=r"before it is compressed .* split a single record") as caught:
        stream.append(b"x" * (17 << 20))
    assert isinstance(caught.value, ValueError)
    assert "smaller pieces" not in str(caught.value), "one record has none"
    with pytest.raises(sbp.PayloadTooLargeError):
        stream.append([b"x" * (1 << 20)] * 17)
    assert stream.append(b"x").base_offset == 0
    assert stream.append(b"x" * (17 << 20), compression="zstd").base_offset == 1, "as the advice says"
    with pytest.raises(sbp.PayloadTooLargeError):
        stream.append(b"x" * (65 << 20), compression="zstd")


@pytest.mark.provokes(1409, by="server")
def test_a_name_that_is_taken(client: sbp.Client, name: str) -> None:
    client.create_stream(name)
    with pytest.raises(sbp.AlreadyExistsError, match=name):
        client.create_stream(name)
    with pytest.raises(sbp.AlreadyExistsError):
        client.create_stream(name, schema=pa.schema([("n", pa.int64())]), exist_ok=True)


@pytest.mark.provokes(1483, by="client")
def test_data_that_does_not_fit(client: sbp.Client, name: str) -> None:
    plain = client.create_stream(f"{name}/plain")
    typed = client.create_stream(f"{name}/typed", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(sbp.SchemaMismatchError, match="with a schema"):
        plain.append(pa.table({"n": [1]}))
    with pytest.raises(sbp.SchemaMismatchError, match='column "n"'):
        typed.append(pa.table({"n": ["text"]}))
    with pytest.raises(sbp.SchemaMismatchError):
        typed.append(b"bytes")
    with pytest.raises(sbp.SbpError, match="cast"):
        client.create_stream(f"{name}/wrong", schema=pa.schema([("n", pa.uint8())]))


@pytest.mark.provokes(9007, by="client")
def test_wrong_arguments(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with pytest.raises(TypeError, match="str"):
        stream.append("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="item 1"):
        stream.append([b"x", "text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="int"):
        stream.append(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        stream.append([])
    with pytest.raises(ValueError, match="earliest"):
        stream.read(start="somewhere")
    with pytest.raises(ValueError, match="timeout"):
        stream.append(b"x", timeout=-1)
    with pytest.raises(sbp.InvalidRequestError, match="host:port"):
        sbp.connect("no port")
    for scheme in ("http://", "PLAINTEXT://"):
        with pytest.raises(
            sbp.InvalidRequestError, match=f'begins with "{scheme}"; write "broker:9092", or sbps://broker:9092'
        ):
            sbp.connect(f"{scheme}broker:9092")
    assert stream.positions().latest == 0


@pytest.mark.provokes(9001, by="client")
def test_an_unreachable_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(sbp.ConnectionFailedError, match=address) as caught:
        sbp.connect(address, timeout=10)
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.retriable
    assert time.monotonic() - started < 9, "it gives up before the deadline when nobody has ever answered"


@pytest.mark.provokes(9003, by="client")
def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError) as caught:
        sbp.connect(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)
    assert isinstance(caught.value, sbp.SbpError)


@pytest.mark.provokes(9016, by="server")
def test_a_port_that_is_taken(server: sbp.Server) -> None:
    with pytest.raises(sbp.PortTakenError, match=server.address) as caught:
        sbp.Server(listen=server.address)
    assert isinstance(caught.value, OSError)
    assert "another port" in str(caught.value)


@pytest.mark.provokes(9015, by="server")
def test_a_directory_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(sbp.ServerStartError, match="file") as caught:
        sbp.Server(tmp_path / "file")
    assert type(caught.value) is sbp.ServerStartError
    assert caught.value.code == 9015


@pytest.mark.provokes(9017, by="server")
def test_a_second_server_on_one_directory(tmp_path: Path) -> None:
    with sbp.Server(tmp_path), pytest.raises(sbp.DirectoryLockedError, match=str(tmp_path)):
        sbp.Server(tmp_path)
    sbp.Server(tmp_path).close()


@pytest.mark.provokes(9018, by="server")
def test_a_server_that_others_could_reach() -> None:
    with pytest.raises(sbp.ServerConfigError, match="insecure"):
        sbp.Server(listen="0.0.0.0:0")
    with pytest.raises(ValueError, match="durability"):
        sbp.Server(durability="maybe")  # type: ignore[arg-type]


@pytest.mark.provokes(9009, by="client")
def test_calls_on_closed_things(server: sbp.Server, name: str) -> None:
    client = sbp.connect(server.address)
    stream = client.create_stream(name)
    client.close()
    client.close()
    with pytest.raises(sbp.ClosedError):
        client.ping()
    with pytest.raises(sbp.ClosedError):
        stream.append(b"x")
    other = sbp.Server()
    other.close()
    other.close()
    with pytest.raises(sbp.ClosedError):
        other.stats()


@pytest.mark.provokes(9014, by="server")
def test_a_cursor_that_another_holder_has(client: sbp.Client, name: str) -> None:
    client.create_stream(name).append([b"a", b"b"])
    first, second = (client.cursor(f"job-{name}", [name]) for _ in range(2))
    first.commit({name: 1})
    with pytest.raises(sbp.CursorTakenError) as caught:
        second.commit({name: 2})
    assert (caught.value.code, caught.value.retriable) == (9014, False)
    assert isinstance(caught.value, sbp.PreconditionFailedError)


@pytest.fixture
def stopped_server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own, which a test may freeze and kill."""
    script = (
        "import sys, sbp_native as sbp\n"
        "server = sbp.Server(sys.argv[1])\n"
        "print(server.address, flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    yield child.stdout.readline().strip(), child
    child.kill()
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()


@pytest.mark.provokes(9004, by="server")
def test_a_deadline_after_sending_leaves_the_outcome_open(
    stopped_server: tuple[str, subprocess.Popen[str]], name: str
) -> None:
    address, process = stopped_server
    with sbp.connect(address) as client:
        stream = client.create_stream(name)
        pause(process)
        try:
            with pytest.raises(sbp.IndeterminateError) as caught:
                stream.append(b"x", timeout=0.3)
        finally:
            process.send_signal(signal.SIGCONT)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.indeterminate
        assert not caught.value.retriable
        assert caught.value.endpoint == address


@pytest.mark.provokes(9002, by="server")
def test_a_server_that_dies_in_mid_call(stopped_server: tuple[str, subprocess.Popen[str]], name: str) -> None:
    address, process = stopped_server
    with sbp.connect(address, timeout=5) as client:
        stream = client.create_stream(name)
        stream.append(b"x")
        pause(process)
        killer = threading.Timer(0.2, process.kill)
        killer.start()
        try:
            with pytest.raises(sbp.SbpError) as caught:
                stream.append(b"y")
        finally:
            killer.join()
        assert caught.value.indeterminate
        assert isinstance(caught.value, ConnectionError)


def test_ctrl_c_ends_a_blocking_call(stopped_server: tuple[str, subprocess.Popen[str]], run_python: Run) -> None:
    address, _ = stopped_server
    done = run_python(
        """
        import os, signal, sys, threading, time
        import sbp_native as sbp
        # Whoever started the tests in the background made Ctrl-C ignored, and children inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        client = sbp.connect(sys.argv[1])
        stream = client.create_stream("idle")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            next(stream.tail())
        except KeyboardInterrupt:
            assert time.monotonic() - started < 5
            assert stream.append(b"x").base_offset == 0, "the client goes on"
            print("interrupted")
        """,
        address,
    )
    assert done.stdout.strip() == "interrupted"
