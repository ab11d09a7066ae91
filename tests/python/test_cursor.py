"""Named cursors: where a job goes on, who holds a name, and what a commit came to."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

import sbp_native as sbp


@pytest.fixture
def streams(client: sbp.Client, name: str) -> list[str]:
    """Two streams with the records b"0" to b"9" each, in two batches."""
    names = [f"{name}/orders", f"{name}/payments"]
    for each in names:
        stream = client.create_stream(each)
        stream.append([b"%d" % n for n in range(6)])
        stream.append([b"%d" % n for n in range(6, 10)])
    return names


def values(batches: sbp.Batches) -> list[tuple[str, bytes | None]]:
    return [(batch.stream, record.value) for batch in batches for record in batch.records()]


def test_a_job_goes_on_where_it_committed(
    server: sbp.Server, client: sbp.Client, streams: list[str], name: str
) -> None:
    orders, payments = streams
    cursor = client.cursor(name, streams)
    assert (cursor.name, cursor.streams) == (name, (orders, payments))
    assert cursor.positions == cursor.reached == {orders: 0, payments: 0}
    first = next(iter(cursor.read()))
    assert (first.stream, first.last_offset) == (orders, 5)
    assert cursor.positions == {orders: 0, payments: 0}, "reading commits nothing"
    assert cursor.reached == {orders: 6, payments: 0}
    cursor.commit(first)
    cursor.commit({payments: 8})
    assert cursor.positions == {orders: 6, payments: 8}
    with sbp.connect(server.address) as another:
        again = another.cursor(name, streams)
        assert again.positions == again.reached == {orders: 6, payments: 8}
        assert again.lag() == {orders: 4, payments: 2}
        assert values(again.read()) == [(orders, b"%d" % n) for n in range(6, 10)] + [
            (payments, b"8"),
            (payments, b"9"),
        ]
        assert again.lag() == {orders: 0, payments: 0}
        again.commit()
        assert another.cursor(name, streams).positions == {orders: 10, payments: 10}
        again.commit({orders: 0})
        assert another.cursor(name, [orders]).positions == {orders: 0}, "it may go back"


def test_a_loop_goes_on_where_it_was_left(client: sbp.Client, streams: list[str], name: str) -> None:
    orders = streams[0]
    cursor = client.cursor(name, [orders])
    for batch in cursor:
        assert batch.offsets == range(6)
        cursor.commit()
        break
    for batch in cursor:
        assert batch.offsets == range(6, 10)
        break
    assert (cursor.positions, cursor.reached) == ({orders: 6}, {orders: 10})
    waiting = cursor.tail(timeout=0.05)
    with pytest.raises(TimeoutError):
        next(waiting)
    client.append(orders, b"10")
    assert next(cursor.tail(timeout=20)).offsets == range(10, 11)


def test_streams_never_committed_begin_at_the_start_given(client: sbp.Client, streams: list[str], name: str) -> None:
    orders, payments = streams
    assert client.cursor(name, streams).positions == {orders: 0, payments: 0}
    assert client.cursor(name, streams, start="latest").positions == {orders: 10, payments: 10}
    client.cursor(name, streams, start="latest-3").commit({payments: 1})
    # The first commit settles it for all of them.
    client.append(orders, b"10")
    assert client.cursor(name, streams, start="latest").positions == {orders: 7, payments: 1}
    assert client.cursor(f"{name}-2", [client.stream(orders)], start=4).positions == {orders: 4}


@pytest.mark.provokes(9014, by="server")
def test_two_holders_of_one_name_cannot_both_commit(client: sbp.Client, streams: list[str], name: str) -> None:
    orders, payments = streams
    first, second = client.cursor(name, streams), client.cursor(name, streams)
    first.commit({orders: 3})
    for _ in range(2):
        with pytest.raises(sbp.CursorTakenError, match=name) as refused:
            second.commit({orders: 9})
        assert isinstance(refused.value, sbp.PreconditionFailedError)
        assert (refused.value.code, refused.value.retriable, refused.value.indeterminate) == (9014, False, False)
        assert refused.value.stream == f"_sbp/cursors/{name}"
        first.commit({payments: 4})
    with pytest.raises(sbp.CursorTakenError):
        second.read()
    with pytest.raises(sbp.CursorTakenError):
        iter(second)
    third = client.cursor(name, streams)
    assert third.positions == {orders: 3, payments: 4}
    third.commit()  # claims the name
    with pytest.raises(sbp.CursorTakenError):
        first.commit({orders: 5})
    assert client.cursor(name, streams).positions == {orders: 3, payments: 4}


def test_what_makes_no_sense_is_refused(client: sbp.Client, streams: list[str], name: str) -> None:
    orders, payments = streams
    for wrong in ["", "with space", "x" * 243]:
        with pytest.raises(sbp.InvalidRequestError, match="name"):
            client.cursor(wrong, streams)
    with pytest.raises(sbp.StreamNotFoundError):
        client.cursor(name, [f"{name}/none"])
    with pytest.raises(ValueError, match="at least one"):
        client.cursor(name, [])
    cursor = client.cursor(name, [orders])
    with pytest.raises(ValueError, match="not opened for"):
        cursor.commit({payments: 1})
    with pytest.raises(ValueError, match="not opened for"):
        cursor.commit(next(client.read(payments)))
    with pytest.raises(ValueError, match="-1"):
        cursor.commit({orders: -1})
    for nonsense in [7, [orders], {orders: "1"}, {orders: True}]:
        with pytest.raises(TypeError, match="commit takes"):
            cursor.commit(nonsense)  # type: ignore[arg-type]
    assert client.positions([f"_sbp/cursors/{name}"])[f"_sbp/cursors/{name}"].latest == 0


@pytest.mark.provokes(1463, by="client")
def test_a_commit_beyond_the_end_is_refused(client: sbp.Client, streams: list[str], name: str) -> None:
    orders, payments = streams
    cursor = client.cursor(name, streams)
    with pytest.raises(
        sbp.OffsetOutOfRangeError, match=f"cursor {name} cannot stand at offset 11: .* ends at 10"
    ) as no:
        cursor.commit({payments: 3, orders: 11})
    assert (no.value.code, no.value.stream, no.value.offset) == (1463, orders, 11)
    assert (no.value.retriable, no.value.indeterminate) == (False, False)
    assert cursor.positions == {orders: 0, payments: 0}
    assert client.positions([f"_sbp/cursors/{name}"])[f"_sbp/cursors/{name}"].latest == 0, "nothing was stored"
    cursor.commit({orders: 10})
    client.append(orders, b"10")
    cursor.commit({orders: 11})
    with pytest.raises(sbp.OffsetOutOfRangeError):
        cursor.commit({orders: 12})
    assert client.cursor(name, streams).positions == {orders: 11, payments: 0}
    # Nor does one begin there, and be committed with the rest.
    with pytest.raises(sbp.OffsetOutOfRangeError, match="ends at 10") as no:
        client.cursor(f"{name}-2", [orders, payments], start=11)
    assert (no.value.stream, no.value.offset) == (payments, 11)
    assert client.cursor(f"{name}-2", [orders], start=11).positions == {orders: 11}


@pytest.mark.asyncio
async def test_a_commit_beyond_the_end_is_refused_for_asyncio(
    aclient: sbp.AsyncClient, streams: list[str], name: str
) -> None:
    orders, payments = streams
    cursor = await aclient.cursor(name, streams)
    commits: list[Any] = [{orders: 9}, {orders: 11}, {payments: 4}, {payments: 5, orders: 99}, {orders: 10}]
    outcomes = await asyncio.gather(*(cursor.commit(places) for places in commits), return_exceptions=True)
    refused = [isinstance(outcome, sbp.OffsetOutOfRangeError) for outcome in outcomes]
    assert refused == [False, True, False, True, False], "each for itself, whether they were stored together or not"
    assert cursor.positions == (await aclient.cursor(name, streams)).positions == {orders: 10, payments: 4}


def test_what_was_read_is_committed_without_a_question(proxied: tuple[sbp.Proxy, sbp.Client]) -> None:
    proxy, client = proxied
    client.append("orders", [b"more"])
    cursor = client.cursor("job", ["orders"])
    batches = list(cursor.read())
    assert cursor.reached == {"orders": 11}
    proxy.add("delay=1ms request FETCH")
    for batch in batches:
        cursor.commit(batch)
        cursor.commit({"orders": batch.base_offset})
    cursor.commit()
    assert proxy.rules[0].matched == 0, "no FETCH asks where the stream ends"
    client.append("orders", [b"more"] * 2)
    cursor.commit({"orders": 13})
    cursor.commit({"orders": 12})
    assert proxy.rules[0].matched == 1, "only a place that was not read is asked for, and once"


@pytest.mark.parametrize("fault", ["drop request FETCH", "cut request FETCH"])
def test_a_stream_that_cannot_be_asked_stops_no_commit(proxied: tuple[sbp.Proxy, sbp.Client], fault: str) -> None:
    proxy, client = proxied
    cursor = client.cursor("job", ["orders"])
    proxy.add(fault)
    cursor.commit({"orders": 10}, timeout=4)
    assert proxy.rules[0].fired > 0
    proxy.clear()
    assert client.cursor("job", ["orders"]).positions == {"orders": 10}


def test_a_stream_that_was_deleted_stops_no_commit(client: sbp.Client, streams: list[str], name: str) -> None:
    orders, payments = streams
    cursor = client.cursor(name, streams)
    client.delete_stream(orders)
    cursor.commit({orders: 7, payments: 3})
    assert client.cursor(name, [payments]).positions == {payments: 3}
    with pytest.raises(sbp.OffsetOutOfRangeError, match="ends at 10"):
        client.cursor(name, [payments]).commit({payments: 11})


def test_records_that_are_gone_are_told(client: sbp.Client, streams: list[str], name: str) -> None:
    orders = streams[0]
    cursor = client.cursor(name, [orders])
    client.trim(orders, 4)
    with pytest.raises(sbp.DataLossError):
        next(cursor.tail(timeout=20))
    assert cursor.positions == {orders: 0}


@pytest.fixture
def proxied() -> Iterator[tuple[sbp.Proxy, sbp.Client]]:
    """A proxy in front of a server of its own, and a client that goes through it; the stream has ten records."""
    with (
        sbp.Server() as server,
        sbp.Proxy(server) as proxy,
        sbp.connect(proxy.address, timeout=20) as client,
    ):
        client.create_stream("orders").append([b"%d" % n for n in range(10)])
        yield proxy, client


@pytest.mark.parametrize("rule", ["cut answer APPEND nth=1", "drop answer APPEND nth=1", "drop request APPEND nth=1"])
def test_a_lost_answer_is_resolved_by_reading_back(proxied: tuple[sbp.Proxy, sbp.Client], rule: str) -> None:
    proxy, client = proxied
    cursor = client.cursor("job", ["orders"])
    proxy.add(rule)
    cursor.commit({"orders": 7}, timeout=6)
    assert proxy.rules[0].fired == 1
    proxy.clear()
    assert client.positions(["_sbp/cursors/job"])["_sbp/cursors/job"].latest == 1, "stored once"
    assert client.cursor("job", ["orders"]).positions == {"orders": 7}


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_in_doubt_is_settled_by_the_next(proxied: tuple[sbp.Proxy, sbp.Client], arrives: bool) -> None:
    proxy, client = proxied
    client.create_stream("payments").append([b"%d" % n for n in range(10)])
    cursor = client.cursor("job", ["orders", "payments"])
    held = proxy.hold("request APPEND nth=1")
    with pytest.raises(sbp.IndeterminateError) as doubt:
        cursor.commit({"orders": 7}, timeout=2)
    assert isinstance(doubt.value, TimeoutError)
    assert cursor.positions == {"orders": 0, "payments": 0}
    frame = held.wait()
    proxy.clear()
    if arrives:
        frame.forward()
    else:
        frame.discard()
    cursor.commit({"payments": 3})
    expected = {"orders": 7 if arrives else 0, "payments": 3}
    assert cursor.positions == client.cursor("job", ["orders", "payments"]).positions == expected


RACER = """
import sys
import sbp_native as sbp

address, name, stream = sys.argv[1:]
with sbp.connect(address) as client:
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        cursor = client.cursor(name, [stream])
        place = cursor.positions[stream] + 1
        if place > 60:
            break
        try:
            cursor.commit({stream: place})
        except sbp.CursorTakenError:
            print("taken", flush=True)
        else:
            print(place, flush=True)
"""


def test_two_processes_never_commit_the_same_place(
    server: sbp.Server, client: sbp.Client, streams: list[str], name: str
) -> None:
    client.append(streams[0], [b"more"] * 50)
    command = [sys.executable, "-c", RACER, server.address, name, streams[0]]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [word for racer in racers for word in racer.communicate(timeout=60)[0].split()]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    committed = sorted(int(word) for word in said if word != "taken")
    assert committed == list(range(1, 61)), "each place once"
    assert client.cursor(name, [streams[0]]).positions == {streams[0]: 60}


def test_a_killed_holder_is_gone_on_from(server: sbp.Server, client: sbp.Client, streams: list[str], name: str) -> None:
    script = textwrap.dedent("""
        import os, signal, sys
        import sbp_native as sbp

        address, name, *streams = sys.argv[1:]
        with sbp.connect(address) as client:
            cursor = client.cursor(name, streams)
            for number, batch in enumerate(cursor):
                if number == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                cursor.commit(batch)
    """)
    done = subprocess.run([sys.executable, "-c", script, server.address, name, *streams], timeout=40, check=False)
    assert done.returncode == -9
    cursor = client.cursor(name, streams)
    assert sum(cursor.positions.values()) in (6 + 4, 6 + 6), "two batches are done"
    left = [value for _, value in values(cursor.read())]
    assert len(left) == 20 - sum(cursor.positions.values()), "and no other"


def test_a_fork_does_not_inherit_a_cursor(client: sbp.Client, streams: list[str], name: str) -> None:
    cursor = client.cursor(name, streams)
    if (child := os.fork()) == 0:
        status = 1
        try:
            cursor.commit()
        except sbp.ForkedClientError:
            status = 0
        finally:
            del cursor
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    cursor.commit({streams[0]: 5})
    assert client.cursor(name, streams).positions[streams[0]] == 5


@pytest.mark.asyncio
async def test_the_same_verbs_for_asyncio(aclient: sbp.AsyncClient, streams: list[str], name: str) -> None:
    orders, payments = streams
    cursor = await aclient.cursor(name, streams)
    assert (cursor.name, cursor.streams) == (name, (orders, payments))
    async for batch in cursor:
        await cursor.commit(batch)
        if cursor.reached == {orders: 10, payments: 10}:
            break
    assert cursor.positions == cursor.reached
    assert await cursor.lag() == {orders: 0, payments: 0}
    second = await aclient.cursor(name, streams)
    assert [batch async for batch in second.read()] == []
    await second.commit()
    with pytest.raises(sbp.CursorTakenError):
        await cursor.commit({orders: 1})
    with pytest.raises(sbp.CursorTakenError):
        cursor.tail()
    assert name in repr(cursor)


@pytest.mark.asyncio
async def test_commits_that_are_not_awaited_keep_their_order(
    aclient: sbp.AsyncClient, streams: list[str], name: str
) -> None:
    orders = streams[0]
    await aclient.append(orders, [b"more"] * 190)
    cursor = await aclient.cursor(name, [orders])
    await asyncio.gather(*(cursor.commit({orders: place}) for place in range(200)))
    assert cursor.positions == {orders: 199}
    assert (await aclient.cursor(name, [orders])).positions == {orders: 199}
    # One that is cancelled goes on.
    cursor.commit({orders: 3}).cancel()
    await cursor.commit({})
    assert cursor.positions == {orders: 3}


@pytest.mark.asyncio
async def test_a_step_that_was_cancelled_counts_as_not_handed_out(
    aclient: sbp.AsyncClient, streams: list[str], name: str
) -> None:
    orders = streams[0]
    cursor = await aclient.cursor(name, [orders], start="latest")
    tail = cursor.tail()
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await aclient.append(orders, b"10")
    assert cursor.reached == {orders: 10}
    assert (await anext(tail)).offsets == range(10, 11)
    assert cursor.reached == {orders: 11}


@pytest.mark.provokes(9019, by="client")
def test_a_place_in_one_stream_is_no_place_in_another_of_its_number() -> None:
    with (
        sbp.Server(durability="none") as old,
        sbp.Server(durability="none") as new,
        sbp.connect(old.address) as before,
        sbp.connect(new.address) as client,
    ):
        gone, stream = before.create_stream("orders"), client.create_stream("orders")
        assert (gone.id, gone.name) == (stream.id, stream.name)
        gone.append([b"1", b"2"])
        stream.append([b"a", b"b", b"c"])
        cursor = before.cursor("billing", ["orders"])
        cursor.commit({"orders": 2})
        # A copy of the old server's commits, put back beside streams that were made anew.
        kept = before.stream("_sbp/cursors/billing")
        commits = [value for batch in kept.read() for value in batch.values if value is not None]
        client.create_stream("_sbp/cursors/billing").append(commits)
        with pytest.raises(sbp.StreamReplacedError, match="billing") as caught:
            client.cursor("billing", ["orders"])
        assert (caught.value.code, caught.value.retriable, caught.value.indeterminate) == (9019, False, False)
        assert (caught.value.stream, caught.value.offset) == ("orders", 2)
        for identity in (gone.identity, stream.identity):
            assert str(identity) in str(caught.value)
