"""Writers: records gathered into batches, stored once and in order, and what is told of them."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import threading
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import sbp_native as sbp
from sbp_native import testing

Run = Callable[..., "subprocess.CompletedProcess[str]"]

LONG = 3_600.0
"""A linger that no test outlives."""


def values(stream: sbp.Stream) -> list[bytes | None]:
    return [record.value for batch in stream.read() for record in batch.records()]


def batches(stream: sbp.Stream) -> list[int]:
    return [len(batch) for batch in stream.read()]


def test_records_are_gathered_until_they_are_flushed(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with client.writer(name, linger=LONG) as writer:
        assert [writer.append(b"%d" % number) for number in range(5)] == [0, 1, 2, 3, 4]
        assert (writer.unflushed, writer.next_sequence) == (5, 5)
        assert stream.positions().latest == 0
        writer.flush()
        assert writer.unflushed == 0
        assert writer.append([b"5", b"6"]) == 6
        assert writer.append((b"7",)) == 7
    assert values(stream) == [b"%d" % number for number in range(8)]
    assert batches(stream) == [5, 3]


def test_a_full_batch_leaves_by_itself(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer(linger=LONG, batch_bytes=1_000) as writer:
        for _ in range(100):
            writer.append(bytes(100))
    assert sum(batches(stream)) == 100
    assert max(batches(stream)) < 10


def test_a_lingering_batch_leaves_by_itself(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.tail("earliest", timeout=20) as tail, stream.writer(linger=0.02) as writer:
        writer.append(b"x")
        assert [record.value for record in next(tail).records()] == [b"x"]


def test_without_linger_each_append_is_a_batch(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer(linger=0) as writer:
        for _ in range(7):
            writer.append(b"x")
    assert batches(stream) == [1] * 7


def test_keys_headers_and_times_go_along(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer() as writer:
        writer.append(b"v", key=b"k", headers={"a": b"1"}, timestamp=1_234)
        writer.append([b"w", None], key=[None, b"l"], headers=[None, [("b", None)]], timestamp=5)
        writer.append(None, key=b"m")
    records = [record for batch in stream.read() for record in batch.records()]
    assert [(r.value, r.key, r.headers) for r in records] == [
        (b"v", b"k", [("a", b"1")]),
        (b"w", None, []),
        (None, b"l", [("b", None)]),
        (None, b"m", []),
    ]
    assert [record.timestamp for record in records[:3]] == [1_234_000, 5_000, 5_000]
    assert records[3].timestamp > 1_600_000_000_000_000


def test_a_stream_with_a_schema_takes_tables(client: sbp.Client, name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"n": pa.array(range(1_000), pa.int64())})
    stream = client.create_stream(name, schema=table.schema)
    with stream.writer(linger=LONG, compression="zstd") as writer:
        assert writer.append(table) == 999
        assert writer.append(table.slice(0, 10)) == 1_009
    rows = [row for batch in stream.read() for row in batch.to_arrow().column("n").to_pylist()]
    assert rows == [*range(1_000), *range(10)]
    with client.writer(client.create_stream(f"{name}-plain")) as writer, pytest.raises(sbp.SchemaMismatchError):
        writer.append(table)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_batches_are_compressed(client: sbp.Client, name: str, compression: Any, idempotent: bool) -> None:
    stream = client.create_stream(name)
    before = client.stats()["bytes_out"]
    with stream.writer(compression=compression, idempotent=idempotent) as writer:
        assert (writer.writer_id is not None) == idempotent
        for _ in range(1_000):
            writer.append(bytes(500))
    sent = client.stats()["bytes_out"] - before
    assert (sent > 500_000) == (compression is None), sent
    assert values(stream) == [bytes(500)] * 1_000


def test_each_batch_is_reported_once_and_in_order(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    reports: list[sbp.DeliveryReport] = []
    with stream.writer(linger=LONG, batch_bytes=500, on_delivery=reports.append) as writer:
        last = [writer.append(bytes(60)) for _ in range(200)][-1]
    assert reports[0].first_sequence == 0
    assert reports[-1].last_sequence == last == 199
    for before, after in itertools.pairwise(reports):
        assert after.first_sequence == before.last_sequence + 1
    for report in reports:
        assert report.error is None
        assert report.ack is not None
        assert (report.ack.base_offset, report.ack.last_offset) == (report.first_sequence, report.last_sequence)
        assert len(report) == len(report.ack) > 0
    assert "stored at 0" in repr(reports[0])


def test_a_callback_that_raises_hides_no_report(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    seen: list[int] = []

    def told(report: sbp.DeliveryReport) -> None:
        seen.append(report.first_sequence)
        raise LookupError("mine")

    writer = stream.writer(linger=0, on_delivery=told)
    writer.append(b"a")
    with pytest.raises(LookupError, match="mine"):
        writer.flush()
    writer.append(b"b")
    with pytest.raises(LookupError, match="mine"):
        writer.close()
    assert seen == [0, 1]
    assert values(stream) == [b"a", b"b"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_failure_is_reported_or_else_raised_once(client: sbp.Client, name: str, idempotent: bool) -> None:
    stream = client.create_stream(name)
    reports: list[sbp.DeliveryReport] = []
    told = stream.writer(linger=LONG, idempotent=idempotent, on_delivery=reports.append)
    silent = stream.writer(linger=LONG, idempotent=idempotent)
    for writer in (told, silent):
        writer.append(b"a")
        writer.flush()
    stream.delete()
    for writer in (told, silent):
        writer.append([b"b", b"c"])
    told.flush()
    report = reports[-1]
    assert (report.first_sequence, report.last_sequence, report.ack) == (1, 2, None)
    assert isinstance(report.error, sbp.StreamNotFoundError)
    assert report.error.stream == name
    with pytest.raises(sbp.StreamNotFoundError):
        silent.flush()
    silent.flush()
    for writer in (told, silent):
        writer.close()


def test_a_closed_writer_takes_nothing(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    writer = stream.writer()
    writer.append(b"x")
    writer.close()
    writer.close()
    with pytest.raises(sbp.ClosedError):
        writer.append(b"y")
    assert values(stream) == [b"x"]
    with pytest.raises(sbp.StreamNotFoundError):
        client.writer("nowhere")


def test_a_named_writer_goes_on_where_it_was(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer(writer_id="job-7") as writer:
        assert writer.append([b"a", b"b", b"c"]) == 2
        first = writer.writer_id
    with stream.writer(writer_id="job-7") as writer:
        assert writer.writer_id == first
        assert writer.next_sequence == 3
        assert writer.append(b"d") == 3
    with stream.writer(writer_id="job-7", epoch=5) as writer:
        assert (writer.epoch, writer.next_sequence) == (5, 4)
        writer.append(b"e")
    own = uuid.uuid4()
    with stream.writer(writer_id=own) as writer:
        assert writer.writer_id == own
    assert values(stream) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_higher_epoch_shuts_out_those_before(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    old = stream.writer(writer_id="leader", linger=LONG)
    old.append(b"old")
    old.flush()
    with stream.writer(writer_id="leader", epoch=1) as new:
        new.append(b"new")
    old.append(b"too late")
    with pytest.raises(sbp.WriterFencedError):
        old.flush()
    old.close()
    assert values(stream) == [b"old", b"new"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_bytes": 0},
        {"max_in_flight": 0},
        {"max_in_flight": 65},
        {"linger": -1.0},
        {"timeout": 0.0},
        {"compression": "gzip"},
        {"epoch": -1},
        {"idempotent": False, "writer_id": "x"},
        {"writer_id": uuid.UUID(int=0)},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(client: sbp.Client, name: str, wrong: dict[str, Any]) -> None:
    stream = client.create_stream(name)
    with pytest.raises(ValueError, match=r".+"):
        stream.writer(**wrong)


def test_an_append_waits_while_too_much_is_on_its_way(name: str) -> None:
    with testing.proxied() as proxy, sbp.connect(proxy.address) as client:
        stream = client.create_stream(name)
        with stream.writer(linger=0, max_in_flight=2) as writer:
            writer.append(b"0")
            writer.flush()
            appended = threading.Event()

            def write() -> None:
                writer.append(b"3")
                appended.set()

            with proxy.hold("answer APPEND") as held:
                writer.append(b"1")
                writer.append(b"2")
                kept = held.wait()
                waiting = threading.Thread(target=write)
                waiting.start()
                assert not appended.wait(0.2)
                assert writer.unflushed == 2
                kept.forward()
            waiting.join()
            assert appended.is_set()
        assert values(stream) == [b"0", b"1", b"2", b"3"]


@pytest.mark.asyncio
async def test_an_append_of_asyncio_is_done_when_there_is_room(name: str) -> None:
    with testing.proxied() as proxy:
        async with sbp.aio.connect(proxy.address) as client:
            stream = await client.create_stream(name)
            async with stream.writer(linger=0, max_in_flight=2) as writer:
                await writer.append(b"0")
                await writer.flush()
                with proxy.hold("answer APPEND") as held:
                    assert await writer.append(b"1") == 1
                    full = writer.append(b"2")
                    kept = await asyncio.to_thread(held.wait)
                    assert not full.done()
                    with pytest.raises(sbp.BackPressureError):
                        writer.append_nowait(b"3")
                    with pytest.raises(TimeoutError) as caught:
                        await writer.flush(timeout=0.05)
                    assert isinstance(caught.value, sbp.IndeterminateError)
                    assert writer.unflushed == 2
                    kept.forward()
                assert await full == 2
            assert (await stream.positions()).latest == 3


def test_cut_connections_cost_no_record_and_double_none(name: str) -> None:
    rules = ["cut answer APPEND every=7", "cut request APPEND every=11"]
    with testing.proxied(*rules) as proxy, sbp.connect(proxy.address) as client:
        stream = client.create_stream(name)
        reports: list[sbp.DeliveryReport] = []
        with stream.writer(linger=0, max_in_flight=8, on_delivery=reports.append) as writer:
            for number in range(300):
                writer.append(b"%d" % number)
        assert proxy.stats()["cut"] > 10
        assert [report.error for report in reports] == [None] * 300
        assert any(report.ack is not None and report.ack.duplicate for report in reports)
        assert values(stream) == [b"%d" % number for number in range(300)]


def test_without_idempotence_a_lost_answer_is_told_as_such(name: str) -> None:
    with testing.proxied("cut answer APPEND nth=2") as proxy, sbp.connect(proxy.address) as client:
        stream = client.create_stream(name)
        reports: list[sbp.DeliveryReport] = []
        with stream.writer(linger=0, idempotent=False, on_delivery=reports.append) as writer:
            for value in (b"a", b"b", b"c"):
                writer.append(value)
                writer.flush()
        first, second, third = reports
        assert first.ack is not None
        assert third.ack is not None
        assert second.ack is None
        assert isinstance(second.error, sbp.IndeterminateError)
        assert "failed" in repr(second)
        assert values(stream) == [b"a", b"b", b"c"], "it was stored, as it happens"


def test_a_writer_behind_a_closed_client_warns_and_ends(server: sbp.Server, name: str) -> None:
    client = sbp.connect(server.address)
    writer = client.create_stream(name).writer(linger=LONG)
    writer.append([b"a", b"b"])
    client.close()
    with pytest.raises(sbp.ClosedError):
        writer.append(b"c")
    with pytest.warns(ResourceWarning, match="2 records"):
        writer.close()


def test_an_inherited_writer_is_not_a_childs(run_python: Run) -> None:
    run_python("""
        import gc, os, sys, warnings
        warnings.simplefilter("error", ResourceWarning)
        import sbp_native as sbp
        with sbp.Server() as server, sbp.connect(server.address) as client:
            stream = client.create_stream("orders")
            writer = stream.writer(linger=3600)
            writer.append([b"x"] * 3)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    writer.append(b"y")
                except sbp.ForkedClientError:
                    status = 0
                writer.close()
                del writer
                gc.collect()
                os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            writer.close()
            assert stream.positions().latest == 3
    """)


def test_bytes_do_not_go_into_a_stream_with_a_schema(client: sbp.Client, name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    stream = client.create_stream(name, schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(sbp.SchemaMismatchError):
        stream.append(b"x")
    with stream.writer() as writer:
        with pytest.raises(sbp.SchemaMismatchError):
            writer.append(b"x")
        with pytest.raises(sbp.SchemaMismatchError):
            writer.append([b"x", b"y"])
    assert stream.positions().latest == 0


def test_threads_share_a_writer(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    with stream.writer(batch_bytes=2_000) as writer:
        sequences: list[list[int]] = [[] for _ in range(4)]

        def write(own: list[int]) -> None:
            own.extend(writer.append(b"%d" % number) for number in range(500))

        threads = [threading.Thread(target=write, args=(own,)) for own in sequences]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(own == sorted(own) for own in sequences)
    assert sorted(number for own in sequences for number in own) == list(range(2_000))
    found = values(stream)
    for own in sequences:
        assert [found[number] for number in own] == [b"%d" % number for number in range(500)]


def test_a_dropped_writer_warns_and_still_sends(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    writer = stream.writer(linger=LONG)
    writer.append([b"a", b"b", b"c"])
    dropped = [writer]
    del writer
    with pytest.warns(ResourceWarning, match="3 records"):
        dropped.clear()
    with stream.tail("earliest", timeout=20) as tail:
        assert len(next(tail)) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = stream.writer()
        writer.append(b"d")
        writer.close()
        del writer
        gc.collect()


def test_a_writer_in_a_cycle_is_collected(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)

    class Holder:
        writer: sbp.Writer

        def told(self, _report: sbp.DeliveryReport) -> None: ...

    holder = Holder()
    holder.writer = stream.writer(linger=LONG, on_delivery=holder.told)
    holder.writer.append(b"x")
    del holder
    with pytest.warns(ResourceWarning, match="1 records"):
        gc.collect()


def test_a_writer_open_at_exit_warns_with_a_count(run_python: Run) -> None:
    done = run_python("""
        import warnings
        warnings.simplefilter("always")
        import sbp_native as sbp
        server = sbp.Server()
        client = sbp.connect(server.address)
        client.create_stream("orders")
        writer = client.writer("orders", linger=3600)
        writer.append([b"x"] * 17)
    """)
    assert "ResourceWarning" in done.stderr
    assert "orders is open at exit" in done.stderr
    assert "17 records" in done.stderr


@pytest.mark.asyncio
async def test_the_same_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    reports: list[sbp.DeliveryReport] = []
    async with aclient.writer(name, linger=LONG, batch_bytes=500, on_delivery=reports.append) as writer:
        assert [await writer.append(bytes(60)) for _ in range(200)] == list(range(200))
        assert writer.append_nowait([b"x", b"y"]) == 201
        await writer.flush()
        assert (writer.unflushed, writer.next_sequence) == (0, 202)
        assert reports[-1].last_sequence == 201
    assert [report.first_sequence for report in reports] == sorted({report.first_sequence for report in reports})
    assert sum(len(report) for report in reports) == 202
    assert (await stream.positions()).latest == 202
    with pytest.raises(sbp.ClosedError):
        await writer.append(b"z")


@pytest.mark.asyncio
async def test_reports_come_without_being_asked_for(aclient: sbp.AsyncClient, name: str) -> None:
    await aclient.create_stream(name)
    told: asyncio.Future[sbp.DeliveryReport] = asyncio.get_running_loop().create_future()
    async with aclient.writer(name, linger=0.01, on_delivery=told.set_result) as writer:
        await writer.append(b"x")
        report = await asyncio.wait_for(told, 20)
        assert report.ack is not None


@pytest.mark.asyncio
async def test_failures_are_raised_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    async with stream.writer(linger=LONG) as writer:
        await writer.append(b"a")
        await writer.flush()
        await stream.delete()
        await writer.append(b"b")
        with pytest.raises(sbp.StreamNotFoundError):
            await writer.flush()
    with pytest.raises(sbp.StreamNotFoundError):
        await aclient.writer("nowhere")


@pytest.mark.asyncio
async def test_a_writer_that_is_not_open_says_how_to_open_it(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    writer = stream.writer()
    with pytest.raises(RuntimeError, match="async with"):
        await writer.append(b"x")
    assert await writer is writer
    await writer.append(b"x")
    await writer.close()
    await writer.close()


@pytest.mark.asyncio
async def test_a_dropped_async_writer_warns(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    writer = await stream.writer(linger=LONG, on_delivery=lambda _report: None)
    await writer.append([b"a", b"b"])
    await asyncio.sleep(0)  # the turn of the loop that brought the writer still refers to it
    dropped = [writer]
    del writer
    with pytest.warns(ResourceWarning, match="2 records"):
        dropped.clear()


@pytest.mark.asyncio
async def test_an_async_writer_behind_a_closed_client_warns_and_ends(server: sbp.Server, name: str) -> None:
    client = await sbp.aio.connect(server.address)
    stream = await client.create_stream(name)
    writer = await stream.writer(linger=LONG)
    await writer.append([b"a", b"b"])
    await client.close()
    with pytest.raises(sbp.ClosedError):
        await writer.append(b"c")
    with pytest.warns(ResourceWarning, match="2 records"):
        await writer.close()


@pytest.mark.asyncio
async def test_a_cancelled_flush_keeps_the_failure_for_the_next(name: str) -> None:
    with testing.proxied() as proxy:
        async with sbp.aio.connect(proxy.address) as client:
            stream = await client.create_stream(name)
            async with stream.writer(linger=LONG) as writer:
                await writer.append(b"a")
                await writer.flush()
                await stream.delete()
                with proxy.hold("answer APPEND") as held:
                    await writer.append(b"b")
                    flushing = writer.flush()
                    kept = await asyncio.to_thread(held.wait)
                    flushing.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await flushing
                    kept.forward()
                with pytest.raises(sbp.StreamNotFoundError):
                    await writer.flush()
