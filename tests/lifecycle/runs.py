"""Loops, signals, cancellation and garbage."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
from typing import Any

import sbp_native as sbp

from .support import KEPT, PATIENCE, append_here, cell, run, silent, unique, until


@cell
def loop_closed_with_operations_in_flight(address: str) -> None:
    """Their loop is closed; the next loop works with the same client, and nothing is kept."""
    with sbp.Proxy(address) as proxy:
        client: sbp.AsyncClient = sbp.aio.connect(proxy.address)

        async def start() -> None:
            stream = await client.create_stream(unique())
            with proxy.hold("answer APPEND") as held:
                KEPT.extend(stream.append(b"x") for _ in range(50))
                await asyncio.sleep(0)
                await asyncio.to_thread(held.wait)

        for _ in range(3):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(start())
            loop.close()
        assert len(KEPT) == 150
        KEPT.clear()
        gc.collect()

        async def again() -> None:
            assert await client.ping() > 0
            await client.close()

        run(again())
        append_here(proxy.address)


@cell
def loops_share_a_client(address: str) -> None:
    """One client on several loops, one after another and in threads at the same time."""
    client = sbp.aio.connect(address)
    name = unique()

    async def work(count: int) -> None:
        stream = await client.create_stream(name, exist_ok=True)
        await asyncio.gather(*(stream.append(b"x") for _ in range(count)))

    for _ in range(2):
        asyncio.run(work(20))
    threads = [threading.Thread(target=asyncio.run, args=(work(20),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with sbp.connect(address) as blocking:
        assert blocking.stream(name).positions().latest == 100

    async def close() -> None:
        await client.close()

    asyncio.run(close())


@cell
def ctrl_c_in_blocking_calls(address: str) -> None:
    """An append, a fetch, a tail and a ping that wait are interrupted in time, and the client goes on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with sbp.Proxy(address) as proxy, sbp.connect(proxy.address) as client:
        stream = client.create_stream(unique())
        stream.append(b"x")
        idle = client.create_stream(unique())
        for frames, call in (
            ("request APPEND", lambda: stream.append(b"y")),
            ("request FETCH", lambda: next(stream.read())),
            ("request FETCH", lambda: next(idle.tail())),
            ("request PING", client.ping),
        ):
            with proxy.hold(frames) as held:
                entered = threading.Event()

                def interrupt(held: Any = held, entered: threading.Event = entered) -> None:
                    KEPT.append(held.wait())
                    entered.wait()
                    os.kill(os.getpid(), signal.SIGINT)

                thread = threading.Thread(target=interrupt)
                thread.start()
                try:
                    entered.set()
                    call()
                except KeyboardInterrupt:
                    pass
                else:
                    raise AssertionError(f"{frames} was not interrupted")
                finally:
                    thread.join()
                    KEPT.clear()
        assert client.ping() > 0
        assert stream.append(b"z").base_offset in (1, 2)


@cell
def ctrl_c_ends_asyncio_run(address: str) -> None:
    """Ctrl-C cancels what waits; `async with` closes the client; the process ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with silent(address) as (proxy, held):

        def interrupt() -> None:
            KEPT.append(held.wait())
            os.kill(os.getpid(), signal.SIGINT)

        async def work() -> None:
            async with sbp.aio.connect(proxy.address) as client:
                stream = await client.create_stream(unique())
                await asyncio.gather(*(stream.append(b"x") for _ in range(20)))

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            asyncio.run(work())
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        finally:
            thread.join()
            KEPT.clear()
    append_here(address)


@cell
def a_handler_that_returns_changes_nothing(address: str) -> None:
    """A signal whose handler returns does not disturb a blocking call, which goes on to its answer."""
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    with silent(address) as (proxy, held), sbp.connect(proxy.address) as client:
        stream = client.create_stream(unique())

        def disturb() -> None:
            frame = held.wait()
            os.kill(os.getpid(), signal.SIGUSR1)
            until(lambda: seen)
            frame.forward()

        thread = threading.Thread(target=disturb)
        thread.start()
        assert stream.append(b"x").base_offset == 0
        thread.join()
        assert seen == [signal.SIGUSR1]


@cell
def closing_does_not_wait_for_ever(address: str) -> None:
    """A client is closed while an append has no answer: it gets one in five seconds or is in doubt."""
    with silent(address) as (proxy, held):
        client = sbp.connect(proxy.address, timeout=600)
        stream = client.create_stream(unique())
        outcomes: list[BaseException] = []

        def work() -> None:
            try:
                stream.append(b"x")
            except sbp.IndeterminateError as error:
                outcomes.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        frame = held.wait()
        client.close()
        thread.join(PATIENCE)
        assert len(outcomes) == 1
        del frame


@cell
def cancel_at_every_state(address: str) -> None:
    """Before it is handed over, on its way, answered but not delivered, done: the memory comes back each time."""

    async def work() -> None:
        with silent(address) as (proxy, held):
            async with sbp.aio.connect(proxy.address) as client:
                stream = await client.create_stream(unique())
                early = [stream.append(b"x") for _ in range(10)]
                assert all(operation.cancel() for operation in early)
                sent = [stream.append(b"x") for _ in range(10)]
                await asyncio.sleep(0)
                frames = [await asyncio.to_thread(held.wait)]
                assert all(operation.cancel() for operation in sent)
                answered = [stream.append(b"x") for _ in range(10)]
                await asyncio.sleep(0)
                del frames
                held.release()
                # The loop's thread waits here, outside the loop: answers arrive and nobody can deliver them.
                until(lambda: client.stats()["in_flight"] == 0)
                late = [operation.cancel() for operation in answered]
                assert all(late)
                outcomes = await asyncio.gather(*early, *sent, *answered, return_exceptions=True)
                assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
                done = stream.append(b"last")
                ack = await done
                assert not done.cancel()
                assert done.result() == ack
                assert client.stats()["in_flight"] == 0

    asyncio.run(work())


@cell
def garbage_in_any_order(address: str) -> None:
    """Clients, streams, batches, payloads and servers are dropped in any order; data that is left stays readable."""
    chance = random.Random(os.getpid())
    for _ in range(5):
        things: dict[str, Any] = {}
        things["server"] = sbp.Server(durability="none")
        things["proxy"] = sbp.Proxy(things["server"])
        things["client"] = sbp.connect(things["proxy"].address)
        things["stream"] = things["client"].create_stream("s")
        things["stream"].append(b"x" * 300_000)
        things["stream"].append([b"a", b"b"])
        things["batches"] = things["stream"].read()
        things["large"], things["small"] = next(things["batches"]), next(things["batches"])
        (payload,) = things["large"].payloads
        assert payload is not None
        things["payload"], things["view"] = payload, memoryview(payload)[100:200]
        del payload
        things["tail"] = things["stream"].tail()
        names = list(things)
        chance.shuffle(names)
        for name in names:
            del things[name]
            if chance.random() < 0.5:
                gc.collect()
            if "view" in things:
                assert bytes(things["view"]) == b"x" * 100
            if "small" in things:
                assert [record.value for record in things["small"].records()] == [b"a", b"b"]


@cell
def garbage_in_cycles(address: str) -> None:
    """What refers to itself through callbacks, tasks and attributes is collected."""
    import weakref

    class Holder:
        """Refers to what it holds, which refers back."""

        def __init__(self, **things: Any) -> None:
            self.me = self
            self.__dict__.update(things)

    async def work() -> weakref.ref[Holder]:
        async with sbp.aio.connect(address) as client:
            stream = await client.create_stream(unique())
            operation = stream.append(b"x")
            holder = Holder(client=client, stream=stream, operation=operation, tail=stream.tail())
            operation.add_done_callback(lambda _: holder)
            await operation
            return weakref.ref(holder)

    reference = asyncio.run(work())
    gc.collect()
    assert reference() is None
    with sbp.connect(address) as client:
        stream = client.create_stream(unique())
        stream.append(b"x")
        batch = next(stream.read())
        found = weakref.ref(Holder(client=client, stream=stream, batch=batch, payload=batch.payloads[0]))
        gc.collect()
        assert found() is None


@cell
def threads_come_and_go(address: str) -> None:
    """Threads use a client and end; none of them, and no descriptor, stays."""
    with sbp.connect(address) as client:
        stream = client.create_stream(unique())
        stream.append(b"x")
        before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            threads = [threading.Thread(target=stream.append, args=(b"x",)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # A thread that was joined may still be about to leave the kernel's list.
        until(lambda: (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))) == before)
        assert stream.positions().latest == 41
