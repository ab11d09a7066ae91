"""What the bridge promises beyond single calls: under asyncio and under uvloop alike."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import sbp_native as sbp

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def stream(aclient: sbp.AsyncClient, name: str) -> AsyncIterator[sbp.AsyncStream]:
    yield await aclient.create_stream(name)


def problems_of_this_loop() -> list[dict[str, object]]:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    return problems


async def until(condition: object, seconds: float = 20) -> None:
    """Waits until ``condition()`` holds."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def idle(client: sbp.AsyncClient) -> None:
    """Waits until no operation of this loop is on its way."""
    await until(lambda: client.stats()["operations"] == 0)


# Awaiting


async def test_many_operations_at_once(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    acks = await asyncio.gather(*(stream.append(b"%d" % n) for n in range(3_000)))
    assert [ack.base_offset for ack in acks] == list(range(3_000)), "stored in the order of the calls"
    await idle(aclient)


@pytest.mark.parametrize(("in_flight", "bound"), [(16, 0.12), (256, 0.02)])
async def test_a_wake_up_serves_many_operations(
    aclient: sbp.AsyncClient, stream: sbp.AsyncStream, in_flight: int, bound: float
) -> None:
    each = 4_096 // in_flight

    async def worker() -> None:
        for _ in range(each):
            await stream.append(b"x" * 64)

    before = aclient.stats()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    after = aclient.stats()
    completions = after["completions"] - before["completions"]
    assert completions == each * in_flight
    assert (after["wakeups"] - before["wakeups"]) / completions <= bound


async def test_what_has_arrived_meanwhile_is_one_wake_up(
    client: sbp.Client, aclient: sbp.AsyncClient, stream: sbp.AsyncStream
) -> None:
    await stream.append(b"connects")
    for _ in range(16):
        before = aclient.stats()
        operations = [stream.append(b"x" * 64) for _ in range(256)]
        await asyncio.sleep(0)  # hands them over
        deadline = time.monotonic() + 30
        # The loop stands still on purpose, however many reads the answers come in.
        while aclient.stats()["completions"] - before["completions"] < 256 and time.monotonic() < deadline:
            time.sleep(0.001)
        client.ping()  # by the thread that counts before it wakes the loop: it has done both
        await asyncio.gather(*operations)
        after = aclient.stats()
        assert after["completions"] - before["completions"] == 256
        # One for all; one more if the first answers came into the turn in which the calls were handed over.
        assert after["wakeups"] - before["wakeups"] <= 2


async def test_a_flood_of_completions_leaves_turns_to_others(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    loop = asyncio.get_running_loop()
    count = 5_000
    done = 0
    turns: list[int] = []

    def finished(_: object) -> None:
        nonlocal done
        done += 1

    def turn() -> None:
        turns.append(done)
        if done < count:
            loop.call_soon(turn)

    answers = aclient.stats()["answers"]
    operations = [stream.append(b"x") for _ in range(count)]
    for operation in operations:
        operation.add_done_callback(finished)
    await asyncio.sleep(0)
    deadline = time.monotonic() + 30
    while aclient.stats()["answers"] - answers < count and time.monotonic() < deadline:
        time.sleep(0.005)  # the loop stands still on purpose: completions pile up behind it
    turn()
    await asyncio.gather(*operations)
    steps = [after - before for before, after in itertools.pairwise(turns)]
    # A turn of the loop may contain two drains: a rest that was put off, and a new wake-up.
    assert max(steps) <= 2 * 1_024


async def test_a_timeout_around_a_bare_operation(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    async with asyncio.timeout(20):
        assert (await stream.append(b"x")).base_offset == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(stream.tail())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream.tail()), 0.05)
    assert (await asyncio.wait_for(stream.append(b"y"), 20)).base_offset == 1
    await idle(aclient)


async def test_a_task_group_ends_what_awaits_a_bare_operation(
    aclient: sbp.AsyncClient, stream: sbp.AsyncStream
) -> None:
    async def awaits(operation: sbp.Operation[sbp.Batch]) -> None:
        await operation

    async def fails() -> None:
        await aclient.stream("no such stream")

    waiting = anext(stream.tail())
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(awaits(waiting))
            group.create_task(fails())
    assert [type(error) for error in caught.value.exceptions] == [sbp.StreamNotFoundError]
    assert waiting.cancelled()
    waiting = anext(stream.tail())
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await waiting
    assert waiting.cancelled(), "also when the group's own body awaits it"
    await idle(aclient)


async def test_operations_as_they_are_completed(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    operations = [stream.append(b"x") for _ in range(20)]
    offsets = [(await next_done).base_offset for next_done in asyncio.as_completed(operations)]
    assert sorted(offsets) == list(range(20))


async def test_shield_lets_an_append_go_on(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    operation = stream.append(b"x")
    shielded = asyncio.shield(operation)
    shielded.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shielded
    assert (await operation).base_offset == 0


async def test_several_tasks_await_one_operation(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    operation = stream.append(b"x")

    async def awaits() -> sbp.Ack:
        return await operation

    acks = await asyncio.gather(*(awaits() for _ in range(10)))
    assert all(ack is acks[0] for ack in acks)


async def test_an_operation_of_another_loop_is_refused(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    # It ends when something is appended, so that the other loop finds it pending.
    operation = stream.fetch(0, min_bytes=1, max_wait=20)

    def elsewhere() -> None:
        async def main() -> None:
            with pytest.raises(RuntimeError, match="attached to a different loop"):
                await operation

        asyncio.run(main())

    await asyncio.to_thread(elsewhere)
    await stream.append(b"x")
    assert [batch.base_offset for batch in await operation] == [0]


async def test_results_inside_an_exception_handler(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    """The interpreter carries results differently while an exception is being handled."""
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        assert (await stream.append(b"x")).base_offset == 0
        assert [info.name for info in await aclient.list_streams()].count(stream.name) == 1
        assert set(await aclient.append_all({stream.name: b"y"})) == {stream.name}
        nothing: object = await aclient.delete_stream(stream.name)
        assert nothing is None


# Several loops


async def test_one_client_serves_several_loops(server: sbp.Server, name: str) -> None:
    client = await sbp.aio.connect(server.address)
    stream = await client.create_stream(name)

    def in_a_thread(number: int) -> list[int]:
        async def worker() -> list[int]:
            return [(await stream.append(b"%d" % number)).base_offset for _ in range(25)]

        async def main() -> list[int]:
            assert client.stats()["operations"] == 0, "each loop counts its own"
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(worker()) for _ in range(8)]
            await client.ping()
            return [offset for task in tasks for offset in task.result()]

        return asyncio.run(main())

    gathered = asyncio.gather(*(asyncio.to_thread(in_a_thread, n) for n in range(4)))
    own = [(await stream.append(b"here")).base_offset for _ in range(50)]
    offsets = [*own, *(offset for part in await gathered for offset in part)]
    assert sorted(offsets) == list(range(850))
    await client.close()


# Context


async def test_contexts_survive_direct_resumption(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    async def worker(value: str) -> None:
        token = variable.set(value)
        await stream.append(b"x")
        assert variable.get() == value
        variable.reset(token)
        await stream.append(b"x")
        assert variable.get() == "unset"

    await asyncio.gather(*(worker(f"{n}") for n in range(50)))
    operation = stream.append(b"x")
    variable.set("caller")
    operation.add_done_callback(lambda _: seen.append(variable.get()))
    variable.set("later")
    await operation
    await until(lambda: seen)
    assert seen == ["caller"], "a callback runs in the context it was added in"
    assert asyncio.current_task() is not None


# Failures


async def test_a_refused_append_that_nobody_asked_for_is_reported(
    aclient: sbp.AsyncClient, stream: sbp.AsyncStream
) -> None:
    problems = problems_of_this_loop()
    await aclient.delete_stream(stream.name)
    operation = stream.append(b"x")
    await until(operation.done)
    del operation
    gc.collect()
    assert [type(problem["exception"]) for problem in problems] == [sbp.StreamNotFoundError]


async def test_a_failure_that_was_seen_is_not_reported(aclient: sbp.AsyncClient) -> None:
    problems = problems_of_this_loop()
    seen = aclient.stream("no such stream")
    await asyncio.wait([seen])
    assert isinstance(seen.exception(), sbp.StreamNotFoundError)
    raised = aclient.stream("no such stream")
    await asyncio.wait([raised])
    with pytest.raises(sbp.StreamNotFoundError):
        raised.result()
    del seen, raised
    cancelled = aclient.stream("no such stream")
    cancelled.cancel()
    await idle(aclient)
    del cancelled
    gc.collect()
    assert problems == []


async def test_a_failed_operation_in_a_cycle_is_collected(aclient: sbp.AsyncClient) -> None:
    class Marker:
        pass

    async def fails() -> weakref.ref[Marker]:
        marker = Marker()
        operation = aclient.stream("no such stream")
        try:
            await operation
        except sbp.StreamNotFoundError as error:
            # The error's traceback holds this frame, the frame the operation, and the operation the error.
            marker.error = error  # type: ignore[attr-defined]
        return weakref.ref(marker)

    marker = await fails()
    await asyncio.sleep(0)  # out of the callback that the operation resumed this task from
    gc.collect()
    assert marker() is None


async def test_a_pending_operation_in_a_cycle_is_collected(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    class Marker:
        pass

    marker = Marker()
    operation = stream.append(b"x")
    operation.add_done_callback(lambda _done, marker=marker: None)  # type: ignore[misc]
    marker.operation = operation  # type: ignore[attr-defined]
    gone = weakref.ref(marker)
    del marker, operation
    await idle(aclient)
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


# Cancellation


async def test_cancelled_before_it_leaves(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    data = b"x" * 200_000
    operation = stream.append(data)
    assert operation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await operation
    await gives_back(aclient, data)


async def test_cancelled_on_its_way(server: sbp.Server, name: str) -> None:
    data = b"x" * 200_000
    with sbp.Proxy(server.address) as proxy:
        async with sbp.aio.connect(proxy.address) as client:
            stream = await client.create_stream(name)
            with proxy.hold("answer APPEND") as held:
                operation = stream.append(data)
                await asyncio.to_thread(held.wait)
                assert operation.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await operation
                assert client.stats()["operations"] == 1, "its memory is kept until the answer is here"
            proxy.cut()
            await gives_back(client, data)


async def test_cancelled_after_its_answer(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    data = b"x" * 200_000
    operation = stream.append(data)
    await until(operation.done)
    assert not operation.cancel()
    assert operation.result().base_offset == 0
    await gives_back(aclient, data)


async def test_cancelled_while_its_stream_is_looked_up(server: sbp.Server, name: str) -> None:
    problems = problems_of_this_loop()
    async with sbp.aio.connect(server.address) as client:
        await client.create_stream(name)
    async with sbp.aio.connect(server.address) as client:
        data = [b"x" * 200_000]
        operation = client.append_all({name: data})
        assert operation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await operation
        await idle(client)
        assert (await (await client.stream(name)).positions()).latest == 0, "nothing was sent"
    gc.collect()
    assert problems == []


async def test_cancelled_without_a_server(name: str) -> None:
    async with asyncio.timeout(30):
        client = sbp.aio.connect("127.0.0.1:1")
        operations: list[sbp.Operation[Any]] = [client.ping(), client.stream(name), client.append_all({name: b"x"})]
        for operation in operations:
            operation.cancel()
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3
        await idle(client)
        await client.close()


async def gives_back(client: sbp.AsyncClient, data: bytes) -> None:
    """Waits until the client holds neither operations nor the memory that was lent to it."""
    await idle(client)

    def lent() -> bool:
        return any(isinstance(holder, sbp.Operation) for holder in gc.get_referrers(data))

    await until(lambda: not lent())
    async with asyncio.timeout(20):
        while client.stats()["in_flight"] > 0:
            await client.ping()


async def test_a_cancelled_step_loses_no_batch(aclient: sbp.AsyncClient, stream: sbp.AsyncStream) -> None:
    """Steps are cancelled at every moment; what they would have returned comes with the next one."""
    count = 300
    tail = stream.tail(start="earliest")

    async def writes() -> None:
        for n in range(count):
            await stream.append(b"%d" % n)

    writer = asyncio.create_task(writes())
    got: list[int] = []
    spin = 0
    async with asyncio.timeout(40):
        while len(got) < count:
            step = anext(tail)
            spin = (spin + 1) % 7
            for _ in range(spin):
                await asyncio.sleep(0)
            if step.cancel():
                continue
            got += step.result().offsets
    await writer
    assert got == list(range(count))


# Loops that end


async def test_a_closed_loop_takes_its_operations_along(server: sbp.Server, name: str) -> None:
    async with sbp.aio.connect(server.address) as maker:
        await maker.create_stream(name)

    def in_a_thread() -> tuple[weakref.ref[asyncio.AbstractEventLoop], sbp.AsyncClient]:
        loop = asyncio.new_event_loop()

        async def main() -> sbp.AsyncClient:
            client = await sbp.aio.connect(server.address)
            stream = await client.stream(name)
            stream.append(b"x" * 100_000)
            anext(stream.tail())
            return client

        client = loop.run_until_complete(main())
        loop.close()
        return weakref.ref(loop), client

    loop, client = await asyncio.to_thread(in_a_thread)
    gc.collect()
    assert loop() is None, "nothing keeps a closed loop"
    assert await client.ping() > 0, "the client goes on, on another loop"
    await client.close()
