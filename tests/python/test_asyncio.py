"""The asynchronous face: operations as asyncio's own futures, and the bridge behind them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import re
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sbp_native as sbp
from sbp_native import _native

pytestmark = pytest.mark.asyncio

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PAGE = Path(__file__).parents[2] / "docs" / "index.md"


async def values(batches: sbp.AsyncBatches) -> list[bytes | None]:
    return [record.value async for batch in batches for record in batch.records()]


async def test_there_and_back(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    assert (await stream.append(b"one")).base_offset == 0
    assert (await stream.append([b"two", b"three"])).last_offset == 2
    assert (await stream.append(b"x" * 100_000)).base_offset == 3
    assert await values(stream.read(end=3)) == [b"one", b"two", b"three"]
    assert await values(stream.read(start=3)) == [b"x" * 100_000]
    assert (await stream.positions()).latest == 4
    assert (await aclient.positions([name]))[name].latest == 4
    assert (await aclient.stream(name)).id == stream.id
    assert name in [info.name for info in await aclient.list_streams()]
    assert await aclient.ping() > 0


async def test_arrow(aclient: sbp.AsyncClient, name: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64())])
    stream = await aclient.create_stream(name, schema=schema)
    rows = pa.table({"n": [1, 2, 3]}, schema=schema)
    await stream.append(rows)
    assert [batch.to_arrow() async for batch in stream.read()] == rows.to_batches()


async def test_append_all_is_one_frame(aclient: sbp.AsyncClient, name: str) -> None:
    names = [f"{name}/{n}" for n in range(5)]
    for each in names:
        await aclient.create_stream(each)
    before = aclient.stats()["calls"]
    acks = await aclient.append_all({each: [b"x", b"y"] for each in names})
    assert aclient.stats()["calls"] - before == 1
    assert [(ack.stream, ack.last_offset) for ack in acks.values()] == [(each, 1) for each in names]


async def test_awaiting_a_client_connects_it(server: sbp.Server) -> None:
    client = await sbp.aio.connect(server.address)
    assert await client.ping() > 0
    await client.close()
    with pytest.raises(sbp.ClosedError):
        await client.ping()


async def test_the_appends_of_one_tick_leave_together(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    await stream.append(b"warm")
    before = aclient.stats()
    acks = await asyncio.gather(*(stream.append(b"%d" % n) for n in range(256)))
    after = aclient.stats()
    assert [ack.base_offset for ack in acks] == list(range(1, 257))
    assert after["writes"] - before["writes"] <= 8


async def test_completions_come_in_batches(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    before = aclient.stats()

    async def worker() -> None:
        for _ in range(40):
            await stream.append(b"x")

    await asyncio.gather(*(worker() for _ in range(256)))
    after = aclient.stats()
    completions = after["completions"] - before["completions"]
    assert completions == 40 * 256
    assert (after["wakeups"] - before["wakeups"]) / completions <= 0.02
    assert (after["writes"] - before["writes"]) / completions < 0.05
    assert (await stream.positions()).latest == 40 * 256


async def test_operations_are_futures(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    operation = stream.append(b"x")
    assert asyncio.isfuture(operation)
    assert not operation.done()
    assert operation.get_loop() is asyncio.get_running_loop()
    with pytest.raises(asyncio.InvalidStateError):
        operation.result()
    with pytest.raises(asyncio.InvalidStateError):
        operation.exception()
    ack = await operation
    assert operation.done()
    assert not operation.cancelled()
    assert operation.result() is ack
    assert operation.exception() is None
    assert await operation is ack, "it can be awaited again"
    assert not operation.cancel()


async def test_gather_wait_and_shield(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    acks = await asyncio.gather(stream.append(b"a"), stream.append(b"b"))
    assert [ack.base_offset for ack in acks] == [0, 1]
    done, pending = await asyncio.wait([stream.append(b"c"), stream.append(b"d")])
    assert not pending
    assert sorted(each.result().base_offset for each in done) == [2, 3]
    assert (await asyncio.shield(stream.append(b"e"))).base_offset == 4
    assert (await asyncio.wait_for(stream.append(b"f"), 10)).base_offset == 5
    async with asyncio.timeout(10):
        assert (await stream.append(b"g")).base_offset == 6


async def test_gather_returns_exceptions(aclient: sbp.AsyncClient, name: str) -> None:
    await aclient.create_stream(name)
    found = await asyncio.gather(aclient.stream("no such stream"), aclient.ping(), return_exceptions=True)
    assert isinstance(found[0], sbp.StreamNotFoundError)
    assert isinstance(found[1], float)
    with pytest.raises(sbp.StreamNotFoundError):
        await asyncio.gather(aclient.ping(), aclient.stream("no such stream"))


async def test_a_task_group(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)

    async def append(data: bytes) -> sbp.Ack:
        return await stream.append(data)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(append(b"%d" % n)) for n in range(10)]
    assert sorted(task.result().base_offset for task in tasks) == list(range(10))

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(anext_of(stream.tail()))
            group.create_task(missing(aclient))
    assert caught.value.subgroup(sbp.StreamNotFoundError)


async def test_who_takes_a_call_as_it_is_is_who_the_page_names(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)

    async def awaited(call: Awaitable[sbp.Ack]) -> object:
        return await call

    takes: dict[str, Callable[[Any], Awaitable[Any]]] = {
        "await": awaited,
        "gather": asyncio.gather,
        "wait": lambda call: asyncio.wait([call]),
        "wait_for": lambda call: asyncio.wait_for(call, 30),
        "shield": asyncio.shield,
    }
    sentence = re.search(r"The calls are awaitables of their own.*?as\s+they are", PAGE.read_text(), re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[0])) == set(takes)
    for number, take in enumerate(takes.values()):
        call = stream.append(b"x")
        await take(call)
        assert (await call).base_offset == number


async def test_a_task_is_made_of_a_coroutine_that_awaits_the_call(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    operation = stream.append(b"0")
    async with asyncio.TaskGroup() as group:
        with pytest.raises(TypeError, match="coroutine"):
            group.create_task(operation)  # type: ignore[arg-type]

        async def append(value: bytes) -> sbp.Ack:
            return await stream.append(value)

        task = group.create_task(append(b"1"))
    assert (await operation).base_offset == 0, "it was begun when it was made, and goes on"
    assert task.result().base_offset == 1


async def anext_of(batches: sbp.AsyncBatches) -> sbp.Batch:
    return await anext(batches)


async def missing(client: sbp.AsyncClient) -> object:
    return await client.stream("no such stream")


async def test_cancelling_a_bare_operation(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    operation = anext(stream.tail())
    assert operation.cancel("enough")
    assert operation.cancelled()
    assert operation.done()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await operation
    with pytest.raises(asyncio.CancelledError):
        operation.exception()
    assert (await stream.append(b"x")).base_offset == 0, "the client goes on"


async def test_cancelling_a_task_that_waits(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    task = asyncio.create_task(anext_of(stream.tail()))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream.tail()), 0.05)


async def test_an_append_cancelled_before_its_answer_is_dropped_silently(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    operations = [stream.append(b"x") for _ in range(100)]
    for operation in operations:
        assert operation.cancel()
    assert (await stream.append(b"after")).base_offset <= 100
    bridge_idle = aclient.stats()["operations"]
    assert bridge_idle == 0
    assert problems == []


async def test_gathering_a_cancelled_operation(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    waiting = anext(stream.tail())
    asyncio.get_running_loop().call_later(0.05, waiting.cancel)
    found = await asyncio.gather(waiting, aclient.ping(), return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)


async def test_each_task_keeps_its_context(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")

    async def worker(number: int) -> None:
        variable.set(number)
        for _ in range(5):
            await stream.append(b"x")
            assert variable.get() == number

    await asyncio.gather(*(worker(n) for n in range(100)))


async def test_callbacks(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    context = contextvars.copy_context()
    context.run(variable.set, "set")
    seen: list[object] = []

    def record(operation: object) -> None:
        seen.append((operation, variable.get()))

    operation = stream.append(b"x")
    operation.add_done_callback(record, context=context)
    operation.add_done_callback(seen.append)
    assert operation.remove_done_callback(seen.append) == 1
    await operation
    await asyncio.sleep(0)
    assert seen == [(operation, "set")]
    operation.add_done_callback(record)
    assert len(seen) == 1, "never called at once"
    await asyncio.sleep(0)
    assert seen[1] == (operation, "unset")


async def test_a_callback_that_raises_is_reported_and_stops_nobody(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))

    def fail(operation: object) -> None:
        raise ZeroDivisionError

    operations = [stream.append(b"x") for _ in range(3)]
    for operation in operations:
        operation.add_done_callback(fail)
    await asyncio.gather(*operations)
    assert len(problems) == 3
    assert all(isinstance(problem["exception"], ZeroDivisionError) for problem in problems)


async def test_a_failure_that_nobody_asked_for_is_reported(aclient: sbp.AsyncClient, name: str) -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    operation = aclient.stream("no such stream")
    await asyncio.wait([operation])
    del operation
    gc.collect()
    assert [type(problem["exception"]) for problem in problems] == [sbp.StreamNotFoundError]


async def test_a_tail_over_streams(aclient: sbp.AsyncClient, name: str) -> None:
    one = await aclient.create_stream(f"{name}/1")
    two = await aclient.create_stream(f"{name}/2")
    got: dict[str, list[int]] = {one.name: [], two.name: []}

    async def reader() -> None:
        async with aclient.tail([one.name, two.name], start="earliest") as tail:
            async for batch in tail:
                got[batch.stream] += batch.offsets
                if sum(map(len, got.values())) == 60:
                    return

    task = asyncio.create_task(reader())
    for _ in range(10):
        await aclient.append_all({one.name: [b"a", b"b", b"c"], two.name: [b"d", b"e", b"f"]})
    await asyncio.wait_for(task, 20)
    assert got == {one.name: list(range(30)), two.name: list(range(30))}


async def test_many_tasks_and_loops_share_a_client_of_each_loop(server: sbp.Server, name: str) -> None:
    def in_a_thread() -> int:
        async def main() -> int:
            async with sbp.aio.connect(server.address) as client:
                stream = await client.create_stream(name, exist_ok=True)
                acks = await asyncio.gather(*(stream.append(b"x") for _ in range(50)))
                return len(acks)

        return asyncio.run(main())

    assert await asyncio.gather(*(asyncio.to_thread(in_a_thread) for _ in range(4))) == [50] * 4


async def test_outside_a_loop_there_is_an_error(server: sbp.Server) -> None:
    client = await sbp.aio.connect(server.address)

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            client.ping()

    await asyncio.to_thread(elsewhere)
    await client.close()


async def test_uvloop(server: sbp.Server, name: str, run_python: Run) -> None:
    pytest.importorskip("uvloop")
    script = """
        import asyncio, sys, uvloop
        import sbp_native as sbp

        async def main(address, name):
            async with sbp.aio.connect(address) as client:
                stream = await client.create_stream(name)
                acks = await asyncio.gather(*(stream.append(b"x") for _ in range(300)))
                assert [ack.base_offset for ack in acks] == list(range(300))
                return len([batch async for batch in stream.read()])

        print(uvloop.run(main(*sys.argv[1:])))
    """
    done = await asyncio.to_thread(run_python, script, server.address, name)
    assert done.stdout.strip() == "300"


async def test_the_operation_has_no_more_state_than_it_needs() -> None:
    for attribute in ("__await__", "__iter__", "__next__", "send", "add_done_callback", "get_loop"):
        assert hasattr(_native.Operation, attribute)


async def test_closing_a_tail_ends_a_step_that_waits(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    tail = stream.tail()
    asyncio.get_running_loop().call_later(0.1, tail.close)
    assert [batch async for batch in tail] == []


async def test_tails_that_are_cancelled_leave_nothing_at_the_server(server: sbp.Server, name: str) -> None:
    """A server lets 256 FETCHes of a connection wait, those of tails for 10 s."""
    async with sbp.aio.connect(server.address) as client:
        stream = await client.create_stream(name)
        refused = server.stats()["refusals"]

        async def follow() -> None:
            async with stream.tail() as tail:
                assert [batch async for batch in tail] == []

        async def requests(wanted: int) -> None:
            """Waits, for less than a tail's FETCH does, until so many requests are with the server."""
            async with asyncio.timeout(6):
                while client.stats()["in_flight"] != wanted:
                    await client.ping()

        for _ in range(4):
            followers = [asyncio.create_task(follow()) for _ in range(80)]
            await requests(80)
            for follower in followers:
                follower.cancel()
            outcomes = await asyncio.gather(*followers, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
            await requests(0)
        assert server.stats()["refusals"] == refused


async def test_nothing_is_kept_when_it_is_over(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    data = bytes(100_000)
    held = sys.getrefcount(data)
    await asyncio.gather(*(stream.append(data) for _ in range(20)))
    for _ in range(100):
        # Memory that was lent to the I/O thread comes back with one of the next completions.
        await aclient.ping()
        if sys.getrefcount(data) == held:
            break
    assert sys.getrefcount(data) == held
    await asyncio.sleep(0)  # out of the callback that the last operation resumed this task from
    gc.collect()
    alive = [found for found in gc.get_objects() if isinstance(found, sbp.Operation)]
    assert alive == []


async def test_a_loop_goes_away_with_what_waited_on_it(server: sbp.Server, name: str) -> None:
    def in_a_thread() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()

        async def main() -> list[object]:
            client = await sbp.aio.connect(server.address)
            stream = await client.create_stream(name, exist_ok=True)
            return [anext(stream.tail()) for _ in range(3)]

        waiting = loop.run_until_complete(main())
        loop.close()
        del waiting
        return weakref.ref(loop)

    first = await asyncio.to_thread(in_a_thread)
    await asyncio.to_thread(in_a_thread)
    gc.collect()
    assert first() is None, "operations that nobody can resume keep their loop"
