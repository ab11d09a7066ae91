"""Streams that are given columns while clients tail, read, append and hold cursors: everybody goes on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sbp_native as sbp
from python.scripted_peer import DESCRIBE_STREAMS, Act, Frame, ScriptedPeer, refuse
from sbp_native._native import SpanReader

UPDATES = 10


def schema(columns: int) -> pa.Schema:
    """The schema with `columns` columns that were added."""
    return pa.schema([pa.field("n", pa.int64()), *(pa.field(f"c{added}", pa.string()) for added in range(columns))])


def table(n: int, columns: int) -> pa.Table:
    """One row, of the stream as it was when it had so many columns more."""
    return pa.table({"n": [n], **{f"c{added}": [f"{n}-{added}"] for added in range(columns)}}, schema=schema(columns))


def rows_of(batch: sbp.Batch) -> list[tuple[int, list[str]]]:
    """The numbers, and what the columns hold that are not null."""
    rows = batch.to_arrow().to_pylist()
    return [(row.pop("n"), [value for value in row.values() if value is not None]) for row in rows]


def wanted(n: int, columns: int) -> tuple[int, list[str]]:
    return n, [f"{n}-{added}" for added in range(columns)]


def test_everybody_goes_on_during_ten_updates(server: sbp.Server, name: str) -> None:
    with (
        sbp.connect(server.address) as owner,
        sbp.connect(server.address) as reader,
        sbp.connect(server.address) as writing,
    ):
        owner.create_stream(name, schema=schema(0))
        ours, old = owner.stream(name), writing.stream(name)
        tail = reader.tail(name, start="earliest", timeout=20)
        cursor = reader.cursor(name, [name])
        followed = cursor.tail(timeout=20)
        kept = reader.stream(name)
        writer = writing.writer(name)
        rows, n = [], 0
        for update in range(1, UPDATES + 1):
            owner.update_stream(name, schema=schema(update))
            # Through what knows of the update, through handles that do not, and with old columns and new ones.
            appends: list[tuple[Callable[[pa.Table], object], int]] = [
                (ours.append, update),
                (old.append, update - 1),
                (old.append, update),
                (old.append, 0),
                (writer.append, update),
                (writer.append, update - 1),
            ]
            for append, columns in appends:
                append(table(n, columns))
                rows.append(wanted(n, columns))
                n += 1
                writer.flush()
            while len(seen := rows_of(next(tail))) and seen[-1] != rows[-1]:
                assert seen[0] in rows
            while rows_of(batch := next(followed))[-1] != rows[-1]:
                pass
            cursor.commit(batch)
            assert [row for batch in kept.read() for row in rows_of(batch)] == rows
            assert cursor.positions == {name: n}
        writer.close()
        assert [handle.schema for handle in (ours, old, kept)] == [schema(UPDATES)] * 3


def test_a_tail_misses_nothing_and_repeats_nothing(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as owner, sbp.connect(server.address) as reader:
        stream = owner.create_stream(name, schema=schema(0))
        tails = [reader.tail(name, start="earliest", timeout=20), iter(reader.cursor(name, name))]
        for update in range(UPDATES):
            stream.append(table(update, update))
            owner.update_stream(name, schema=schema(update + 1))
        for tail in tails:
            found: list[Any] = []
            while len(found) < UPDATES:
                found += rows_of(next(tail))
            assert found == [wanted(n, n) for n in range(UPDATES)]


@pytest.mark.asyncio
async def test_everybody_goes_on_for_asyncio_too(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as owner, sbp.aio.connect(server.address) as other:
        ours = await owner.create_stream(name, schema=schema(0))
        old = await other.stream(name)
        rows = []
        async with other.tail(name, start="earliest", timeout=20) as tail:
            for update in range(1, UPDATES + 1):
                await owner.update_stream(name, schema=schema(update))
                await old.append(table(2 * update, update))
                await other.append_all({name: table(2 * update + 1, update - 1)})
                rows += [wanted(2 * update, update), wanted(2 * update + 1, update - 1)]
            found: list[Any] = []
            while len(found) < len(rows):
                found += rows_of(await anext(tail))
        assert found == rows
        assert ours.schema == schema(UPDATES)


def test_data_that_is_given_only_once_is_appended_through_an_old_handle(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as owner, sbp.connect(server.address) as other:
        streams = [owner.create_stream(f"{name}-{number}", schema=schema(0)) for number in range(3)]
        old = [other.stream(stream.name) for stream in streams]
        for stream in streams[:2]:
            stream.update(schema=schema(1))
        assert len(old[0].append(table(1, 1).to_reader())) == 1
        acks = other.append_all({old[1]: table(2, 1).to_reader(), old[2]: table(3, 0).to_reader()})
        assert len(acks) == 2
        found = [row for stream in streams for batch in stream.read() for row in rows_of(batch)]
        assert found == [wanted(1, 1), wanted(2, 1), wanted(3, 0)]


def test_columns_that_nobody_added_are_refused_all_the_same(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as owner, sbp.connect(server.address) as other:
        stream = owner.create_stream(name, schema=schema(0))
        old = other.stream(name)
        stream.update(schema=schema(1))
        writer = other.writer(name)

        def together(data: pa.Table) -> object:
            return other.append_all({name: data})

        appends: list[Callable[[pa.Table], object]] = [old.append, writer.append, together]
        for append in appends:
            with pytest.raises(sbp.SchemaMismatchError, match='column "c1" is not in the stream\'s schema'):
                append(table(1, 2))
        assert old.positions().latest == 0


def test_a_step_that_fails_skips_nothing(server: sbp.Server, name: str) -> None:
    """The stream cannot be described again for a while: the next step goes on where the one before failed."""
    with (
        sbp.connect(server.address) as owner,
        sbp.Proxy(server) as proxy,
        sbp.connect(proxy.address, timeout=1) as reader,
    ):
        stream = owner.create_stream(name, schema=schema(0))
        cursor = reader.cursor(name, name)
        for steps in (reader.tail(name, start="earliest", timeout=1), cursor.tail(timeout=1)):
            if stream.positions().latest == 0:
                owner.update_stream(name, schema=schema(1))
                for n in range(3):
                    stream.append(table(n, (n + 1) % 2))
            drop = proxy.add("drop DESCRIBE_STREAMS")
            for _ in range(2):
                with pytest.raises(sbp.DeadlineExceededError) as caught:
                    next(steps)
                assert (caught.value.stream, caught.value.offset, cursor.reached) == (name, 0, {name: 0})
            proxy.remove(drop)
            found: list[Any] = []
            while len(found) < 3:
                found += rows_of(next(steps))
            assert found == [wanted(n, (n + 1) % 2) for n in range(3)]
        assert cursor.reached == {name: 3}


def test_a_span_is_read_over_an_update(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as owner:
        one, two = (owner.create_stream(f"{name}-{number}", schema=schema(1)) for number in range(2))
        one.append(table(0, 1))
        two.append(table(1, 1))
        # As Spark's tasks do: the columns are those of the query, whatever the streams are given meanwhile.
        spans = [(one.id, 0, 2), (two.id, 0, 1)]
        reader = SpanReader(server.address, spans, "arrow", ["n", "c0"])
        one.update(schema=schema(3))
        one.append(table(2, 3))
        found = pa.RecordBatchReader.from_stream(reader).read_all().to_pylist()
        assert found == [{"n": 0, "c0": "0-0"}, {"n": 2, "c0": "2-0"}, {"n": 1, "c0": "1-0"}]
        later = SpanReader(server.address, spans, "arrow", ["n", "c0"])
        assert pa.RecordBatchReader.from_stream(later).read_all().to_pylist() == found


def test_a_read_shows_one_schema(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as owner, sbp.connect(server.address) as reader:
        stream = owner.create_stream(name, schema=schema(0))
        old = reader.stream(name)
        stream.append(table(0, 0))
        stream.update(schema=schema(1))
        stream.append(table(1, 1))
        batches = [batch.to_arrow() for batch in old.read()]
        assert pa.Table.from_batches(batches).to_pylist() == [{"n": 0, "c0": None}, {"n": 1, "c0": "1-0"}]


def test_an_old_handle_shows_what_its_client_has_learned(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, schema=schema(0))
    client.update_stream(name, schema=schema(2))
    assert stream.schema == schema(2)
    assert stream.info.schema == schema(2)


def test_a_cancelled_step_loses_nothing(server: sbp.Server, name: str) -> None:
    async def run() -> list[Any]:
        async with sbp.aio.connect(proxy.address, timeout=20) as reader:
            tail = reader.tail(name, start="earliest")
            found: list[Any] = []
            drop = proxy.add("delay=300ms DESCRIBE_STREAMS")
            with pytest.raises(TimeoutError):
                while True:
                    found += rows_of(await asyncio.wait_for(anext(tail), 0.1))
            proxy.remove(drop)
            while len(found) < 3:
                found += rows_of(await anext(tail))
            return found

    with sbp.connect(server.address) as owner, sbp.Proxy(server) as proxy:
        stream = owner.create_stream(name, schema=schema(0))
        stream.append(table(0, 0))
        stream.update(schema=schema(1))
        stream.append(table(1, 1))
        stream.append(table(2, 0))
        assert asyncio.run(run()) == [wanted(0, 0), wanted(1, 1), wanted(2, 0)]


@pytest.mark.asyncio
async def test_an_async_writer_asks_for_columns_that_it_has_not_seen(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as owner, sbp.aio.connect(server.address) as other:
        stream = await owner.create_stream(name, schema=schema(0))
        writer = await other.writer(name)
        rows: list[tuple[int, list[str]]] = []
        for update in range(1, UPDATES + 1):
            await owner.update_stream(name, schema=schema(update))
            # Old columns and new ones, of which the first new ones wait for an answer: all in the order of the calls.
            columns = [update - 1, update, 0, update, update - 1]
            numbers = [5 * update + place for place in range(5)]
            appends = [writer.append(table(n, of)) for n, of in zip(numbers, columns, strict=True)]
            assert writer.unflushed in (4, 5), "four wait, and the first may be stored already"
            flushed = writer.flush()
            sequences = await asyncio.gather(*appends)
            assert sequences == list(range(len(rows), len(rows) + 5))
            await flushed
            assert writer.unflushed == 0
            rows += [wanted(n, of) for n, of in zip(numbers, columns, strict=True)]
        await owner.update_stream(name, schema=schema(UPDATES + 1))
        last = writer.append(table(99, UPDATES + 1))
        await writer.close()
        assert await last == len(rows)
        found = [row async for batch in stream.read() for row in rows_of(batch)]
        assert found == [*rows, wanted(99, UPDATES + 1)]


@pytest.mark.asyncio
async def test_an_async_writer_refuses_columns_that_nobody_added(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as owner, sbp.aio.connect(server.address) as other:
        stream = await owner.create_stream(name, schema=schema(0))
        writer, named = await other.writer(name), await other.writer(name, writer_id="job")
        await owner.update_stream(name, schema=schema(1))
        appends = [writer.append(table(1, 2)), writer.append(table(2, 1)), writer.append(table(3, 3))]
        first, second, third = await asyncio.gather(*appends, return_exceptions=True)
        assert isinstance(first, sbp.SchemaMismatchError)
        assert isinstance(third, sbp.SchemaMismatchError)
        assert 'column "c1" is not in the stream\'s schema' in str(first)
        assert second == 0, "the others are taken"
        # One with a name takes nothing behind a record that is refused.
        appends = [named.append(table(4, 1)), named.append(table(5, 2)), named.append(table(6, 1))]
        taken, refused, behind = await asyncio.gather(*appends, return_exceptions=True)
        assert taken == 0
        assert isinstance(refused, sbp.SchemaMismatchError)
        assert isinstance(behind, sbp.ClosedError)
        assert named.next_sequence == 1
        # What was cancelled while it waited is taken all the same, as it is when it waits for room.
        await owner.update_stream(name, schema=schema(2))
        cancelled = writer.append(table(7, 2))
        cancelled.cancel()
        assert await writer.append(table(8, 2)) == 2
        await writer.close()
        await named.close()
        found = [row async for batch in stream.read() for row in rows_of(batch)]
        assert sorted(found) == [wanted(2, 1), wanted(4, 1), wanted(7, 2), wanted(8, 2)]


@pytest.mark.asyncio
async def test_an_async_writer_does_not_hold_up_its_loop(peer: ScriptedPeer, name: str) -> None:
    async with sbp.aio.connect(peer.address, timeout=20) as client:
        stream = await client.create_stream(name, schema=schema(0))
        async with client.writer(name) as writer:
            with sbp.connect(peer.upstream) as owner:
                owner.update_stream(name, schema=schema(1))
            asked, answer = threading.Event(), threading.Event()

            def hold(frame: Frame) -> Act:
                asked.set()
                assert answer.wait(20)
                return Act(up=(frame,))

            peer.once(DESCRIBE_STREAMS, hold)
            first = writer.append(table(1, 1))
            await asyncio.to_thread(asked.wait, 20)
            with pytest.raises(sbp.BackPressureError, match="columns that this client has not seen"):
                writer.append_nowait(table(2, 0))
            second = writer.append(table(2, 0))
            assert writer.unflushed == 2
            assert not first.done()
            assert not second.done()
            answer.set()
            assert list(await asyncio.gather(first, second)) == [0, 1]
            # Nobody waits in append_nowait: it says so, and knows the next time.
            with sbp.connect(peer.upstream) as owner:
                owner.update_stream(name, schema=schema(2))
            tries = 0
            while True:
                try:
                    assert writer.append_nowait(table(3, 2)) == 2
                    break
                except sbp.BackPressureError:
                    tries += 1
                    await asyncio.sleep(0)
            assert tries > 0
            refusals: list[type[Exception]] = []
            while sbp.SchemaMismatchError not in refusals:
                try:
                    writer.append_nowait(table(4, 3))
                except (sbp.BackPressureError, sbp.SchemaMismatchError) as error:
                    refusals.append(type(error))
                    await asyncio.sleep(0)
            assert refusals[0] is sbp.BackPressureError
        found = [row async for batch in stream.read() for row in rows_of(batch)]
        assert found == [wanted(1, 1), wanted(2, 0), wanted(3, 2)]


@pytest.mark.asyncio
async def test_an_async_writer_says_when_it_cannot_ask(peer: ScriptedPeer, name: str) -> None:
    async with sbp.aio.connect(peer.address, timeout=20) as client:
        stream = await client.create_stream(name, schema=schema(0))
        async with client.writer(name) as writer, client.writer(name, writer_id="job") as named:
            peer.on(DESCRIBE_STREAMS, refuse(1403))
            for one in (writer, named):
                with pytest.raises(sbp.SbpError) as caught:
                    await one.append(table(1, 1))
                assert caught.value.code == 1403
            peer.reset()
            assert await writer.append(table(2, 0)) == 0
            with pytest.raises(sbp.ClosedError, match="append refused a record before it"):
                await named.append(table(3, 0))
        found = [row async for batch in stream.read() for row in rows_of(batch)]
        assert found == [wanted(2, 0)]


@pytest.mark.asyncio
async def test_every_asynchronous_append_asks_for_columns_that_it_has_not_seen(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as owner, sbp.aio.connect(server.address) as other:
        stream = await owner.create_stream(name, schema=schema(0))
        old = await other.stream(name)
        appends: list[Callable[[pa.Table], Any]] = [
            old.append,
            old.try_append,
            lambda data: other.append(name, data),
            lambda data: other.try_append(name, data),
            lambda data: other.append_all({name: data}),
            lambda data: other.append_all({old: data}),
        ]
        for number, append in enumerate(appends):
            await owner.update_stream(name, schema=schema(number + 1))
            await append(table(number, number + 1))
        found = [row async for batch in stream.read() for row in rows_of(batch)]
        assert found == [wanted(number, number + 1) for number in range(len(appends))]


def test_the_command_follows_a_stream_that_is_given_columns(server: sbp.Server, name: str) -> None:
    command = [str(Path(sys.executable).with_name("sbp")), "fetch", "--servers", server.address, name, "--json"]

    def columns(line: str) -> dict[str, Any]:
        found = json.loads(line)["columns"]
        return {column: value for column, value in found.items() if value is not None}

    with sbp.connect(server.address) as owner:
        stream = owner.create_stream(name, schema=schema(0))
        expected = []

        def append(n: int, of: int) -> dict[str, Any]:
            stream.append(table(n, of))
            expected.append({"n": n, **{f"c{added}": f"{n}-{added}" for added in range(of)}})
            return expected[-1]

        append(0, 0)
        with subprocess.Popen([*command, "--follow"], stdout=subprocess.PIPE, text=True) as following:
            try:
                assert following.stdout is not None
                assert columns(following.stdout.readline()) == expected[0], "it follows, and knows the first schema"
                for update in range(1, UPDATES + 1):
                    stream.update(schema=schema(update))
                    for of in (update, update - 1):
                        row = append(len(expected), of)
                        assert columns(following.stdout.readline()) == row
            finally:
                following.kill()
        done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True)
        assert [columns(line) for line in done.stdout.splitlines()] == expected
        # In words, the columns that a row was not given are there as nulls.
        done = subprocess.run(command[:-1], capture_output=True, text=True, timeout=40, check=True)
        assert done.stdout.splitlines()[0].endswith(f" n=0 {' '.join(f'c{added}=null' for added in range(UPDATES))}")


def test_streams_by_key_go_on_over_updates(server: sbp.Server, name: str) -> None:
    with sbp.connect(server.address) as owner, sbp.connect(server.address) as other:
        made = owner.keyed(name, 3)
        keyed = other.keyed(name)
        tail, cursor = keyed.tail("earliest", timeout=20), other.cursor(name, keyed)
        followed = cursor.tail(timeout=20)
        written: list[bytes] = []
        with keyed.writer(writer_id="job") as writer:
            for update in range(UPDATES):
                for stream in made:
                    owner.update_stream(stream, retention=3600 + update, retention_bytes=10**9 + update)
                with pytest.raises(sbp.SbpError, match="schema"):
                    owner.update_stream(made.streams[update % 3], schema=schema(0))
                values = [b"%d-%d" % (update, number) for number in range(6)]
                for number, value in enumerate(values[:3]):
                    writer.append(b"k%d" % number, value)
                writer.flush()
                keyed.append_all([(b"k%d" % number, value) for number, value in enumerate(values[3:])])
                written += values
                assert dict(owner.keyed(name, 3).positions()) == dict(keyed.positions())
        for batches in (tail, followed):
            found: list[bytes | None] = []
            while len(found) < len(written):
                found += [record.value for record in next(batches)]
            assert sorted(value for value in found if value) == sorted(written)
            assert len(found) == len(written)
        cursor.commit()
        assert sum(other.cursor(name, keyed).positions.values()) == len(written)
        with keyed.writer(writer_id="job") as writer:
            assert sum(writer.next_sequence.values()) == 3 * UPDATES
