"""A server that comes back without its data gives numbers and names anew: nobody takes another stream for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import sbp_native as sbp


class Rebuilt:
    """A server with the streams "a" and "b", which loses its data, and gets the same streams in the other order."""

    def __init__(self, on_exit: ExitStack) -> None:
        self._on_exit = on_exit
        self._server = on_exit.enter_context(sbp.Server(durability="none"))
        self.address = self._server.address
        self._fill("a", "b")

    def _fill(self, *names: str) -> None:
        with sbp.connect(self.address) as client:
            for name in names:
                client.create_stream(name).append([b"%s%d" % (name.encode(), n) for n in range(5)])

    def lose_data(self) -> None:
        """Another server at the same address."""
        self._server.close()
        self._server = self._on_exit.enter_context(sbp.Server(durability="none", listen=self.address))
        self._fill("b", "a")

    def values(self, name: str) -> list[bytes | None]:
        """What a stream holds, seen by a client that was not there before."""
        with sbp.connect(self.address) as client:
            return [value for batch in client.stream(name).read() for value in batch.values]


@pytest.fixture
def rebuilt() -> Iterator[Rebuilt]:
    with ExitStack() as on_exit:
        yield Rebuilt(on_exit)


@contextmanager
def replaced(stream: sbp.Stream | sbp.AsyncStream) -> Iterator[None]:
    """What is done with the stream is refused, and the error says which stream is meant."""
    with pytest.raises(sbp.StreamReplacedError) as caught:
        yield
    assert (caught.value.code, caught.value.retriable, caught.value.indeterminate) == (9019, False, False)
    assert str(stream.identity) in str(caught.value)


@pytest.mark.provokes(9019, by="server")
def test_what_was_made_before_is_refused(rebuilt: Rebuilt) -> None:
    with sbp.connect(rebuilt.address, timeout=20) as client:
        a, b = client.stream("a"), client.stream("b")
        cursor = client.cursor("job", ["a"])
        cursor.commit({"a": 3})
        before = b.append(b"before")
        rebuilt.lose_data()
        assert client.stream("b").id == a.id, "or there is nothing to see here"
        with replaced(a):
            a.append(b"wrong")
        for use in (lambda: list(a.read()), lambda: a.fetch(0), a.positions, lambda: a.writer().append(b"wrong")):
            with replaced(a):
                use()
        for place in (4, 5, 1_000):
            with replaced(a):
                cursor.commit({"a": place})
        # Names are whatever has them now.
        assert client.append("a", b"right").base_offset == 5
        assert client.stream("b").append(b"right").base_offset == before.base_offset
    assert rebuilt.values("a") == [b"a0", b"a1", b"a2", b"a3", b"a4", b"right"]
    assert rebuilt.values("b") == [b"b0", b"b1", b"b2", b"b3", b"b4", b"right"]


def test_the_first_to_notice_is_an_append(rebuilt: Rebuilt) -> None:
    # Nothing else has told the client that the server is another one.
    with sbp.connect(rebuilt.address, timeout=20) as client:
        a = client.stream("a")
        a.append(b"before")
        rebuilt.lose_data()
        with replaced(a):
            a.append(b"wrong")
        with replaced(a):
            client.append_all({a: [b"wrong"]})
    assert rebuilt.values("b") == [b"b0", b"b1", b"b2", b"b3", b"b4"]


def test_a_name_is_looked_up_again(rebuilt: Rebuilt) -> None:
    with sbp.connect(rebuilt.address, timeout=20) as client:
        client.append("a", b"before")
        rebuilt.lose_data()
        client.append("a", b"right")
    assert rebuilt.values("a")[-1] == b"right"
    assert rebuilt.values("b")[-1] == b"b4"


def test_a_server_that_comes_back_with_its_data_is_the_same(tmp_path: object) -> None:
    with sbp.Server(str(tmp_path)) as server:
        address = server.address
        client = sbp.connect(address, timeout=20)
        stream = client.create_stream("a")
        cursor = client.cursor("job", ["a"])
        stream.append(b"before")
    with sbp.Server(str(tmp_path), listen=address), client:
        assert stream.append(b"after").base_offset == 1
        assert [value for batch in stream.read() for value in batch.values] == [b"before", b"after"]
        cursor.commit({"a": 2})


@pytest.mark.asyncio
async def test_asyncio_asks_beside_its_calls(rebuilt: Rebuilt) -> None:
    async with sbp.aio.connect(rebuilt.address, timeout=20) as client:
        a = await client.stream("a")
        await a.append(b"before")
        await asyncio.to_thread(rebuilt.lose_data)
        # Reads ask first. Appends keep their order, so they do not wait for the answer: the next ones know.
        with replaced(a):
            async for _batch in a.read():
                pass
        with replaced(a):
            await a.append(b"wrong")
    assert await asyncio.to_thread(rebuilt.values, "b") == [b"b0", b"b1", b"b2", b"b3", b"b4"]
