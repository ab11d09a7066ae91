"""What cells have in common.

A cell is a function whose first line says what must be true; it is given the address of a server in another process. It
passes if its own process ends by itself, with status 0, an empty standard error, and nothing but "ok" on its standard
output.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import sbp_native as sbp

#: Every cell by its name, in the order of the table in docs/lifecycle.md.
CELLS: dict[str, Callable[[str], object]] = {}

#: How long a cell waits for something that must happen. The machine may be busy; who waits this long has found a hang.
PATIENCE = 30.0

_numbers = itertools.count(1)


def cell(function: Callable[[str], object]) -> Callable[[str], object]:
    """Adds a cell to the table."""
    CELLS[function.__name__] = function
    return function


def unique() -> str:
    """A stream name that no other process uses."""
    return f"cell-{os.getpid()}-{time.time_ns():x}-{next(_numbers)}"


def until(condition: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.002)


def in_child(work: Callable[[], object]) -> int:
    """Forks, does the work in the child, and returns the child's process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:
        print("child:", type(error).__name__, error, file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def ended(pid: int) -> None:
    """Waits for a child, which must end well and in time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            assert status == 0, f"the child ended with {status}"
            return
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.002)


def append_here(address: str) -> None:
    """A new blocking client of this process works."""
    with sbp.connect(address) as client:
        stream = client.create_stream(unique())
        assert stream.append([b"a", b"b"]).last_offset == 1
        assert [record.value for batch in stream.read() for record in batch.records()] == [b"a", b"b"]


def append_here_async(address: str) -> None:
    """A new client for asyncio works, on a loop of this process."""

    async def work() -> None:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(unique())
            acks = await asyncio.gather(*(stream.append(b"x") for _ in range(20)))
            assert [ack.base_offset for ack in acks] == list(range(20))

    run(work())


def run(coroutine: Any) -> Any:
    """Runs a coroutine on a new loop; a forked child must not go on with its parent's."""
    asyncio._set_running_loop(None)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(coroutine, PATIENCE))
    finally:
        loop.close()


def refused(call: Callable[[], object]) -> None:
    """The call is refused because the object is the parent's."""
    try:
        call()
    except sbp.ForkedClientError as error:
        refusal = error
    else:
        raise AssertionError(f"{call} was not refused")
    assert "fork" in str(refusal)
    assert refusal.code == 9012


#: What lives until the interpreter ends.
KEPT: list[object] = []


def ignore_what_is_lost() -> None:
    """The warning of appends without an answer at exit has a cell of its own; in others it is expected."""
    warnings.filterwarnings("ignore", r"\d+ appends to .* have no answer yet", ResourceWarning)


@contextlib.contextmanager
def silent(address: str, frames: str = "answer APPEND") -> Iterator[tuple[sbp.Proxy, Any]]:
    """A proxy that keeps answers back: what waits for one stays in flight."""
    with sbp.Proxy(address) as proxy, proxy.hold(frames) as held:
        yield proxy, held
