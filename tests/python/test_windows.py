"""Reads from one time to another: exactly the records whose times lie between, in whatever order they stand."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sbp_native as sbp
from python.scripted_peer import APPEND, ScriptedPeer, restamp

HOUR = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count()

# Batches of records; each has a time, in ms. The spread is small, so that bounds fall on records and on borders.
TIMES = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), max_size=6)
BOUND = st.none() | st.integers(-1, 14)


def at(minutes: int) -> datetime:
    return HOUR + timedelta(minutes=minutes)


def append(stream: sbp.Stream, times: list[int], first: int) -> None:
    """One batch whose records have times of their own, and their numbers as values."""
    values = [b"%d" % (first + place) for place in range(len(times))]
    column = pa.array(times, pa.timestamp("ms", tz="UTC"))
    stream.append(pa.table({"timestamp": column, "value": pa.array(values, pa.binary())}))


def numbers(batches: sbp.Batches) -> list[int]:
    found = []
    for batch in batches:
        records = [(record.offset, int(record.value or b"")) for record in batch.records()]
        assert [offset for offset, _ in records] == list(batch.offsets), "a batch is one run of offsets"
        found += [number for _, number in records]
    return found


def bounds(start: int | None, end: int | None) -> dict[str, Any]:
    return {
        name: datetime.fromtimestamp(bound / 1000, UTC)
        for name, bound in (("start", start), ("end", end))
        if bound is not None
    }


def inside(time: int, start: int | None, end: int | None) -> bool:
    return (start is None or time >= start) and (end is None or time < end)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=TIMES, start=BOUND, end=BOUND)
def test_a_window_is_what_a_list_says(
    client: sbp.Client, batches: list[list[int]], start: int | None, end: int | None
) -> None:
    name = f"window-{next(_numbers)}"
    stream = client.create_stream(name)
    times: list[int] = []
    for batch in batches:
        append(stream, batch, len(times))
        times += batch
    if start is not None and end is not None and start > end:
        with pytest.raises(sbp.InvalidRequestError, match="swap them"):
            list(stream.read(**bounds(start, end)))
        return
    wanted = [number for number, time in enumerate(times) if inside(time, start, end)]
    assert numbers(stream.read(**bounds(start, end))) == wanted
    if start is not None:
        # A place is the first record of the time or later, and all that follow it.
        first = next((number for number, time in enumerate(times) if time >= start), len(times))
        moment = bounds(start, None)["start"]
        assert client.offsets_for_time([name], moment) == {name: first}
        assert client.cursor(name, name, start=moment).positions == {name: first}
        fetched = [record.offset for batch in stream.fetch(moment) for record in batch.records()]
        assert fetched == list(range(first, len(times)))
        upper = len(times) // 2
        assert numbers(stream.read(moment, upper)) == [number for number in wanted_from(times, start) if number < upper]


def wanted_from(times: list[int], start: int) -> list[int]:
    return [number for number, time in enumerate(times) if time >= start]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=TIMES, start=BOUND, end=BOUND)
def test_a_window_of_typed_columns(
    client: sbp.Client, batches: list[list[int]], start: int | None, end: int | None
) -> None:
    """All rows of a batch have the batch's time."""
    stream = client.create_stream(f"window-{next(_numbers)}", schema=pa.schema([("n", pa.int64())]))
    times: list[int] = []
    for batch in batches:
        time = batch[0] + 1_000
        stream.append(pa.table({"n": range(len(times), len(times) + len(batch))}), timestamp=time)
        times += [time - 1_000] * len(batch)
    if start is not None and end is not None and start > end:
        return
    shifted = [None if bound is None else bound + 1_000 for bound in (start, end)]
    rows = [row["n"] for batch in stream.read(**bounds(*shifted)) for row in batch.to_arrow().to_pylist()]
    assert rows == [number for number, time in enumerate(times) if inside(time, start, end)]


@pytest.fixture
def hours(client: sbp.Client, name: str) -> sbp.Stream:
    """Three batches of an hour each, a record a minute."""
    stream = client.create_stream(name)
    for hour in range(3):
        times = [int(at(60 * hour + minute).timestamp() * 1000) for minute in range(60)]
        append(stream, times, 60 * hour)
    return stream


def test_half_an_hour_before_and_behind_a_border(hours: sbp.Stream) -> None:
    assert numbers(hours.read(at(30), at(90))) == list(range(30, 90))
    assert numbers(hours.read(at(30), at(30))) == []
    assert numbers(hours.read(at(60), at(120))) == list(range(60, 120))
    assert numbers(hours.read("earliest", at(1))) == [0]
    assert numbers(hours.read(at(179))) == [179]
    assert numbers(hours.read(at(500))) == numbers(hours.read(at(500), at(600))) == []
    assert numbers(hours.read(10, at(15))) == [10, 11, 12, 13, 14]


def test_several_streams_have_windows_of_their_own(client: sbp.Client, hours: sbp.Stream, name: str) -> None:
    other = client.create_stream(f"{name}/other")
    append(other, [int(at(minute).timestamp() * 1000) for minute in (9, 3, 8, 1)], 1_000)
    both = client.read([hours, other], start=at(2), end={hours.name: at(4), other.name: at(9)})
    assert numbers(both) == [2, 3, 1001, 1002]


def test_the_command_fetches_a_window(server: sbp.Server, hours: sbp.Stream) -> None:
    command = [str(Path(sys.executable).with_name("sbp")), "fetch", "--servers", server.address, hours.name, "--json"]
    bounds = ["--from", "2026-01-01T00:58", "--to", "2026-01-01T01:02"]
    done = subprocess.run([*command, *bounds], capture_output=True, text=True, timeout=40, check=True)
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [58, 59, 60, 61]


@pytest.mark.asyncio
async def test_a_window_for_asyncio(aclient: sbp.AsyncClient, hours: sbp.Stream) -> None:
    stream = await aclient.stream(hours.name)
    found = [record.offset async for batch in stream.read(at(58), at(62)) for record in batch.records()]
    assert found == [58, 59, 60, 61]


def test_a_read_beyond_the_end_says_so(client: sbp.Client, hours: sbp.Stream) -> None:
    for end in ("latest", "latest-3", at(90)):
        with pytest.raises(sbp.OffsetOutOfRangeError, match="offset 181 is beyond the end of the stream") as caught:
            hours.read(181, end)
        assert (caught.value.stream, caught.value.offset) == (hours.name, 181)
    assert list(hours.read(180)) == []
    with pytest.raises(sbp.InvalidRequestError, match="from offset 7 to 3 ends before it begins: swap them"):
        hours.read(7, 3)


def test_a_read_the_wrong_way_round_is_not_beyond_the_end(hours: sbp.Stream) -> None:
    cases: list[tuple[int | str, str, str]] = [
        ("latest", "earliest", "180 to 0"),
        ("latest-1", "latest-5", "179 to 175"),
        (100, "earliest+3", "100 to 3"),
    ]
    for start, end, places in cases:
        with pytest.raises(sbp.InvalidRequestError, match=f"from offset {places} ends before it begins: swap them"):
            hours.read(start, end)


def test_a_tail_and_a_cursor_start_inside_a_batch(client: sbp.Client, hours: sbp.Stream) -> None:
    with hours.tail(at(61), timeout=20) as tail:
        assert next(tail).base_offset == 61
    cursor = client.cursor(hours.name, hours, start=at(61))
    assert (cursor.positions, next(iter(cursor)).base_offset) == ({hours.name: 61}, 61)
    assert hours.trim(at(59)) == 59


# What is refused, and how.


@pytest.mark.parametrize(
    ("time", "unit"),
    [(1_712_345_678_123_456, "1,000 if it is microseconds"), (1_712_345_678_123_456_789, "1,000,000 if")],
)
def test_a_time_in_another_unit_is_refused(client: sbp.Client, name: str, time: int, unit: str) -> None:
    stream = client.create_stream(name)
    keyed = client.keyed(f"{name}/keyed", 2)
    appends: list[Callable[[], object]] = [
        lambda: stream.append(b"x", timestamp=time),
        lambda: stream.append([b"x"], timestamp=time),
        lambda: client.append_all({name: b"x"}, timestamp=time),
        lambda: client.writer(name).append(b"x", timestamp=time),
        lambda: keyed.append(b"k", b"x", timestamp=time),
    ]
    for append in appends:
        with pytest.raises(sbp.InvalidRequestError, match=f"the time {time} is not in the years 1 to 9999.*{unit}"):
            append()
    for far in (2**63 - 1, -(2**63), 2**70, 253_402_300_800_000):
        with pytest.raises(sbp.InvalidRequestError, match="not in the years 1 to 9999"):
            stream.append(b"x", timestamp=far)
    assert stream.positions().latest == 0
    column = pa.array([time], pa.timestamp("us", tz="UTC"))
    if time > 10**17:
        with pytest.raises(sbp.SchemaMismatchError, match=f"holds {time} microseconds"):
            stream.append(pa.table({"timestamp": column, "value": pa.array([b"x"], pa.binary())}))
    stream.append(b"x", timestamp=253_402_300_799_999)
    stream.append(b"x", timestamp=-62_135_596_800_000)


@pytest.mark.asyncio
async def test_a_time_in_another_unit_is_refused_for_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    with pytest.raises(sbp.InvalidRequestError, match="divide by 1,000 if it is microseconds"):
        await stream.append(b"x", timestamp=1_712_345_678_123_456)
    async with aclient.writer(name) as writer:
        with pytest.raises(sbp.InvalidRequestError, match="divide by 1,000 if it is microseconds"):
            await writer.append(b"x", timestamp=1_712_345_678_123_456)


def test_arguments_that_make_no_sense(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    for start in (client.tail, client.read):
        with pytest.raises(sbp.InvalidRequestError, match="no streams are named"):
            start([])
    with pytest.raises(sbp.InvalidRequestError, match="max_bytes is a number of bytes from 0 to 4294967295, not -1"):
        stream.fetch(0, max_bytes=-1)
    with pytest.raises(sbp.InvalidRequestError, match=r"a place in a stream is an offset .* not 1\.0"):
        stream.read(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("far", [2**63 - 1, 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_that_columns_cannot_show_is_named(peer: ScriptedPeer, name: str, far: int) -> None:
    """Batches of earlier versions and of other clients may hold one; ours refuse to append it."""
    with sbp.connect(peer.address, timeout=20) as client:
        stream = client.create_stream(name)
        stream.append([b"0", b"1"], timestamp=5)
        peer.once(APPEND, restamp(1_700_000_000_123, far))
        stream.append([b"2", b"3"], timestamp=1_700_000_000_123)
        micros = max(min(far * 1000, 2**63 - 1), -(2**63))
        fine, batch = stream.read()
        assert fine.to_arrow().num_rows == 2
        uses: list[Callable[[], object]] = [
            batch.to_arrow,
            batch.to_pandas,
            lambda: pa.table(batch),
            lambda: pa.record_batch(batch),
        ]
        for use in uses:
            with pytest.raises(
                sbp.InvalidRequestError, match=f"has the time {micros} microseconds, which is not in"
            ) as no:
                use()
            assert (no.value.stream, no.value.offset, no.value.retriable) == (name, 2, False)
        # All of it, as one Arrow stream: Arrow carries the text alone.
        with pytest.raises(Exception, match=f"has the time {micros} microseconds.*stream {name}.*offset 2"):
            pa.table(stream.read())
        # The records themselves are read as they are.
        assert batch.values == [b"2", b"3"]
        assert batch.timestamps == [record.timestamp for record in batch.records()] == [micros] * 2
        assert [batch.to_arrow().num_rows for batch in stream.read(end=2)] == [2]


def test_a_time_in_a_typed_batch_hinders_nobody(peer: ScriptedPeer, name: str) -> None:
    """Times of records are no columns of a stream with a schema."""
    table = pa.table({"n": [1, 2]})
    with sbp.connect(peer.address, timeout=20) as client:
        stream = client.create_stream(name, schema=table.schema)
        peer.once(APPEND, restamp(1_700_000_000_123, 2**63 - 1))
        stream.append(table, timestamp=1_700_000_000_123)
        [batch] = stream.read()
        assert batch.to_arrow().to_pydict() == {"n": [1, 2]}
        assert batch.timestamps == [2**63 - 1] * 2
