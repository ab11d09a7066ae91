"""Streams that are given columns while clients tail, read, append and hold cursors: everybody goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import sbp_native as sbp
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
