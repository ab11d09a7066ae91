"""What a user's program does while servers that hold its streams are killed, stopped and ended, and others take over.

All of it goes on at once, each in a thread of its own, on streams with three copies of which two acknowledge. Whoever
writes numbers its records from 0, so whoever reads knows what has to come next.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pytest

import sbp_native as sbp
from clusters import Cluster, How, Pace
from sbp_native.testing import eventually


class Copies(TypedDict):
    """How many servers hold a stream, and how many of them acknowledge."""

    replicas: int
    acks: int


#: The last record of a stream.
END = b"end"
COPIES: Copies = {"replicas": 3, "acks": 2}
KEYS = 10
#: A stopped server is found out by its silence, some ten times for each takeover here: minutes, which long tests have.
HOWS: list[How] = ["killed", "ended", "stopped"] if os.environ.get("SBP_THOROUGH") else ["killed", "ended"]
#: Records that a writer gathers before it pauses, so that a run has some ten thousand of them and no more.
PORTION = 20

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@dataclass
class Scene:
    """What the jobs share."""

    servers: str
    #: Set when the last takeover is over: whoever writes ends then, and readers behind him.
    over: threading.Event = field(default_factory=threading.Event)

    def connect(self) -> sbp.Client:
        return sbp.connect(self.servers, timeout=60)

    def portions(self) -> range:
        return range(1_000_000)

    def pause(self) -> bool:
        """A moment; whether that is all."""
        return self.over.wait(0.02)


Job = Callable[[Scene, Pace], None]


class Numbers:
    """The records of a stream as somebody sees them: each the next one, at its offset."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.next = 0
        self.is_over = False
        self._pace = pace

    def see(self, batch: sbp.Batch) -> None:
        for record in batch.records():
            assert not self.is_over, f"{record} behind the end"
            assert record.offset == self.next, f"{record} comes at {self.next}"
            if record.value == END:
                self.is_over = True
            else:
                assert record.value == b"%d" % self.next, f"{record} comes at {self.next}"
                self.next += 1
            if self._pace is not None:
                self._pace.note()


def append_one_by_one(scene: Scene, pace: Pace) -> None:
    """Each is acknowledged at its offset.

    A plain append whose server dies, or says nothing for as long as it may take, is in doubt: its record is looked for.
    """
    doubts = 0
    with scene.connect() as client:
        stream = client.stream("appended")
        number = 0
        while not scene.over.wait(0.01):
            try:
                ack = stream.append(b"%d" % number, timeout=5)
            except sbp.IndeterminateError:
                doubts += 1
                latest = stream.positions().latest
                assert latest in (number, number + 1)
                number = latest
                continue
            except sbp.SbpError as error:
                # Its time was over before the takeover was.
                if not error.retriable:
                    raise
                continue
            assert ack.base_offset == number
            number += 1
            pace.note()
        stream.append(END)
        seen = Numbers()
        for batch in stream.read():
            seen.see(batch)
        assert seen.is_over
    assert doubts <= 10, "as many as there were takeovers"


def append_conditionally(scene: Scene, pace: Pace) -> None:
    """With the offset that a record has to get, what is in doubt can be sent again."""
    with scene.connect() as client:
        stream = client.stream("conditional")
        number = 0
        while not scene.over.wait(0.01):
            try:
                stream.append(b"%d" % number, expected_offset=number, timeout=5)
            except sbp.PreconditionFailedError:
                assert stream.positions().latest == number + 1
            except sbp.SbpError as error:
                # Its time was over before the takeover was, or it is in doubt.
                if not (error.retriable or isinstance(error, sbp.IndeterminateError)):
                    raise
                continue
            number += 1
            pace.note()
        stream.append(END)
        seen = Numbers()
        for batch in stream.read():
            seen.see(batch)
        assert seen.is_over


def write(scene: Scene, pace: Pace) -> None:
    """Many batches in flight."""
    number = 0

    def delivered(report: sbp.DeliveryReport) -> None:
        assert report.error is None, report.error
        pace.note()

    with (
        scene.connect() as client,
        client.stream("written").writer(batch_bytes=100, linger=0.001, on_delivery=delivered) as writer,
    ):
        for _ in scene.portions():
            for _ in range(PORTION):
                assert writer.append(b"%d" % number) == number
                number += 1
            if scene.pause():
                break
        writer.append(END)


def write_in_asyncio(scene: Scene, pace: Pace) -> None:
    async def main() -> None:
        number = 0
        async with sbp.aio.connect(scene.servers, timeout=60) as client:
            stream = await client.stream("awaited")
            async with stream.writer(batch_bytes=100, linger=0.001) as writer:
                while not scene.over.is_set():
                    for _ in range(20):
                        await writer.append(b"%d" % number)
                        number += 1
                    await writer.flush()
                    pace.note()
                    await asyncio.sleep(0.02)
                await writer.append(END)

    asyncio.run(main())


def write_by_key(scene: Scene, pace: Pace) -> None:
    """The records of a key are numbered for themselves."""
    with scene.connect() as client:
        keyed = client.keyed("keyed")
        numbers = [0] * KEYS
        with keyed.writer(batch_bytes=100, linger=0.001) as writer:
            for _ in scene.portions():
                for key in range(KEYS):
                    writer.append(f"key-{key}", b"%d" % numbers[key])
                    numbers[key] += 1
                writer.flush()
                pace.note()
                if scene.pause():
                    break
        seen = [0] * KEYS
        for batch in keyed.read():
            for record in batch.records():
                assert record.key is not None
                key = int(record.key[4:])
                assert record.value == b"%d" % seen[key]
                seen[key] += 1
        assert seen == numbers


def write_tables(scene: Scene, pace: Pace) -> None:
    with scene.connect() as client, client.stream("typed").writer() as writer:
        number = 0
        for _ in scene.portions():
            writer.append(pa.table({"n": list(range(number, number + PORTION))}))
            writer.flush()
            number += PORTION
            pace.note()
            if scene.pause():
                break


def read_tables(scene: Scene, pace: Pace) -> None:
    with scene.connect() as client:
        stream = client.stream("typed")
        seen = 0
        while True:
            is_over = scene.over.is_set()
            numbers = pa.table(stream.read()).column("n").to_pylist()
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= seen, "what was seen is gone"
            if len(numbers) > seen:
                pace.note()
            seen = len(numbers)
            if is_over:
                return


def tail(scene: Scene, pace: Pace) -> None:
    seen = Numbers(pace)
    with scene.connect() as client, client.stream("written").tail("earliest") as batches:
        for batch in batches:
            seen.see(batch)
            if seen.is_over:
                return


def tail_several(scene: Scene, pace: Pace) -> None:
    """One FETCH for streams whose primaries are different servers."""
    seen = {name: Numbers(pace) for name in ("written", "appended", "awaited")}
    with scene.connect() as client, client.tail(list(seen), start="earliest") as batches:
        for batch in batches:
            seen[batch.stream].see(batch)
            if all(each.is_over for each in seen.values()):
                return


def tail_in_asyncio(scene: Scene, pace: Pace) -> None:
    async def main() -> None:
        seen = Numbers(pace)
        async with sbp.aio.connect(scene.servers, timeout=60) as client:
            stream = await client.stream("written")
            async for batch in stream.tail("earliest"):
                seen.see(batch)
                if seen.is_over:
                    return

    asyncio.run(main())


def read_again_and_again(scene: Scene, pace: Pace) -> None:
    """From the beginning: what was seen is there for ever."""
    with scene.connect() as client:
        stream = client.stream("written")
        before = 0
        while True:
            seen = Numbers()
            for batch in stream.read():
                seen.see(batch)
                # The stream grows: on a busy machine all of it takes longer than a job may stand still.
                pace.note()
            assert seen.next >= before, "what was seen is gone"
            before = seen.next
            if seen.is_over:
                return


def follow_a_cursor(scene: Scene, pace: Pace) -> None:
    """Now and then it is committed, and another holder takes the cursor, who goes on where the last commit was."""
    seen = Numbers(pace)
    while True:
        with scene.connect() as client:
            cursor = client.cursor("follower", "written")
            assert cursor.positions["written"] == seen.next
            with cursor.tail() as batches:
                for number, batch in zip(range(100), batches, strict=False):
                    seen.see(batch)
                    if number % 10 == 9 or seen.is_over:
                        cursor.commit(batch)
                    if seen.is_over:
                        return


JOBS: list[Job] = [
    append_one_by_one,
    append_conditionally,
    write,
    write_in_asyncio,
    write_by_key,
    write_tables,
    read_tables,
    tail,
    tail_several,
    tail_in_asyncio,
    read_again_and_again,
    follow_a_cursor,
]
STREAMS = ["appended", "conditional", "written", "awaited", "typed", "keyed-0", "keyed-1", "_sbp/cursors/follower"]


def make(client: sbp.Client) -> None:
    for name in STREAMS[:4]:
        client.create_stream(name, **COPIES)
    client.create_stream("typed", schema=pa.schema([("n", pa.int64())]), **COPIES)
    client.keyed("keyed", 2, **COPIES)
    client.cursor("follower", "written")


class Running:
    """Jobs that have begun, and how they get on."""

    def __init__(self, scene: Scene) -> None:
        self.paces = {job.__name__: Pace() for job in JOBS}
        self._running: dict[str, Future[None]] = {job.__name__: Future() for job in JOBS}
        # A job that hangs does not keep the test from ending.
        self._threads = {
            job.__name__: threading.Thread(target=self._run, args=(job, scene), daemon=True) for job in JOBS
        }
        for thread in self._threads.values():
            thread.start()

    def _run(self, job: Job, scene: Scene) -> None:
        try:
            job(scene, self.paces[job.__name__])
            self._running[job.__name__].set_result(None)
        except BaseException as error:
            self._running[job.__name__].set_exception(error)

    def go_on(self) -> None:
        """Waits until each has got on twice from now on: what it does now it may have begun before."""
        wanted = {name: pace.count + 2 for name, pace in self.paces.items()}
        late = dict(wanted)

        def none_is_late() -> bool:
            for name in list(late):
                if self._running[name].done():
                    raise AssertionError(f"{name} has ended") from self._running[name].exception()
                if self.paces[name].count >= wanted[name]:
                    del late[name]
            return not late

        try:
            eventually(none_is_late, timeout=60)
        except TimeoutError:
            raise AssertionError(f"these stand still: {', '.join(late)}\n{self._stacks(late)}") from None

    def _stacks(self, names: Iterable[str]) -> str:
        """What these jobs wait for."""
        frames = sys._current_frames()
        at = {name: frames.get(self._threads[name].ident or 0) for name in names}
        stacks = {name: traceback.format_stack(frame) for name, frame in at.items() if frame is not None}
        return "\n".join(f"{name}:\n{''.join(stack)}" for name, stack in stacks.items())

    def finish(self) -> None:
        for name, job in self._running.items():
            try:
                job.result(timeout=60)
            except Exception as error:
                raise AssertionError(f"{name} failed") from error


@pytest.mark.parametrize("how", HOWS)
def test_programs_go_on_through_takeovers(tmp_path: Path, how: How) -> None:
    scene = Scene("")
    with Cluster(tmp_path) as cluster, sbp.connect(cluster.address, timeout=60) as client:
        make(client)
        scene.servers = cluster.address
        try:
            running = Running(scene)
            running.go_on()
            for _ in range(3):
                # The stream that has gone on on another server least often.
                ranges = {name: client.describe_ranges(name)[-1].index for name in STREAMS}
                number = cluster.primary(client.stream(min(ranges, key=lambda name: ranges[name])))
                cluster.away(number, how)
                running.go_on()
                cluster.back(number)
                running.go_on()
        finally:
            scene.over.set()
        running.finish()
        for name in STREAMS:
            assert client.describe_ranges(name)[-1].index > 0, f"{name} was never taken over"
        for name, pace in running.paces.items():
            print(f"{how}: {name} got on {pace.count} times, and stood still for {pace.longest:.2f} s at most")
