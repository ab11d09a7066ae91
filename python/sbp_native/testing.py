"""For tests of code that uses this package: a real server, a bad network, names that nobody else has.

    from sbp_native import testing

    with testing.proxied() as proxy:                         # a server, and a proxy in front of it
        proxy.add("cut answer APPEND nth=3")
        with sbp.connect(proxy.address) as client:
            ...

    with testing.Cluster(3) as cluster:                      # a placement driver and three range servers
        with sbp.connect(cluster.address) as client:
            orders = client.create_stream("orders", replicas=3, acks=2)
            cluster.stop(cluster.primary(orders))            # and it goes on on the others

With pytest, the fixtures of :mod:`sbp_native.pytest_plugin` do this; pytest finds them when the package is installed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._native import HeldFrame, HeldFrames, Proxy, ProxyRule, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from ._native import Stream

__all__ = ["Cluster", "HeldFrame", "HeldFrames", "Proxy", "ProxyRule", "Server", "eventually", "proxied", "unique_name"]

_numbers = itertools.count(1)


def unique_name(prefix: str = "test") -> str:
    """A stream name that no other test uses, on a server shared by several processes too."""
    return f"{prefix}-{os.getpid()}-{time.time_ns():x}-{next(_numbers)}"


@contextlib.contextmanager
def proxied(*rules: str, seed: int = 0, **server: Any) -> Iterator[Proxy]:
    """A server of its own and a proxy in front of it; connect to the proxy's ``address``.

    ``server`` are keywords of :class:`~sbp_native.Server`; it does not wait for the disk unless they say
    ``durability="fsync"``. The server tells its clients the proxy's address, so that no call goes around the proxy.
    """
    options: dict[str, Any] = {"durability": "none", **server}
    with Proxy(rules=rules, seed=seed) as proxy, Server(advertise=proxy.address, **options) as behind:
        # What it listens on is not what it tells its clients.
        proxy.target = behind.listening
        yield proxy


class Cluster:
    """A placement driver and several range servers in this process, each with a directory of its own: for tests of what
    happens to streams with several copies when one of the servers is away.

    Connect to ``address``. Range servers are numbered from 0. One that is stopped ends as ``sbp serve`` does on
    SIGTERM; started again it has the directory and the address that it had. Use it in a ``with`` statement, or
    ``close`` it.
    """

    def __init__(self, servers: int = 3, **server: Any) -> None:
        """Starts a placement driver and ``servers`` range servers.

        ``server`` are keywords of :class:`~sbp_native.Server` for all of them; they do not wait for the disk unless
        ``durability="fsync"`` is among them.
        """
        if servers < 1:
            raise ValueError(f"a cluster has at least one range server, not {servers}")
        self._options: dict[str, Any] = {"durability": "none", **server}
        self._directory = tempfile.TemporaryDirectory(prefix="sbp-cluster-")
        self._addresses: dict[int, str] = {}
        self._servers: dict[int, Server] = {}
        self._driver: Server | None = None
        try:
            self._driver = self._serve("driver", "127.0.0.1:0", role="placement-driver")
            self._address = self._driver.listening
            for number in range(servers):
                self._start(number, "127.0.0.1:0")
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """``host:port`` of the placement driver: what a client connects to."""
        return self._address

    @property
    def servers(self) -> dict[int, Server]:
        """The range servers that run, by their numbers."""
        return dict(self._servers)

    def primary(self, stream: Stream) -> int:
        """The number of the range server that takes the stream's appends now."""
        address = stream.describe_ranges()[-1].servers[0]
        return next(number for number, known in self._addresses.items() if known == address)

    def stop(self, number: int) -> None:
        """Ends a range server. Its directory stays."""
        if number not in self._addresses:
            raise ValueError(
                f"there is no range server {number}: they have the numbers 0 to {len(self._addresses) - 1}"
            )
        server = self._servers.pop(number, None)
        if server is not None:
            server.close()

    def start(self, number: int) -> None:
        """Starts a range server again that was stopped, with the directory and the address that it had."""
        self.stop(number)
        self._start(number, self._addresses[number])

    def lose(self, number: int) -> None:
        """Ends a range server if it runs, and deletes all that it had; ``start`` then starts one with an empty disk."""
        self.stop(number)
        shutil.rmtree(self._directory_of(f"range-server-{number}"), ignore_errors=True)

    def restart_driver(self) -> None:
        """Ends the placement driver and starts it again. Appends and reads go on meanwhile."""
        if self._driver is not None:
            self._driver.close()
        self._driver = self._serve("driver", self._address, role="placement-driver")

    def close(self) -> None:
        """Ends all servers and deletes their directories. Closing again does nothing."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._directory.cleanup()

    def _start(self, number: int, listen: str) -> None:
        server = self._serve(f"range-server-{number}", listen, role="range-server", placement_driver=self._address)
        self._servers[number] = server
        self._addresses[number] = server.listening

    def _serve(self, name: str, listen: str, **role: Any) -> Server:
        return Server(self._directory_of(name), listen=listen, **role, **self._options)

    def _directory_of(self, name: str) -> Path:
        return Path(self._directory.name) / name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def eventually(condition: Callable[[], object], timeout: float = 30.0) -> None:
    """Waits until ``condition()`` is true, at most ``timeout`` seconds. Raises ``TimeoutError``."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {timeout} s: {condition}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
