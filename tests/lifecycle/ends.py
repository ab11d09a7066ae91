"""How the interpreter ends."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import sbp_native as sbp

from .support import KEPT, PATIENCE, cell, ignore_what_is_lost, unique


@cell
def exit_with_asyncio_operations_in_flight(address: str) -> None:
    """Appends without an answer, a tail that waits, and nobody closes anything."""
    proxy = sbp.Proxy(address)
    held = proxy.hold("answer APPEND")

    async def work() -> None:
        client = await sbp.aio.connect(proxy.address)
        stream = await client.create_stream(unique())
        tail = stream.tail()
        loop = asyncio.get_running_loop()
        # Kept by the loop's own tasks: nothing of it is done when the loop goes.
        loop.waiting = [stream.append(b"x" * 100) for _ in range(200)]  # type: ignore[attr-defined]
        loop.steps = [asyncio.ensure_future(anext(tail))]  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        await asyncio.to_thread(held.wait)

    asyncio.run(work())
    KEPT.extend([proxy, held])
    ignore_what_is_lost()


@cell
def exit_inside_a_running_loop(address: str) -> None:
    """SystemExit leaves the loop in the middle of operations."""
    proxy = sbp.Proxy(address)
    held = proxy.hold("answer APPEND")

    async def work() -> None:
        client = await sbp.aio.connect(proxy.address)
        stream = await client.create_stream(unique())
        KEPT.extend([proxy, held, client, *(stream.append(b"x") for _ in range(50))])
        await asyncio.sleep(0)
        ignore_what_is_lost()
        raise SystemExit(0)

    asyncio.run(work())


@cell
def exit_with_blocking_calls_in_flight(address: str) -> None:
    """Daemon threads wait in an append, a tail and a ping."""
    proxy = sbp.Proxy(address)
    held = proxy.hold("answer APPEND")
    client = sbp.connect(proxy.address)
    stream = client.create_stream(unique())
    tail = stream.tail()
    KEPT.extend([proxy, held, client])

    def wait_in(call: Callable[[], object]) -> None:
        # The proxy goes before the interpreter does, and takes the connection with it.
        with contextlib.suppress(sbp.SbpError):
            call()

    for call in (lambda: stream.append(b"x"), lambda: next(tail), lambda: stream.append(b"y")):
        threading.Thread(target=wait_in, args=(call,), daemon=True).start()
    KEPT.append(held.wait())
    ignore_what_is_lost()


@cell
def exit_while_a_token_is_asked_for(address: str) -> None:
    """Functions that are to return a token sleep, wait for a lock that nobody gives, and compute without end."""
    locked = threading.Lock()
    locked.acquire()
    begun = threading.Semaphore(0)

    def hang(how: Callable[[], object]) -> Callable[[], str]:
        def token() -> str:
            begun.release()
            while True:
                how()

        return token

    def connect(token: Callable[[], str]) -> None:
        with contextlib.suppress(sbp.SbpError):
            KEPT.append(sbp.connect(address, token=token))

    for how in (lambda: time.sleep(3600), lambda: time.sleep(0.0001), locked.acquire, lambda: sum(range(1000))):
        threading.Thread(target=connect, args=(hang(how),), daemon=True).start()
    for _ in range(4):
        assert begun.acquire(timeout=PATIENCE)


@cell
def exit_with_nothing_closed(address: str) -> None:
    """A server, a proxy, clients of both kinds, half-read batches and a tail are left to the interpreter."""
    server = sbp.Server(durability="none")
    proxy = sbp.Proxy(server)
    client = sbp.connect(proxy.address)
    stream = client.create_stream("left")
    stream.append(b"x" * 100_000)
    stream.append([b"y"] * 10)
    batches = stream.read()
    KEPT.extend([server, proxy, client, stream, batches, next(batches), stream.tail(), proxy.hold("answer FETCH")])


@cell
def exit_with_unflushed_records(address: str) -> None:
    """A writer's records wait for their batch to fill: a ResourceWarning counts them."""
    script = """
import sys, sbp_native as sbp
client = sbp.connect(sys.argv[1])
writer = client.writer(client.create_stream(sys.argv[2]), linger=60)
for _ in range(5):
    writer.append(b"waits")
"""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script, address, unique()],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "ResourceWarning" in done.stderr, done.stderr
    assert "5 records" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@cell
def exit_with_appends_in_flight(address: str) -> None:
    """Nobody awaits three appends, and nobody closes the client: a ResourceWarning counts them."""
    script = """
import asyncio, sys, sbp_native as sbp

kept = []

async def work(address, name):
    proxy = sbp.Proxy(address)
    held = proxy.hold("answer APPEND")
    client = await sbp.aio.connect(proxy.address)
    stream = await client.create_stream(name)
    kept.extend([proxy, held, client] if sys.argv[3] == "kept" else [proxy, held])
    kept.extend(stream.append(b"x") for _ in range(3))
    kept.append(await asyncio.to_thread(held.wait))

asyncio.run(work(sys.argv[1], sys.argv[2]))
"""
    for client in ("kept", "dropped"):
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", script, address, unique(), client],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert "ResourceWarning: 3 appends to" in done.stderr, (client, done.stderr)
        assert "Traceback" not in done.stderr, (client, done.stderr)


@cell
def exit_by_an_exception(address: str) -> None:
    """An exception that nobody catches leaves blocks of server, proxy and client."""
    script = "import sys; from lifecycle.ends import raise_inside; raise_inside()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1, done
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero"), done.stderr


def raise_inside() -> None:
    """Fails in the middle of everything."""
    with sbp.Server(durability="none") as server, sbp.Proxy(server) as proxy, sbp.connect(proxy.address) as client:
        client.create_stream("s").append(b"x")
        1 / 0  # noqa: B018


@cell
def exit_frees_port_and_directory(address: str) -> None:
    """A process ended without closing its server: another one takes the port and the directory at once."""
    script = """
import sys, sbp_native as sbp
server = sbp.Server(sys.argv[1], durability="none")
sbp.connect(server.address).create_stream("kept").append(b"before")
print(server.address, flush=True)
"""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", script, directory], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert done.stderr == ""
        listen = done.stdout.strip()
        with sbp.Server(directory, listen=listen, durability="none") as server, sbp.connect(server.address) as client:
            assert [r.value for batch in client.stream("kept").read() for r in batch.records()] == [b"before"]
