"""The same pipeline on three servers and an etcd: two of them are lost in turn while the streaming query runs."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sbp_native as sbp

from . import outages
from .pipeline import Demo, Failure, Service
from .pulses import INTERVAL, Pulses
from .replay import Copies
from .servers import Servers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

COPIES = Copies(replicas=3, acks=2)
PULSES = tuple(f"pulse/{number}" for number in range(8))

#: What a cluster waits with for a server that may come back: short, for a demo.
_OPTIONS = ("--renew-after", "3s", "--replace-after", "5s")
#: Shares of the events that the streaming query has read when a server is lost. Its driver is killed at a half.
_KILL_AT, _EMPTY_AT = 0.2, 0.6
_WHOLE_WITHIN = 120.0


@dataclass(frozen=True)
class Server:
    """What one server has, as the cluster says it."""

    takes_appends_of: int
    follows: int
    sealed: int

    def __str__(self) -> str:
        return f"appends of {self.takes_appends_of}, follows {self.follows}, sealed {self.sealed}"


@dataclass(frozen=True)
class Phase:
    """Who held what at one moment: the servers that are up, and by stream the servers of each of its ranges."""

    at: float
    what: str
    servers: dict[str, Server]
    ranges: dict[str, list[tuple[str, ...]]]


class ClusterDemo(Demo):
    """A `Demo` whose streams have three copies each."""

    title = "A year of flights through three servers, two of which are lost"
    # The streams of a frame are on several servers, each of which takes its part when it comes to it, and a micro-batch
    # ends at one moment of all of them. With two half days under way, no stream is further behind the others by then
    # than the watermark allows beside the lateness of the events.
    in_flight = 2

    def __init__(
        self, directory: Path, months: int = 12, told: Callable[[pa.Table], pa.Table] = lambda events: events
    ) -> None:
        """Replays what `told` makes of the events."""
        super().__init__(directory, months, COPIES)
        self._tell = told
        self._servers: Servers | None = None
        self._pulses: Pulses | None = None
        self._phases: list[Phase] = []
        self._faults: list[outages.Fault] = []
        self._killing: threading.Thread | None = None
        self._emptying: threading.Thread | None = None
        self._error: BaseException | None = None
        self._lost = ""

    def _told(self, everything: pa.Table) -> pa.Table:
        return self._tell(everything)

    def _service(self) -> Service:
        self._servers = Servers(self._directory, _OPTIONS)
        return self._servers

    def _start(self, service: Service) -> None:
        # Streams that are made while two servers are there have their appends taken by one half each.
        with self._screen.step("starting an etcd and two servers"):
            for name in ("s1", "s2"):
                self._running.processes[name].start()

    def _stop(self, service: Service) -> None:
        try:
            if self._pulses is not None:
                self._pulses.stop()
        finally:
            service.stop()

    def _created(self) -> None:
        self._pulses = Pulses(self._running.address, PULSES, COPIES)
        self._note("streams made, two servers up")
        with self._screen.step("starting the third server"):
            self._running.processes["s3"].start()
            self._wait_until_whole()
        self._note("third server up")

    def _replayed(self, streams: list[str]) -> None:
        self._appending.start()
        self._appending.goes_on()

    def _read(self, share: float) -> None:
        # Who tells of the query's progress is not kept waiting: its driver has to be killed while more is to be read.
        if share >= _KILL_AT and self._killing is None:
            self._killing = self._beside(self._kill)
        elif share >= _EMPTY_AT and self._emptying is None:
            self._emptying = self._beside(self._empty)

    def _beside(self, what: Callable[[], None]) -> threading.Thread:
        """Does something beside the query; what it ends with is raised by `_joined`."""

        def run() -> None:
            try:
                what()
            except BaseException as error:
                self._error = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _joined(self, thread: threading.Thread, late: str) -> None:
        """Returns when that is done; `late` says what was not if it takes too long."""
        thread.join(2 * _WHOLE_WITHIN)
        if thread.is_alive():
            raise Failure(late)
        if self._error is not None:
            raise self._error

    def _kill(self) -> None:
        """Kills the server that takes the appends of most streams."""
        before = self._note("before the first fault")
        self._lost = max(before.servers, key=lambda name: before.servers[name].takes_appends_of)
        told = f"SIGKILL of {self._lost}, which took the appends of {_streams(before, self._lost)}"
        if self._running.leader() == self._lost:
            told += " and led the placement drivers"
        self._fault(told, before)
        self._running.processes[self._lost].kill()
        self._appending.goes_on()
        self._note(f"{self._lost} killed")

    def _between_drivers(self) -> None:
        if self._killing is None:
            raise Failure("the streaming query was half-way before a server was killed")
        self._joined(self._killing, f"appends did not go on without {self._lost}")
        with self._screen.step(f"starting {self._lost} again"):
            self._running.processes[self._lost].start()
            self._wait_until_whole()
        self._back(f"{self._lost} back")

    def _empty(self) -> None:
        """Deletes the directory of another server, and starts it empty."""
        before = self._note("before the second fault")
        others = [name for name in before.servers if name != self._lost]
        self._lost = max(others, key=lambda name: before.servers[name].takes_appends_of)
        told = f"directory of {self._lost} deleted, which took the appends of {_streams(before, self._lost)}"
        self._fault(told, before)
        server = self._running.processes[self._lost]
        server.kill()
        server.lose_disk()
        self._appending.goes_on()
        self._note(f"{self._lost} without its disk")
        server.start()
        self._wait_until_whole()
        self._back(f"{self._lost}, which began empty, has its copies")

    def _end(self, service: Service) -> None:
        with self._screen.step("waiting until every range has its copies again"):
            if self._emptying is None:
                raise Failure("the streaming query came to its end before a server lost its directory")
            self._joined(self._emptying, f"{self._lost} did not get its copies again")
        self._appending.stop()
        self._compare(service.address, self._appending.check())
        self._tell_what_happened()

    def _tell_what_happened(self) -> None:
        begun = self._phases[0].at
        self._screen.note("")
        table = [("second", "what", *self._running.processes)]
        for phase in self._phases:
            cells = (str(phase.servers.get(name, "away")) for name in self._running.processes)
            table.append((f"{phase.at - begun:.1f}", phase.what, *cells))
        self._screen.table("Who held what (numbers of ranges)", table)
        self._report.grids["Who held what (numbers of ranges)"] = table
        faults: list[tuple[str, ...]] = [
            ("second", "what was done", "their appends stood still", "others, at most", "copies again after")
        ]
        for number, fault in enumerate(self._faults):
            until = self._faults[number + 1].at if number + 1 < len(self._faults) else float("inf")
            longest = self._appending.longest(fault.at, until)
            lost = [seconds for name, seconds in longest.items() if name in fault.streams]
            others = [seconds for name, seconds in longest.items() if name not in fault.streams]
            assert fault.whole_at is not None
            faults.append(
                (
                    f"{fault.at - begun:.1f}",
                    fault.what,
                    f"{statistics.median(lost):.2f} s, at most {max(lost):.2f} s" if lost else "none appended to",
                    f"{max(others, default=0.0):.2f} s",
                    f"{fault.whole_at - fault.at:.1f} s",
                )
            )
        self._screen.table(
            f"Appends to {len(PULSES)} streams, each {1e3 * INTERVAL:.0f} ms after the one before was acknowledged",
            faults,
        )
        self._report.grids["What was done, and how long appends stood still"] = faults
        self._report.grids["The servers of each range, the one that takes its appends first"] = self._holders()
        picture = self._directory / "outages.png"
        outages.draw(self._appending, self._faults, tuple(self._running.processes), begun, picture)
        self._report.pictures.append((picture, "Appends a second, and which servers were there"))
        self._screen.note(f"picture {picture}")

    def _holders(self) -> list[tuple[str, ...]]:
        """By stream, the servers of each range that it had in the end."""
        last = self._phases[-1].ranges
        most = max(len(ranges) for ranges in last.values())
        rows = [("stream", *(f"range {index}" for index in range(most)))]
        for name, ranges in sorted(last.items()):
            cells = [", ".join(servers) for servers in ranges]
            rows.append((name, *cells, *[""] * (most - len(cells))))
        return rows

    def _fault(self, what: str, before: Phase) -> None:
        streams = frozenset(name for name, ranges in before.ranges.items() if ranges[-1][0] == self._lost)
        self._faults.append(outages.Fault(time.monotonic(), what, self._lost, streams))
        self._screen.note(what)

    def _back(self, what: str) -> None:
        self._faults[-1].whole_at = self._note(what).at

    def _note(self, what: str) -> Phase:
        """Asks who holds what."""
        running = self._running
        with sbp.connect(running.address) as client:
            at = time.monotonic()
            servers = {
                running.name(server.address): Server(server.open_ranges, server.followed_ranges, server.sealed_ranges)
                for server in client.cluster().range_servers or []
                if server.is_up
            }
            ranges = {
                stream.name: [
                    tuple(running.name(address) for address in each.servers)
                    for each in client.describe_ranges(stream.name)
                ]
                for stream in client.list_streams()
            }
        self._phases.append(Phase(at, what, servers, ranges))
        return self._phases[-1]

    def _wait_until_whole(self) -> None:
        try:
            self._running.wait_until_whole(_WHOLE_WITHIN)
        except TimeoutError as error:
            raise Failure(str(error)) from error

    @property
    def _running(self) -> Servers:
        assert self._servers is not None
        return self._servers

    @property
    def _appending(self) -> Pulses:
        assert self._pulses is not None
        return self._pulses


def _streams(phase: Phase, server: str) -> str:
    """How many of the streams a server takes the appends of."""
    taken = sum(1 for ranges in phase.ranges.values() if ranges[-1][0] == server)
    return f"{taken} of {len(phase.ranges)} streams"
