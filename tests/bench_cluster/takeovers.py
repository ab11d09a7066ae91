"""How long appends stand still when servers of a cluster are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import sbp_native as sbp
from tests.demo.pulses import Pulses
from tests.demo.replay import Copies
from tests.demo.servers import Servers

COPIES = Copies(replicas=3, acks=2)
STREAM = "taken-over"

#: What a cluster waits with for a server that may come back: short, so that the next takeover can begin soon.
_EAGER = ("--renew-after", "1s", "--replace-after", "10m")
_CREATED_AT_ONCE = 64
#: Seconds in which a placement driver that was started hears of every range server: one that has not waits for them.
_HEARD = 4.0


def _primary(client: sbp.Client, servers: Servers) -> str:
    return servers.name(client.describe_ranges(STREAM)[-1].servers[0])


class Lost:
    """Seconds without an acknowledged append, one for each takeover: by whether the lost server led."""

    def __init__(self) -> None:
        self.led: list[float] = []
        self.followed: list[float] = []

    @property
    def all(self) -> list[float]:
        """Of all takeovers."""
        return self.led + self.followed


def of_one_stream(place: Path, times: int, *, how: str, told: Callable[[str], None], leads: bool = False) -> Lost:
    """A stream whose primary is lost again and again, each time when the cluster is whole again.

    With `leads` its process leads the placement drivers each time.

    It is "killed", or "stopped" (no connection is closed, and nobody answers), or "killed with etcd": SIGKILL of the
    primary and, at once, of the member that leads an etcd of three.
    """
    lost = Lost()
    with Servers(place, _EAGER, etcd_members=3 if how == "killed with etcd" else 1) as servers:
        pulses = Pulses(servers.address, [STREAM], COPIES, interval=0.01)
        pulses.start()
        try:
            with sbp.connect(servers.address) as client:
                time.sleep(_HEARD)
                for number in range(times):
                    servers.wait_until_whole()
                    pulses.goes_on()
                    while leads and servers.leader() != _primary(client, servers):
                        other = servers.processes[servers.leader()]
                        other.stop()
                        other.start()
                        time.sleep(_HEARD)
                        servers.wait_until_whole()
                    leader = servers.leader()
                    primary = _primary(client, servers)
                    since = time.monotonic()
                    _lose_and_go_on(servers, pulses, primary, how)
                    stood_still = pulses.longest(since, time.monotonic())[STREAM]
                    (lost.led if primary == leader else lost.followed).append(stood_still)
                    told(f"{how}: {number + 1} of {times}, {stood_still:.2f} s")
        finally:
            pulses.stop()
        if wrong := pulses.check():
            raise RuntimeError("\n".join(wrong))
    return lost


def _lose_and_go_on(servers: Servers, pulses: Pulses, primary: str, how: str) -> None:
    process = servers.processes[primary]
    if how == "stopped":
        os.kill(process.pid, signal.SIGSTOP)
        try:
            pulses.goes_on()
        finally:
            os.kill(process.pid, signal.SIGCONT)
        return
    member = servers.etcd.leader() if how == "killed with etcd" else None
    process.kill()
    if member is not None:
        servers.etcd.kill_member(member)
    pulses.goes_on()
    if member is not None:
        servers.etcd.start_member(member)
    process.start()


def of_many_ranges(place: Path, ranges: int, told: Callable[[str], None]) -> tuple[int, float]:
    """So many streams, a third of them on each server, of which one is killed: how many ranges it took the appends of,
    and the seconds from the kill until it takes those of none."""
    # Those whose appends go on are not renewed meanwhile: nothing but the takeover is measured.
    with Servers(place, ("--renew-after", "10m", "--replace-after", "10m")) as servers:
        begun = time.monotonic()
        asyncio.run(_create(servers.address, ranges))
        told(f"{ranges} streams made in {time.monotonic() - begun:.0f} s")
        with sbp.connect(servers.address, timeout=120) as client:
            known = client.cluster().range_servers or []
            lost = max(known, key=lambda server: server.open_ranges)
            since = time.monotonic()
            servers.processes[servers.name(lost.address)].kill()
            while _open_ranges(client, lost.address) != 0:
                if time.monotonic() - since > 600:
                    raise TimeoutError("not taken over within ten minutes")
                time.sleep(0.02)
            return lost.open_ranges, time.monotonic() - since


def _open_ranges(client: sbp.Client, address: str) -> int | None:
    """How many open ranges a server takes the appends of; None while nobody leads who could tell."""
    try:
        known = client.cluster(timeout=5).range_servers
    except sbp.SbpError:
        return None
    return None if known is None else sum(each.open_ranges for each in known if each.address == address)


async def _create(servers: str, streams: int) -> None:
    async with sbp.aio.connect(servers, timeout=120) as client:
        room = asyncio.Semaphore(_CREATED_AT_ONCE)

        async def create(number: int) -> None:
            async with room:
                await client.create_stream(f"many/{number}", **COPIES.options())

        await asyncio.gather(*(create(number) for number in range(streams)))
