"""Seastar RPC through the package: services called, and services with handlers in Python."""

from __future__ import annotations

import asyncio
import pickle
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import sbp_native as sbp
from sbp_native import seastar

PAGE = Path(__file__).parents[2] / "docs" / "seastar.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

T = TypeVar("T")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
#: Longer than anything here takes.
LIMIT = 30
PLAIN = b"SSTARRPC" + bytes(4)
LZ4 = b"SSTARRPC" + struct.pack("<III", 11, 0, 3) + b"LZ4"


def service(noted: list[str] | None = None) -> seastar.Server:
    """Verbs as those of the service that the vectors were taken from."""
    server = seastar.Server()

    @server.verb(1, "bytes", "bytes")
    def echo(data: bytes) -> bytes:
        return data

    @server.verb(2, "i32 i32", "i32")
    async def add(one: int, two: int) -> int:
        await asyncio.sleep(0)
        return one + two

    @server.verb(3)
    async def boom() -> None:
        raise ValueError("boom")

    @server.verb(4, "str", None)
    def note(text: str) -> None:
        if noted is not None:
            noted.append(text)

    @server.verb(5, "stream i32", "stream")
    async def repeat(stream: seastar.AsyncRpcStream, times: int) -> seastar.AsyncRpcStream:
        async def copy() -> None:
            async with stream:
                async for message in stream:
                    for _ in range(times):
                        await stream.send(message)
                await stream.end()

        keep.add(asyncio.ensure_future(copy()))
        return stream

    @server.verb(6, "", "i8")
    async def silent() -> int:
        await asyncio.sleep(LIMIT)
        return 1

    @server.verb(7, "[str] u64 f64 bool i16?", "[str] u64 f64 bool i16?")
    def several(*values: object) -> tuple[object, ...]:
        return values

    @server.verb(8, "", "i8")
    def wrong() -> str:
        return "no number"

    @server.verb(9, "stream")
    async def cut(stream: seastar.AsyncRpcStream) -> None:
        stream.abort()

    keep: set[asyncio.Future[None]] = set()
    return server


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Runs a test's coroutine, and no longer than it may take."""

    async def bounded() -> T:
        async with asyncio.timeout(LIMIT):
            return await main()

    return asyncio.run(bounded())


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[seastar.AsyncRpc, list[str]]]:
    """A client of a service in the same loop."""
    noted: list[str] = []
    async with service(noted) as server, seastar.aio.connect(server.address, timeout=LIMIT, **options) as rpc:
        yield rpc, noted


@contextmanager
def served() -> Iterator[str]:
    """The address of a service in a thread of its own."""
    ready: list[str] = []
    told = threading.Event()
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        async with service() as server:
            ready.append(server.address)
            stopped = asyncio.Event()
            loop = asyncio.get_running_loop()
            stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
            told.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert told.wait(LIMIT)
    try:
        yield ready[0]
    finally:
        stop[0]()
        thread.join(LIMIT)
        assert not thread.is_alive()


@contextmanager
def scripted(first: bytes, second: bytes = b"") -> Iterator[str]:
    """A peer that says `first` when a client has negotiated, and `second` when something has come after that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        head = connection.recv(12, socket.MSG_WAITALL)
                        connection.recv(struct.unpack("<I", head[8:])[0], socket.MSG_WAITALL)
                        connection.sendall(first)
                        if connection.recv(1_000):
                            connection.sendall(second)
                            connection.recv(1_000)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT)


def response(number: int, payload: bytes) -> bytes:
    """A response to a call, without a duration."""
    return struct.pack("<qI", number, len(payload)) + payload


@pytest.mark.parametrize("compression", [[], ["LZ4"], ["LZ4_FRAGMENTED", "LZ4"]])
def test_verbs(compression: list[str]) -> None:
    async def main() -> None:
        async with pair(compression=compression, isolation=b"ck1") as (rpc, noted):
            add = rpc.verb(2, "i32 i32", "i32")
            assert add.number == 2
            assert await add(3, 4, timeout=1.0) == 7
            assert await rpc.call(2, struct.pack("<ii", 3, -4)) == struct.pack("<i", -1)
            large = bytes(range(256)) * 5_000
            assert await rpc.verb(1, "bytes", "bytes")(large) == large
            several = rpc.verb(7, "[str] u64 f64 bool i16?", "[str] u64 f64 bool i16?")
            assert await several(["a", "ü"], 2**64 - 1, 0.5, True, -3) == (["a", "ü"], 2**64 - 1, 0.5, True, -3)
            assert await several([], 0, -1, False) == ([], 0, -1.0, False, None)
            await rpc.verb(4, "str", None)("by the verb")
            await rpc.send(4, struct.pack("<I", 4) + b"bare")
            # A call behind them on the same connection: they are there before it.
            assert await asyncio.gather(*(add(number, 1) for number in range(500))) == list(range(1, 501))
            assert noted == ["by the verb", "bare"]

    run(main)


def test_blocking() -> None:
    with served() as address, seastar.connect(address, timeout=LIMIT) as rpc:
        add = rpc.verb(2, "i32 i32", "i32")
        assert add(3, 4) == 7
        assert rpc.call(1, struct.pack("<I", 2) + b"hi") == struct.pack("<I", 2) + b"hi"
        rpc.send(4, struct.pack("<I", 0))
        with rpc.stream() as stream:
            rpc.verb(5, "stream i32", "stream")(stream, 2)
            stream.send(b"a")
            stream.send(b"b")
            stream.end()
            assert list(stream) == [b"a", b"a", b"b", b"b"]
            assert stream.receive() is None


def test_streams() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            repeat = rpc.verb(5, "stream i32", "stream")
            async with await rpc.stream() as stream:
                assert await repeat(stream, 3) == stream.id
                with pytest.raises(sbp.DeadlineExceededError, match="did nothing"):
                    await stream.receive(timeout=0.05)

                async def send() -> None:
                    for number in range(1_000):
                        await stream.send(b"%d" % number * 100)
                    await stream.end()

                sending = asyncio.ensure_future(send())
                received = [message async for message in stream]
                await sending
            assert received == [b"%d" % number * 100 for number in range(1_000) for _ in range(3)]
            with pytest.raises(seastar.SeastarRefusedError, match="there is no stream 0x3039"):
                await repeat(12345, 1)

    run(main)


@pytest.mark.provokes(9405, by="peer")
def test_a_handler_that_fails_is_told_by_its_text() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            with pytest.raises(seastar.SeastarRefusedError, match=r"boom \(verb 3\)") as caught:
                await rpc.call(3)
            assert (caught.value.code, caught.value.endpoint) == (9405, rpc.address)
            assert not caught.value.indeterminate
            with pytest.raises(seastar.SeastarRefusedError, match="i8 is expected, not str"):
                await rpc.call(8)
            with pytest.raises(
                seastar.SeastarRefusedError, match="the arguments cannot be read: it ends 4 bytes before"
            ):
                await rpc.call(2, b"1234")

    run(main)


def test_a_verb_of_our_server_says_what_became_of_the_call() -> None:
    server = seastar.Server("127.0.0.1:0")

    @server.verb(1001, "str")
    @server.verb(2001, "str")
    def fails(code: str) -> None:
        raise ValueError(f"{code} it did not go well")

    async def main() -> None:
        async with server, seastar.aio.connect(server.address, timeout=20) as rpc:
            ours, foreign = rpc.verb(1001, "str"), rpc.verb(2001, "str")
            with pytest.raises(sbp.IndeterminateError, match="SBP-9004 it did not go well") as doubt:
                await ours("SBP-9004")
            assert (doubt.value.code, doubt.value.retriable, doubt.value.indeterminate) == (9405, False, True)
            for call, code, retriable in (
                (ours, "SBP-9003", True),
                (ours, "SBP-1404", False),
                (ours, "boom", False),
                (foreign, "SBP-9004", False),
            ):
                with pytest.raises(seastar.SeastarRefusedError, match=code) as refused:
                    await call(code)
                assert (refused.value.code, refused.value.indeterminate) == (9405, False)
                assert refused.value.retriable == retriable

    run(main)


@pytest.mark.provokes(9407, by="peer")
def test_a_verb_that_there_is_not() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            with pytest.raises(seastar.SeastarUnknownVerbError, match="no verb 99") as caught:
                await rpc.call(99)
            assert isinstance(caught.value, LookupError)

    run(main)


@pytest.mark.provokes(9408, by="client")
def test_values_that_do_not_fit() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            one = rpc.verb(1, "u8")
            for value in (256, -1, 2**70):
                with pytest.raises(seastar.SeastarOutOfRangeError, match="a number that u8 cannot have"):
                    await one(value)
            for values in ((), (1, 2), ("1",), (1.5,), (None,)):
                with pytest.raises(TypeError):
                    await one(*values)
            with pytest.raises(sbp.InvalidRequestError, match="there is no such type"):
                rpc.verb(1, "int")
            with pytest.raises(sbp.InvalidRequestError, match="there is no compression"):
                seastar.connect(rpc.address, compression=["ZSTD"])

    run(main)


@pytest.mark.provokes(9401, by="peer")
def test_a_peer_that_speaks_something_else() -> None:
    with (
        scripted(b"HTTP/1.1 400 Bad Request\r\n") as address,
        pytest.raises(seastar.SeastarFramingError, match="speaks something else"),
    ):
        seastar.connect(address, timeout=LIMIT)


def test_a_reply_of_other_types() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            with pytest.raises(sbp.IndeterminateError, match="cannot be read: it ends 4 bytes before") as caught:
                await rpc.verb(2, "i32 i32", "i64")(1, 2)
            assert caught.value.code == 9401

    run(main)


@pytest.mark.provokes(9402, by="peer")
def test_a_frame_over_the_limit() -> None:
    with scripted(PLAIN, struct.pack("<qI", 1, 0xFFFF_FFFF)) as address, seastar.connect(address) as rpc:
        with pytest.raises(sbp.IndeterminateError, match="a frame has 4294967295 bytes") as caught:
            rpc.call(1)
        assert caught.value.code == 9402


@pytest.mark.provokes(9402, by="client")
def test_a_call_over_the_limit() -> None:
    with (
        scripted(PLAIN) as address,
        seastar.connect(address) as rpc,
        pytest.raises(seastar.SeastarLimitError, match="a request has 67108865 bytes"),
    ):
        rpc.call(1, bytes((64 << 20) + 1))


@pytest.mark.provokes(9403, by="peer")
def test_a_frame_that_cannot_be_decompressed() -> None:
    bomb = struct.pack("<II", 8, 1 << 24) + bytes(4)
    with scripted(LZ4, bomb) as address, seastar.connect(address, compression=["LZ4"]) as rpc:
        with pytest.raises(sbp.IndeterminateError, match="longer than LZ4 can make it") as caught:
            rpc.call(1)
        assert caught.value.code == 9403


@pytest.mark.provokes(9404, by="peer")
def test_a_service_that_chooses_what_it_was_not_offered() -> None:
    with (
        scripted(LZ4) as address,
        pytest.raises(seastar.SeastarPeerError, match="in a way that it was not offered"),
    ):
        seastar.connect(address)


@pytest.mark.provokes(9404, by="peer")
def test_a_stream_without_its_end() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            stream = await rpc.stream()
            await rpc.verb(9, "stream")(stream)
            with pytest.raises(seastar.SeastarPeerError, match="incomplete"):
                await stream.receive()

    run(main)


@pytest.mark.provokes(9406, by="client")
def test_a_service_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(seastar.SeastarLostError) as caught:
        seastar.connect(address)
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.retriable
    # One that is entered may still be made.
    assert seastar.aio.connect(address).address == address


@pytest.mark.provokes(9406, by="peer")
def test_a_service_that_goes_under_a_call() -> None:
    async def main() -> None:
        async with service() as server:
            rpc = await seastar.aio.connect(server.address)
            waiting = asyncio.ensure_future(rpc.call(6))
            await rpc.call(2, bytes(8))
            await server.close()
            with pytest.raises(sbp.IndeterminateError) as caught:
                await waiting
            assert caught.value.code == 9406
            with pytest.raises(seastar.SeastarLostError):
                await rpc.call(2, bytes(8))
            await rpc.close()

    run(main)


def test_a_server_of_streams_has_verbs() -> None:
    name = struct.pack("<I", 5) + b"calls"
    record = struct.pack("<IqI", 1, -1, 1) + b"k" + struct.pack("<I", 5) + b"value"
    with sbp.Server(durability="none", seastar="127.0.0.1:0") as server:
        assert server.seastar_address is not None
        with seastar.connect(server.seastar_address, timeout=20) as rpc:
            rpc.verb(1005, "str", "i64")("calls")
            assert struct.unpack("<qq?", rpc.call(1001, name + record)) == (0, 1, False)
            assert rpc.verb(1004, "str", "i64 i64")("calls") == (0, 1)
            with pytest.raises(sbp.errors.SeastarRefusedError, match="SBP-1404"):
                rpc.verb(1004, "str", "i64 i64")("none")
        with sbp.connect(server.address, timeout=20) as client:
            [batch] = client.stream("calls").read(start="earliest", end="latest")
            assert (batch.keys, batch.values) == ([b"k"], [b"value"])
        rpc = seastar.connect(server.seastar_address, timeout=20)
    with pytest.raises((sbp.errors.SeastarLostError, sbp.IndeterminateError)):
        rpc.verb(1004, "str", "i64 i64")("calls")
    rpc.close()
    with sbp.Server(durability="none") as server:
        assert server.seastar_address is None
    with pytest.raises(ValueError, match="seastar_token_file"):
        sbp.Server(seastar_token_file="token")


@pytest.mark.provokes(9004, by="peer")
def test_a_call_that_is_never_answered() -> None:
    async def main() -> None:
        async with pair() as (rpc, _):
            with pytest.raises(sbp.OutcomeUnknownTimeoutError, match="no reply") as caught:
                await rpc.call(6, timeout=0.1)
            assert caught.value.endpoint == rpc.address
            waiting = asyncio.ensure_future(rpc.call(6))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await rpc.call(2, bytes(8)) == bytes(4)

    run(main)


def test_a_handler_is_told_who_calls() -> None:
    async def main() -> None:
        server = seastar.Server()
        ended: list[seastar.Caller] = []

        def told() -> tuple[str, bytes, int, float]:
            who = seastar.caller()
            ended.append(who)
            assert who.time_left is not None
            return who.client, who.isolation or b"none", who.verb, who.time_left

        @server.verb(1, "", "str bytes u64 f64")
        def at_once() -> tuple[str, bytes, int, float]:
            return told()

        @server.verb(2, "i32", "str bytes u64 f64")
        async def later(turns: int) -> tuple[str, bytes, int, float]:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await asyncio.create_task(asyncio.to_thread(told))

        async with (
            server,
            seastar.aio.connect(server.address, isolation=b"one") as one,
            seastar.aio.connect(server.address) as other,
        ):
            calls = [one.verb(1, "", "str bytes u64 f64")(timeout=20)]
            calls += [rpc.verb(2, "i32", "str bytes u64 f64")(3, timeout=40) for rpc in (one, other)]
            first, second, third = await asyncio.gather(*calls)
            assert [answer[1:3] for answer in (first, second, third)] == [(b"one", 1), (b"one", 2), (b"none", 2)]
            assert first[0] == second[0] != third[0]
            assert 0 < first[3] <= 20 < second[3] <= 40
            with pytest.raises(RuntimeError, match="the handler has ended"):
                print(ended[0].client)
            assert repr(ended[0]) == "<Caller, ended>"
            with pytest.raises(RuntimeError, match="this is none"):
                seastar.caller()

    run(main)


def test_a_server_that_closes_cancels_its_handlers_and_ends_its_task() -> None:
    async def main() -> None:
        ended: list[str] = []
        server = seastar.Server()

        @server.verb(1)
        async def wait() -> None:
            try:
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        @server.verb(2)
        async def there() -> None: ...

        with pytest.raises(RuntimeError, match="does not run"):
            print(server.address)
        with pytest.raises(ValueError, match="has a handler already"):
            server.verb(2)(there)
        async with server:
            rpc = await seastar.aio.connect(server.address)
            waiting = asyncio.ensure_future(rpc.call(1))
            await rpc.call(2)
            begun = time.monotonic()
        # Connections are waited for, though not for ever, while their calls go on: a cancelled one does not.
        assert time.monotonic() - begun < 5
        assert ended == ["cancelled"]
        with pytest.raises(sbp.IndeterminateError):
            await waiting
        await server.wait_closed()
        await server.close()
        await rpc.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "Server" in task.get_name()]

    run(main)


def test_other_machines_may_not_connect_unless_it_is_said() -> None:
    async def main() -> None:
        with pytest.raises(sbp.ServerConfigError, match="insecure_listen"):
            await seastar.Server("0.0.0.0:0").__aenter__()
        async with seastar.Server() as first:
            with pytest.raises(sbp.PortTakenError):
                await seastar.Server(first.address).__aenter__()

    run(main)


def test_a_signal_ends_a_wait() -> None:
    with served() as address, seastar.connect(address) as rpc:

        class Rang(Exception):
            pass

        def ring(*_: object) -> None:
            raise Rang

        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            begun = time.monotonic()
            with pytest.raises(Rang):
                rpc.call(6)
            assert time.monotonic() - begun < LIMIT / 2
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert rpc.call(2, bytes(8)) == bytes(4)


def test_a_client_that_is_closed() -> None:
    with served() as address:
        rpc = seastar.connect(address)
        stream = rpc.stream()
        rpc.close()
        rpc.close()
        with pytest.raises(sbp.ClosedError):
            rpc.call(1)
        with pytest.raises(seastar.SeastarError):
            stream.send(b"x")


def test_a_pickle_of_a_client_is_another_one() -> None:
    with served() as address, seastar.connect(address, compression=["LZ4"], isolation=b"ck", timeout=9) as rpc:
        with pickle.loads(pickle.dumps(rpc)) as other:
            assert other.address == address
            assert other.call(2, bytes(8)) == bytes(4)
        assert rpc.call(2, bytes(8)) == bytes(4)


def test_importing_the_package_imports_none_of_it(run_python: Run) -> None:
    run_python("import sys, sbp_native; assert not [name for name in sys.modules if 'seastar' in name]")


def test_a_child_uses_none_of_its_parents(run_python: Run) -> None:
    with served() as address:
        run_python(
            """
            import os, sys
            import sbp_native as sbp
            from sbp_native import seastar

            rpc = seastar.connect(sys.argv[1])
            stream = rpc.stream()
            add = rpc.verb(2, "i32 i32", "i32")
            assert add(1, 2) == 3
            pid = os.fork()
            if pid == 0:
                try:
                    for call in (lambda: add(1, 2), lambda: stream.receive(), lambda: rpc.stream()):
                        try:
                            call()
                        except sbp.ForkedClientError:
                            pass
                        else:
                            raise AssertionError("it works")
                    del rpc, stream, add
                    with seastar.connect(sys.argv[1]) as own:
                        assert own.verb(2, "i32 i32", "i32")(3, 4) == 7
                except BaseException as error:
                    print("child:", type(error).__name__, error, file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0, "the child failed"
            assert add(5, 6) == 11
            rpc.verb(5, "stream i32", "stream")(stream, 1)
            stream.send(b"x")
            assert stream.receive() == b"x", "the stream is the parent's still"
            """,
            address,
        )


@pytest.mark.parametrize("block", BLOCKS)
def test_the_examples_of_the_page_run(block: str, run_python: Run) -> None:
    with served() as address:
        run_python(block.replace("127.0.0.1:10000", "127.0.0.1:0" if "Server(" in block else address))
