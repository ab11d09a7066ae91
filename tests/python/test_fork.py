"""Forked children: what they inherit is refused, what they make works, and what the parent held is free."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sbp_native as sbp

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PRELUDE = """
    import asyncio, os, sys, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    import sbp_native as sbp

    def in_child(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException as error:
                print("child:", type(error).__name__, error, file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, "the child failed"
"""


def test_a_child_works_with_a_new_client(server: sbp.Server, name: str, run_python: Run) -> None:
    run_python(
        PRELUDE
        + """
    address, name = sys.argv[1:]
    client = sbp.connect(address)
    stream = client.create_stream(name)
    stream.append(b"parent")

    def child():
        with sbp.connect(address) as own:
            assert own.stream(name).append(b"child").base_offset >= 1
        async def main():
            async with sbp.aio.connect(address) as own:
                await (await own.stream(name)).append(b"child, async")
        asyncio.run(main())

    for _ in range(10):
        in_child(child)
    assert stream.append(b"parent again").base_offset == 21
    """,
        server.address,
        name,
    )


@pytest.mark.provokes(9012, by="client", in_child=True)
def test_an_inherited_object_is_refused(server: sbp.Server, name: str, run_python: Run) -> None:
    run_python(
        PRELUDE
        + """
    address, name = sys.argv[1:]
    client = sbp.connect(address)
    stream = client.create_stream(name)
    stream.append([b"a", b"b"])
    batches = stream.read()
    own = sbp.Server()

    def refused(call):
        try:
            call()
        except sbp.ForkedClientError as error:
            assert error.code == 9012 and "fork" in str(error)
        else:
            raise AssertionError("not refused")

    def child():
        refused(client.ping)
        refused(lambda: stream.append(b"x"))
        refused(lambda: next(batches))
        refused(client.list_streams)
        refused(own.stats)
        client.close()          # closing what is not ours does nothing
        own.close()
        import gc, pickle
        copy = pickle.loads(pickle.dumps(client))
        assert copy.ping() > 0

    in_child(child)
    assert own.stats()["connections_accepted"] == 0
    assert [r.value for batch in batches for r in batch.records()] == [b"a", b"b"]
    assert stream.append(b"c").base_offset == 2
    own.close()
    """,
        server.address,
        name,
    )


def test_a_child_of_a_busy_loop(server: sbp.Server, name: str, run_python: Run) -> None:
    run_python(
        PRELUDE
        + """
    address, name = sys.argv[1:]

    async def main():
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(name)
            running = [stream.append(b"x") for _ in range(100)]

            def child():
                async def again():
                    async with sbp.aio.connect(address) as own:
                        return await own.ping()
                # A child cannot go on with its parent's loop; it makes one.
                asyncio._set_running_loop(None)
                assert asyncio.new_event_loop().run_until_complete(again()) > 0

            in_child(child)
            acks = await asyncio.gather(*running)
            assert [ack.base_offset for ack in acks] == list(range(100))

    asyncio.run(main())
    """,
        server.address,
        name,
    )


def test_a_child_that_exits_normally_leaves_its_parents_things_alone(
    server: sbp.Server, name: str, run_python: Run
) -> None:
    run_python(
        PRELUDE
        + """
    address, name = sys.argv[1:]
    client = sbp.connect(address)
    stream = client.create_stream(name)
    own = sbp.Server()
    inner = sbp.connect(own.address)
    pid = os.fork()
    if pid == 0:
        sys.exit(0)             # runs the exit hooks and drops everything
    assert os.waitpid(pid, 0)[1] == 0
    assert stream.append(b"x").base_offset == 0
    assert inner.create_stream("still/there").append(b"x").base_offset == 0
    """,
        server.address,
        name,
    )


def test_a_dead_parents_port_and_directory_are_free_while_its_child_lives(tmp_path: Path) -> None:
    script = """
import os, sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import sbp_native as sbp
server = sbp.Server(sys.argv[1])
client = sbp.connect(server.address)
client.create_stream("kept").append(b"before")
pid = os.fork()
if pid == 0:
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(server.address, pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    address, pid = parent.stdout.readline().split()
    child = int(pid)
    try:
        deadline = time.monotonic() + 20
        while sockets(child):
            assert time.monotonic() < deadline, "the child keeps what is its parent's"
            time.sleep(0.05)
        assert len(sockets(parent.pid)) == 3, "the listener, and both ends of the connection"
        parent.kill()
        parent.wait()
        os.kill(child, 0)
        with sbp.Server(tmp_path, listen=address) as server, sbp.connect(server.address) as client:
            stream = client.stream("kept")
            assert [r.value for batch in stream.read() for r in batch.records()] == [b"before"]
            assert stream.append(b"after").base_offset == 1
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.wait()
        parent.stdout.close()


def sockets(process: int) -> list[str]:
    """The sockets that a process has open."""
    found = []
    for entry in os.scandir(f"/proc/{process}/fd"):
        # A descriptor that is closed between the listing and this look is not open.
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(entry.path))
    return [target for target in found if target.startswith("socket:")]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(server: sbp.Server, name: str, run_python: Run, method: str, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        """
import multiprocessing, sys, warnings
import sbp_native as sbp

def work(arguments):
    address, name = arguments
    with sbp.connect(address) as client:
        return client.stream(name).append([b"x"] * 10).last_offset

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    address, name, method = sys.argv[1:]
    with sbp.connect(address) as client:
        stream = client.create_stream(name)
        with multiprocessing.get_context(method).Pool(2) as pool:
            pool.map(work, [(address, name)] * 6)
        assert stream.positions().latest == 60
"""
    )
    subprocess.run([sys.executable, str(script), server.address, name, method], check=True, timeout=50)
