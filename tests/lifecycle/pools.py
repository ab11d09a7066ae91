"""Other ways to get processes: multiprocessing, servers that fork ahead, the daemon of PySpark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import sbp_native as sbp

from .support import PATIENCE, append_here, cell, ended, in_child, refused, unique


def pool_work(address: str) -> int:
    """What a pool's process does."""
    append_here(address)
    return os.getpid()


def pool(method: str, address: str) -> None:
    """A pool of two processes, made after a client was used, by one way of starting processes."""
    import multiprocessing

    context = multiprocessing.get_context(method)
    with sbp.connect(address) as client:
        client.ping()
        with context.Pool(2) as processes:
            found = processes.map(pool_work, [address] * 4)
            assert os.getpid() not in found
            processes.close()
            processes.join()
        client.ping()


@cell
def multiprocessing_fork(address: str) -> None:
    """Start method fork."""
    pool("fork", address)


@cell
def multiprocessing_spawn(address: str) -> None:
    """Start method spawn."""
    pool("spawn", address)


@cell
def multiprocessing_forkserver(address: str) -> None:
    """Start method forkserver, which has imported the package before it forks."""
    import multiprocessing

    multiprocessing.set_forkserver_preload(["sbp_native"])
    pool("forkserver", address)


@cell
def multiprocessing_clients_travel_as_settings(address: str) -> None:
    """A client that is an argument of a process arrives as a new client with the same settings."""
    import multiprocessing

    with sbp.connect(address) as client:
        client.ping()
        with multiprocessing.get_context("spawn").Pool(1) as processes:
            assert processes.apply(ping_with, (client,)) > 0
            processes.close()
            processes.join()


def ping_with(client: sbp.Client) -> float:
    """Uses a client that came from another process."""
    with client:
        return client.ping()


@cell
def prefork_server(address: str) -> None:
    """A master imports, checks the service with a client, and forks workers that serve; one dies and is replaced."""
    import socket

    with sbp.connect(address) as client, socket.create_server(("127.0.0.1", 0)) as listener:
        client.create_stream(unique()).append(b"the master is ready")
        port = listener.getsockname()[1]

        def worker() -> None:
            refused(client.ping)
            with sbp.connect(address) as own:
                stream = own.create_stream(unique())
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        data = connection.recv(100)
                        if data == b"end":
                            return
                        connection.sendall(b"%d" % stream.append(data).base_offset)

        def ask(data: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.sendall(data)
                return connection.recv(100)

        workers = [in_child(worker) for _ in range(2)]
        assert all(ask(b"request").isdigit() for _ in range(6))
        os.kill(workers[0], signal.SIGKILL)
        os.waitpid(workers[0], 0)
        workers[0] = in_child(worker)
        answers = [ask(b"request") for _ in range(6)]
        # The one that was killed may have taken a connection with it; the others were served.
        assert sum(answer.isdigit() for answer in answers) >= 5, answers
        for _ in workers:
            ask(b"end")
        for pid in workers:
            ended(pid)
        client.ping()


@cell
def pyspark_daemon(address: str) -> None:
    """PySpark's own daemon, which imports the package and forks workers that use clients."""
    import socket

    script = f"""
import sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import types
import pyspark.daemon, sbp_native as sbp
from lifecycle.support import append_here
# What the daemon's process did before it forks, as a data source's driver half may.
with sbp.connect({address!r}) as client:
    client.ping()
def work(infile, outfile):
    append_here({address!r})
    outfile.write(b"worked")
    outfile.flush()
# The daemon imports its worker's main after the fork; this one does what a data source's reader does.
sys.modules["pyspark.worker"] = types.SimpleNamespace(main=work)
pyspark.daemon.manager()
"""
    environment = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "false", "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    daemon = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    try:
        port = int.from_bytes(daemon.stdout.read(4), "big")
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                secret = b"secret"
                connection.sendall(len(secret).to_bytes(4, "big") + secret)
                received = b""
                # Its process id, "ok" for the secret, and what the worker wrote.
                while b"worked" not in received:
                    data = connection.recv(100)
                    assert data, f"the worker ended: {received!r}"
                    received += data
        # The daemon ends when its standard input does.
        daemon.stdin.close()
        daemon.wait(PATIENCE)
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
