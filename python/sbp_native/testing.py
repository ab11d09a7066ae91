"""For tests of code that uses this package: a real server, a bad network, names that nobody else has.

    from sbp_native import testing

    with testing.proxied() as proxy:                         # a server, and a proxy in front of it
        proxy.add("cut answer APPEND nth=3")
        with sbp.connect(proxy.address) as client:
            ...

With pytest, the fixtures of :mod:`sbp_native.pytest_plugin` do this; pytest finds them when the package is installed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from typing import TYPE_CHECKING, Any

from ._native import HeldFrame, HeldFrames, Proxy, ProxyRule, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["HeldFrame", "HeldFrames", "Proxy", "ProxyRule", "Server", "eventually", "proxied", "unique_name"]

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


def eventually(condition: Callable[[], object], timeout: float = 30.0) -> None:
    """Waits until ``condition()`` is true, at most ``timeout`` seconds. Raises ``TimeoutError``."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {timeout} s: {condition}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
