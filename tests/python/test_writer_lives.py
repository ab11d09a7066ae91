"""Writers with a name: one input through many lives, instances, outages, and records that are refused.

The outages are a tenth of those that ``make test-long`` makes, with ``SBP_OUTAGES`` set to their number.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sbp_native as sbp
from python.pauses import pause
from sbp_native import testing

OUTAGES = int(os.environ.get("SBP_OUTAGES", "20"))
TIMEOUT = 0.4
"""The writer's, in seconds: outages are shorter than this, about as long, and longer."""
INPUT = 2 * TIMEOUT
"""A job is still writing when its first batch is out of time."""
LARGE = bytes(17 << 20)


def values(stream: sbp.Stream) -> list[bytes | None]:
    return [record.value for batch in stream.read() for record in batch.records()]


class ServerProcess:
    """A server in a process of its own, which can be killed, paused and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.address = "127.0.0.1:0"
        self._next = self._prepare()
        self._process = self._start()

    def _prepare(self) -> subprocess.Popen[str]:
        """A process that starts its server when it is told where, so that an outage is as long as it is meant to be."""
        script = (
            "import sys, sbp_native as sbp\n"
            "if listen := sys.stdin.readline().strip():\n"
            "    server = sbp.Server(sys.argv[1], listen=listen)\n"
            "    print(server.address, flush=True)\n"
            "    sys.stdin.read()\n"
            "    server.close()\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", script, str(self._directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _start(self) -> subprocess.Popen[str]:
        process, self._next = self._next, self._prepare()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{self.address}\n")
        process.stdin.flush()
        self.address = process.stdout.readline().strip()
        assert self.address, "the server has not started"
        return process

    def outage(self, kind: str, seconds: float) -> None:
        """Nobody answers for so long."""
        if kind == "paused":
            pause(self._process)
            time.sleep(seconds)
            self._process.send_signal(signal.SIGCONT)
            return
        if kind == "killed":
            self._process.kill()
        over = time.monotonic() + seconds
        self._process.communicate(timeout=30)
        time.sleep(max(over - time.monotonic(), 0))
        self._process = self._start()

    def stop(self) -> None:
        """Ends it, and the process that would be the next."""
        for process in (self._process, self._next):
            process.communicate(timeout=30)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("outside"))
    yield process
    process.stop()


class Job:
    """Recipe 6, started again by its supervisor until it has ended well, unless another instance has taken over."""

    def __init__(self, address: str, name: str, lines: list[bytes]) -> None:
        self._address = address
        self._name = name
        self._lines = lines
        self.failures = 0
        self._thread = threading.Thread(target=self._supervise)
        self._thread.start()

    def _run(self) -> None:
        with sbp.connect(self._address, timeout=20) as client:
            client.create_stream(self._name, exist_ok=True)
            with client.writer(self._name, writer_id="import-4711", timeout=TIMEOUT, linger=0.002) as writer:
                for line in self._lines[writer.next_sequence :]:
                    writer.append(line)
                    time.sleep(INPUT / len(self._lines))

    def _supervise(self) -> None:
        while True:
            try:
                self._run()
            except sbp.WriterFencedError:
                return
            except sbp.SbpError:
                self.failures += 1
                time.sleep(0.01)
            else:
                return

    def wait(self) -> None:
        self._thread.join(50)
        assert not self._thread.is_alive(), "the job has not ended"


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * OUTAGES)
def test_recipe_6_writes_each_line_once_whatever_the_outage(outside: ServerProcess) -> None:
    failures = 0
    for trial in range(OUTAGES):
        chance = random.Random(trial)
        length = TIMEOUT * (chance.uniform(0.1, 0.8), chance.uniform(0.9, 2), chance.uniform(2, 4))[trial % 3]
        kind = chance.choice(("killed", "killed", "paused", "restarted"))
        name = f"imports-{trial}"
        # Now and then a batch is on its way when the outage begins, and mostly none.
        lines = [b"%d" % number for number in range(chance.choice((40, 80, 200)))]
        jobs = [Job(outside.address, name, lines)]
        if chance.random() < 0.3:
            # Somebody starts it a second time, and the first is still there.
            time.sleep(chance.uniform(0, 0.2))
            jobs.append(Job(outside.address, name, lines))
        time.sleep(chance.uniform(0, 0.3))
        outside.outage(kind, length)
        for job in jobs:
            job.wait()
            failures += job.failures
        with sbp.connect(outside.address, timeout=20) as client:
            assert values(client.stream(name)) == lines, f"trial {trial}: {kind} for {length:.3f} s"
    assert failures >= OUTAGES // 4, f"only {failures} lives of jobs ended in an error"


REFUSED: list[tuple[Any, type[Exception]]] = [
    (LARGE, sbp.PayloadTooLargeError),
    ("text", TypeError),
    ([b"a", LARGE, b"c"], sbp.PayloadTooLargeError),
    ([b"a", 7], TypeError),
]


@pytest.mark.parametrize(("data", "error"), REFUSED)
def test_behind_a_record_that_append_refuses_a_writer_with_a_name_takes_nothing(
    client: sbp.Client, name: str, data: Any, error: type[Exception]
) -> None:
    stream = client.create_stream(name)
    source = [b"one", data, b"two", b"three"]
    for _ in range(3):
        # A program that goes on whatever is refused, and begins each of its lives where the writer stands.
        with stream.writer(writer_id="job") as writer:
            for item in source[writer.next_sequence :]:
                with contextlib.suppress(error, sbp.ClosedError):
                    writer.append(item)
            assert writer.next_sequence == 1, "the place of the record that was refused"
            with pytest.raises(sbp.ClosedError, match=r"refused a record before it .* open the writer again"):
                writer.append(b"two")
    assert values(stream) == [b"one"]
    source[1] = b"mended"
    with stream.writer(writer_id="job") as writer:
        for item in source[writer.next_sequence :]:
            writer.append(item)
    assert values(stream) == [b"one", b"mended", b"two", b"three"]


def test_an_empty_list_and_a_writer_without_a_name_have_no_place_to_keep(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer(writer_id="job") as writer:
        with pytest.raises(sbp.InvalidRequestError, match="empty"):
            writer.append([])
        assert writer.append(b"one") == 0
    with stream.writer() as writer:
        with pytest.raises(sbp.PayloadTooLargeError):
            writer.append(LARGE)
        writer.append(b"two")
    assert values(stream) == [b"one", b"two"]


@pytest.mark.parametrize("linger", [0, 0.01])
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_large_is_refused_at_once_and_what_fits_is_stored(
    client: sbp.Client, name: str, linger: float, idempotent: bool
) -> None:
    stream = client.create_stream(name)
    nearly = bytes((16 << 20) - (80 << 10))
    with stream.writer(linger=linger, idempotent=idempotent) as writer:
        writer.append(b"one")
        with pytest.raises(sbp.PayloadTooLargeError):
            writer.append(LARGE)
        writer.append(nearly)
        writer.append(b"two")
    with stream.writer(linger=linger, idempotent=idempotent, compression="lz4") as writer:
        assert writer.append([b"three", LARGE]) == 1
    assert values(stream) == [b"one", nearly, b"two", b"three", LARGE]


def test_a_table_that_is_too_large_is_refused_whole(client: sbp.Client, name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": pa.array([bytes(1 << 20)] * 17, pa.binary())})
    stream = client.create_stream(name, schema=table.schema)
    with stream.writer(writer_id="job") as writer:
        assert writer.append(table.slice(0, 2)) == 1
        with pytest.raises(sbp.PayloadTooLargeError):
            writer.append(table)
        assert writer.next_sequence == 2
    with stream.writer(writer_id="job") as writer:
        assert writer.append(table.slice(0, 1)) == 2
    assert stream.positions().latest == 3


@pytest.mark.asyncio
async def test_the_same_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    async with stream.writer(writer_id="job") as writer:
        assert await writer.append(b"one") == 0
        # Also where nobody waits for it.
        with pytest.raises(sbp.PayloadTooLargeError):
            writer.append(LARGE)
        with pytest.raises(sbp.ClosedError):
            writer.append_nowait([b"a", b"b"])
    async with stream.writer(writer_id="job") as writer:
        assert await writer.append(b"two") == 1
    async with stream.writer(writer_id="job") as older, stream.writer(writer_id="job") as newer:
        assert (older.epoch, newer.epoch, newer.next_sequence) == (2, 3, 2)
        await older.append(b"shut out")
        with pytest.raises(sbp.WriterFencedError, match="opened again elsewhere: epoch 3"):
            await older.flush()
        assert await newer.append(b"three") == 2
    found = [record.value async for batch in stream.read() for record in batch.records()]
    assert found == [b"one", b"two", b"three"]


def cut_off(client: sbp.Client, name: str, **how: Any) -> sbp.Writer:
    """A writer whose second batch ends in doubt."""
    writer = client.writer(name, writer_id="job", linger=0, timeout=0.3, **how)
    writer.append(b"one")
    writer.flush()
    writer.append(b"two")
    return writer


def test_behind_a_batch_in_doubt_a_writer_takes_nothing_and_says_so(name: str) -> None:
    with testing.proxied() as proxy, sbp.connect(proxy.address, timeout=20) as client:
        stream = client.create_stream(name)
        with proxy.hold("answer APPEND nth=3"):
            writer = cut_off(client, name)
            with pytest.raises(sbp.IndeterminateError, match="stores nothing behind it until it is opened again"):
                writer.flush()
        for _ in range(2):
            with pytest.raises(sbp.SbpError, match=r"was not stored.*open the writer again") as caught:
                writer.append(b"three")
            assert not isinstance(caught.value, sbp.IndeterminateError)
            assert not caught.value.retriable
        with pytest.raises(sbp.SbpError, match="was not stored"):
            writer.append([b"three", b"four"])
        writer.close()
        with client.writer(name, writer_id="job") as again:
            assert again.next_sequence == 2, "the answer was lost, not the record"
            again.append(b"three")
        assert values(stream) == [b"one", b"two", b"three"]


def test_reports_tell_of_all_that_was_taken_before_a_writer_stopped(name: str) -> None:
    reports: list[sbp.DeliveryReport] = []
    with testing.proxied() as proxy, sbp.connect(proxy.address, timeout=20) as client:
        client.create_stream(name)
        with proxy.hold("answer APPEND nth=3"):
            writer = cut_off(client, name, on_delivery=reports.append)
            writer.append(b"three")
            writer.flush()
        with pytest.raises(sbp.SbpError, match="was not stored"):
            writer.append(b"four")
        writer.close()
    assert [(report.first_sequence, report.error is None) for report in reports] == [(0, True), (1, False), (2, False)]
    assert isinstance(reports[1].error, sbp.IndeterminateError)


def test_of_two_instances_the_newer_one_writes_and_nothing_is_lost(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    first = stream.writer(writer_id="job", linger=0)
    first.append(b"one")
    first.flush()
    second = stream.writer(writer_id="job", linger=0)
    assert (first.epoch, second.epoch, second.next_sequence) == (0, 1, 1)
    first.append(b"shut out")
    with pytest.raises(sbp.WriterFencedError) as caught:
        first.flush()
    for part in (name, "opened again elsewhere", "epoch 1", "stop this one"):
        assert part in str(caught.value), caught.value
    assert second.append(b"two") == 1
    second.close()
    with pytest.raises(sbp.WriterFencedError):
        first.append(b"shut out")
    first.close()
    assert values(stream) == [b"one", b"two"]


def test_an_epoch_of_ones_own_is_used_as_it_is(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer(writer_id="job", epoch=7) as writer:
        assert (writer.epoch, writer.next_sequence) == (7, 0)
        writer.append([b"one", b"two"])
    with stream.writer(writer_id="job", epoch=7) as again:
        assert again.next_sequence == 2
        with stream.writer(writer_id="job", epoch=9) as writer:
            # Nobody is shut out before it has stored something; it goes on where the older one stands.
            assert writer.next_sequence == 2
            again.append(b"three")
            again.flush()
        with stream.writer(writer_id="job") as writer:
            assert (writer.epoch, writer.next_sequence) == (8, 3)
    with pytest.raises(sbp.WriterFencedError, match="epoch 8 is current"):
        stream.writer(writer_id="job", epoch=7)
    assert values(stream) == [b"one", b"two", b"three"]


def test_streams_by_key_are_taken_over_too(client: sbp.Client, name: str) -> None:
    keyed = client.keyed(name, streams=2)
    older = keyed.writer(writer_id="job", linger=0)
    older.append("a", b"one")
    older.flush()
    with keyed.writer(writer_id="job") as newer:
        newer.append("a", b"two")
    older.append("a", b"shut out")
    with pytest.raises(sbp.WriterFencedError):
        older.close()
    records = [value for stream in keyed.streams for value in values(client.stream(stream))]
    assert records == [b"one", b"two"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"writer_id": ""}, "writer_id is empty"),
        ({"linger": -1.0}, r"linger is seconds.*not -1"),
        ({"linger": float("nan")}, "linger"),
    ],
    ids=["writer_id", "linger", "nan"],
)
def test_what_is_wrong_is_named(client: sbp.Client, name: str, wrong: dict[str, Any], told: str) -> None:
    stream = client.create_stream(name)
    with pytest.raises(ValueError, match=told):
        stream.writer(**wrong)


def test_an_ack_says_whether_it_is_a_duplicate(client: sbp.Client, name: str) -> None:
    ack = client.create_stream(name).append(b"x")
    assert repr(ack).endswith("duplicate=False)")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_what_an_unclosed_writer_holds_is_sent_when_the_process_ends(
    server: sbp.Server, name: str, run_python: Run
) -> None:
    done = run_python(
        """
        import sys, sbp_native as sbp
        client = sbp.connect(sys.argv[1])
        writer = client.writer(client.create_stream(sys.argv[2]), linger=3600)
        writer.append([b"x"] * 17)
        """,
        server.address,
        name,
    )
    assert done.stderr == "", "nothing was lost"
    with sbp.connect(server.address) as client:
        assert client.stream(name).positions().latest == 17


def test_what_is_lost_when_the_process_ends_is_told_aloud(run_python: Run) -> None:
    done = run_python("""
        import sbp_native as sbp
        from sbp_native import testing
        proxied = testing.proxied("drop answer APPEND every=1")
        proxy = proxied.__enter__()
        client = sbp.connect(proxy.address)
        writer = client.writer(client.create_stream("orders"), linger=3600, timeout=0.5)
        writer.append([b"x"] * 17)
    """)
    assert (
        "RuntimeWarning: a writer of stream orders was not closed, and 17 records were not acknowledged" in done.stderr
    )


def stored(client: sbp.Client, keyed: sbp.Keyed) -> list[bytes | None]:
    return [record.value for batch in client.keyed(keyed.name).read() for record in batch.records()]


def test_a_keyed_writer_says_where_each_stream_goes_on(client: sbp.Client, name: str) -> None:
    keyed = client.keyed(name, 3)
    source = [(f"k{number % 7}", b"%d" % number) for number in range(50)]

    def life(until: int) -> dict[str, int]:
        """Gives the whole input, as far as it goes in this life, and returns where the streams went on."""
        with keyed.writer(writer_id="job") as writer:
            begun = writer.next_sequence
            left = dict(begun)
            for key, value in source[:until]:
                if left[stream := keyed.stream_of(key)]:
                    left[stream] -= 1
                else:
                    writer.append(key, value)
            assert sum(writer.next_sequence.values()) == until
        return begun

    assert life(20) == dict.fromkeys(keyed.streams, 0)
    begun = life(37)
    assert sum(begun.values()) == 20
    assert begun == {stream: sum(keyed.stream_of(key) == stream for key, _ in source[:20]) for stream in keyed.streams}
    assert sum(life(50).values()) == 37
    values = stored(client, keyed)
    assert len(values) == 50, "none twice"
    assert set(values) == {value for _, value in source}


@pytest.mark.asyncio
async def test_a_keyed_writer_says_where_each_stream_goes_on_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    keyed = await aclient.keyed(name, 2)
    for life in range(3):
        async with keyed.writer(writer_id="job") as writer:
            assert writer.next_sequence == {keyed.stream_of(b"a"): 2 * life, keyed.stream_of(b"d"): life}
            for key in (b"a", b"a", b"d"):
                await writer.append(key, b"x")
