"""Import, and os.fork."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading

import sbp_native as sbp

from .support import PATIENCE, append_here, append_here_async, cell, ended, in_child, refused, run, unique, until


@cell
def import_starts_nothing(address: str) -> None:
    """No thread, no descriptor; not even after names were looked up."""
    assert len(os.listdir("/proc/self/task")) == 1
    assert threading.active_count() == 1
    targets = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and exists(fd)]
    assert not [target for target in targets if target.startswith(("socket:", "anon_inode:"))], targets


def exists(fd: str) -> bool:
    """Whether a descriptor of the listing is still there: the listing's own is not."""
    return os.path.lexists(f"/proc/self/fd/{fd}")


@cell
def fork_before_first_use(address: str) -> None:
    """Child and parent each make their first client after the fork."""
    pid = in_child(lambda: (append_here(address), append_here_async(address)))
    append_here(address)
    ended(pid)
    append_here_async(address)


@cell
def fork_after_blocking_use(address: str) -> None:
    """The parent has used a client; children work with new ones, and the parent goes on."""
    with sbp.connect(address) as client:
        stream = client.create_stream(unique())
        stream.append(b"before")
        for _ in range(3):
            ended(in_child(lambda: (append_here(address), append_here_async(address))))
        assert stream.append(b"after").base_offset == 1


@cell
def fork_with_a_function_for_tokens(address: str) -> None:
    """A client whose token a function returns is the parent's; children have clients and questions of their own."""
    asked = []

    def token() -> str:
        asked.append(os.getpid())
        return "sbp_of_somebody"

    with sbp.connect(address, token=token) as client:
        stream = client.create_stream(unique())

        def child() -> None:
            refused(client.ping)
            with sbp.connect(address, token=token) as own:
                own.ping()
            assert asked[-1] == os.getpid()

        for _ in range(3):
            ended(in_child(child))
        assert stream.append(b"after").base_offset == 0
        assert asked == [os.getpid()]


@cell
def fork_after_asyncio_use(address: str) -> None:
    """The same from inside a running loop, with operations in flight."""

    async def parent() -> None:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(unique())
            running = [stream.append(b"x") for _ in range(100)]
            ended(in_child(lambda: (append_here_async(address), append_here(address))))
            acks = await asyncio.gather(*running)
            assert [ack.base_offset for ack in acks] == list(range(100))

    asyncio.run(parent())


@cell
def fork_inherited_objects_raise(address: str) -> None:
    """Everything that the parent made raises ForkedClientError in the child; closing and dropping it does nothing."""
    server = sbp.Server(durability="none")
    proxy = sbp.Proxy(server)
    held = proxy.hold("answer PING")
    client = sbp.connect(address)
    stream = client.create_stream(unique())
    stream.append([b"a", b"b"])
    batches, tail = stream.read(), stream.tail(start="earliest")
    batch = next(tail)

    async def asynchronous() -> tuple[sbp.AsyncClient, sbp.AsyncStream, sbp.AsyncBatches]:
        aclient = await sbp.aio.connect(address)
        astream = await aclient.stream(stream.name)
        await astream.append(b"c")
        return aclient, astream, aclient.tail([stream.name])

    aclient, astream, atail = asyncio.run(asynchronous())

    def child() -> None:
        for call in (
            client.ping,
            client.list_streams,
            client.stats,
            lambda: stream.append(b"x"),
            lambda: next(batches),
            lambda: next(tail),
            server.stats,
            server.__enter__,
            proxy.stats,
            lambda: proxy.add("drop"),
            held.wait,
        ):
            refused(call)

        async def of_loop() -> None:
            for start in (aclient.ping, lambda: astream.append(b"x"), atail.__anext__):
                try:
                    await start()
                except sbp.ForkedClientError:
                    continue
                raise AssertionError(f"{start} was not refused")
            await aclient.close()

        run(of_loop())
        # Received data is memory of the child's own.
        assert [record.value for record in batch.records()] == [b"a", b"b"]
        for thing in (client, batches, tail, server, proxy):
            thing.close()
        gc.collect()

    ended(in_child(child))
    assert server.stats()["connections_open"] == 0
    assert stream.append(b"d").base_offset == 3
    assert [record.value for batch in batches for record in batch.records()][:2] == [b"a", b"b"]
    for thing in (tail, client, proxy, server):
        thing.close()


@cell
def fork_while_threads_work(address: str) -> None:
    """Other threads of the parent are in the middle of calls at the fork."""
    with sbp.connect(address) as client:
        stream = client.create_stream(unique())
        stop = threading.Event()
        counts = [0] * 4

        def work(number: int) -> None:
            while not stop.is_set():
                stream.append(b"x")
                counts[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: min(counts) > 0)
            children = [in_child(lambda: append_here(address)) for _ in range(6)]
            for pid in children:
                ended(pid)
            seen = list(counts)
            until(lambda: all(now > then for now, then in zip(counts, seen, strict=True)))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert stream.append(b"last").base_offset == sum(counts)


@cell
def fork_with_logging(address: str) -> None:
    """The log events of I/O threads are collected at the fork; a child collects its own."""
    import logging

    class Collect(logging.Handler):
        """Keeps the process and the logger of each event."""

        def emit(self, record: logging.LogRecord) -> None:
            seen.append((os.getpid(), record.name))

    seen: list[tuple[int, str]] = []
    logger = logging.getLogger("sbp_native")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Collect())

    def busy() -> None:
        # Each connection that comes and goes is told.
        for _ in range(3):
            append_here(address)

    def child() -> None:
        seen.clear()
        busy()
        until(lambda: append_here(address) or any(pid == os.getpid() for pid, _ in seen))
        assert all(pid == os.getpid() for pid, _ in seen)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = [in_child(child) for _ in range(3)]
    for thread in threads:
        thread.join()
    for pid in children:
        ended(pid)
    assert seen
    assert all(name.startswith("sbp_native.") for _, name in seen)


@cell
def fork_during_first_use(address: str) -> None:
    """Threads use the package for the first time, whatever is made at first use is being made, and children start."""
    # The interpreter changes threads at every chance.
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=append_here, args=(address,)) for _ in range(3)]
    children = []
    for thread in threads:
        thread.start()
        children.append(in_child(lambda: append_here(address)))
    for thread in threads:
        thread.join()
    for pid in children:
        ended(pid)


#: Nothing but the package is imported, so that whatever its first use imports, it imports while children start.
BARE = """
import os, sys, threading, time
import sbp_native as sbp

def use():
    name = f"bare-{os.getpid()}-{threading.get_ident()}-{time.time_ns():x}"
    with sbp.Server(durability="none"), sbp.connect(sys.argv[1], timeout=20) as client:
        with client.create_stream(name).writer(writer_id="job") as writer:
            writer.append(b"x")

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=use) for _ in range(3)]
children = []
for thread in threads:
    thread.start()
    pid = os.fork()
    if pid == 0:
        try:
            use()
            os._exit(0)
        finally:
            os._exit(1)
    children.append(pid)
for thread in threads:
    thread.join()
for pid in children:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@cell
def fork_during_first_use_in_a_bare_interpreter(address: str) -> None:
    """The same, and nothing was imported before but the package: no child inherits the lock of a module."""
    with tempfile.TemporaryFile("w+") as told:
        bare = subprocess.Popen([sys.executable, "-c", BARE, address], stdout=told, start_new_session=True)
        try:
            assert bare.wait(PATIENCE) == 0
        except subprocess.TimeoutExpired:
            os.killpg(bare.pid, signal.SIGKILL)
            bare.wait()
            raise AssertionError("a child hangs") from None
        told.seek(0)
        assert told.read().split() == ["0", "0", "0"]


@cell
def fork_of_a_busy_server(address: str) -> None:
    """An embedded server serves while its process forks; children reach it as they reach any other."""
    with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
        stream = client.create_stream("busy")
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                stream.append(b"x" * 1000)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            children = [in_child(lambda: append_here(server.address)) for _ in range(4)]
            for pid in children:
                ended(pid)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert server.error is None


@cell
def fork_children_have_servers_of_their_own(address: str) -> None:
    """A child starts an embedded server while its parent's runs."""

    def child() -> None:
        with sbp.Server(durability="none") as own:
            append_here(own.address)

    with sbp.Server(durability="none") as server:
        ended(in_child(child))
        append_here(server.address)


@cell
def fork_in_a_fork(address: str) -> None:
    """A grandchild refuses what both its parents made, and works with a client of its own."""
    client = sbp.connect(address)
    client.ping()

    def child() -> None:
        own = sbp.connect(address)
        own.ping()

        def grandchild() -> None:
            refused(client.ping)
            refused(own.ping)
            append_here(address)

        ended(in_child(grandchild))
        own.ping()
        own.close()

    ended(in_child(child))
    client.ping()
    client.close()


@cell
def fork_child_ends_normally(address: str) -> None:
    """A child that runs the exit hooks and drops everything leaves its parent's things alone."""
    server = sbp.Server(durability="none")
    client, inner = sbp.connect(address), sbp.connect(server.address)
    stream = client.create_stream(unique())
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    ended(pid)
    assert stream.append(b"x").base_offset == 0
    assert inner.create_stream("still-there").append(b"x").base_offset == 0
    for thing in (inner, client, server):
        thing.close()


@cell
def fork_dead_parent_leaves_port_and_directory(address: str) -> None:
    """The parent is killed; its port and its directory's lock are free while its child lives."""
    script = """
import os, sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import sbp_native as sbp
server = sbp.Server(sys.argv[1], durability="none")
client = sbp.connect(server.address)
client.create_stream("kept").append(b"before")
pid = os.fork()
if pid == 0:
    time.sleep(60)
    os._exit(0)
print(server.address, pid, flush=True)
time.sleep(60)
"""

    with tempfile.TemporaryDirectory() as directory:
        parent = subprocess.Popen([sys.executable, "-c", script, directory], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        listen, child = parent.stdout.readline().split()
        try:
            until(lambda: not sockets(int(child)))
            parent.kill()
            parent.wait()
            with sbp.Server(directory, listen=listen, durability="none") as server:
                append_here(server.address)
            os.kill(int(child), 0)
        finally:
            parent.kill()
            parent.wait()
            os.kill(int(child), signal.SIGKILL)
            parent.stdout.close()


def sockets(process: int) -> list[str]:
    """The sockets that a process has open."""
    found = []
    for entry in os.scandir(f"/proc/{process}/fd"):
        # One that is closed between the listing and this look is not open.
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(entry.path))
    return [target for target in found if target.startswith("socket:")]


@cell
def fork_and_exec(address: str) -> None:
    """A program that is started gets none of our descriptors, by fork and exec or by posix_spawn."""
    look = "import os; print(sum(os.readlink(f'/proc/self/fd/{n}').startswith(('socket:', 'anon_inode:'))"
    look += " for n in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{n}')))"
    with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
        client.ping()
        for before_exec in (None, lambda: None):
            done = subprocess.run(
                [sys.executable, "-S", "-c", look],
                stdout=subprocess.PIPE,
                check=True,
                close_fds=False,
                preexec_fn=before_exec,
            )
            assert int(done.stdout) == 0, done.stdout
        client.ping()
