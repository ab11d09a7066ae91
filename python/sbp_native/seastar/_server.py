"""A server of Seastar RPC whose verbs are Python functions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Self, TypeVar

from .._native import RpcCall, RpcServer, seastar_result
from ..errors import ClosedError

_Handler = TypeVar("_Handler", bound=Callable[..., Any])

logger = logging.getLogger("sbp_native.seastar")


class _Verb(NamedTuple):
    handler: Callable[..., Any]
    takes: str
    returns: str | None


class Caller:
    """Who calls, as :func:`~sbp_native.seastar.caller` tells a handler, for as long as the handler runs."""

    __slots__ = ("_call",)

    def __init__(self, call: RpcCall) -> None:
        self._call: RpcCall | None = call

    def _running(self) -> RpcCall:
        if self._call is None:
            raise RuntimeError("the handler has ended, and with it what is known of who called it")
        return self._call

    @property
    def client(self) -> str:
        """Where the client is, ``host:port``."""
        return self._running().client

    @property
    def isolation(self) -> bytes | None:
        """The client's isolation cookie; ``None`` where it gave none."""
        return self._running().isolation

    @property
    def verb(self) -> int:
        """The verb that is called."""
        return self._running().verb

    @property
    def time_left(self) -> float | None:
        """For how many seconds the client still waits; ``None`` where it does not say."""
        return self._running().time_left

    def __repr__(self) -> str:
        call = self._call
        return "<Caller, ended>" if call is None else f"<Caller {call.client}, verb {call.verb}>"


_CALLER: ContextVar[Caller] = ContextVar("sbp_native.seastar.caller")


def caller() -> Caller:
    """Who calls the handler that this runs in, or in a task of which this runs.

    Raises ``RuntimeError`` outside of a handler.
    """
    try:
        return _CALLER.get()
    except LookupError:
        raise RuntimeError("caller() tells the handler of a verb who calls, and this is none") from None


class Server:
    """Answers calls of Seastar RPC with handlers, in the event loop that it is entered in.

        server = seastar.Server("127.0.0.1:10000")

        @server.verb(2, "i32 i32", "i32")
        async def add(one: int, two: int) -> int:
            return one + two

        async with server:
            await server.wait_closed()

    A handler is a function or a coroutine function. What it raises is told to the client by the exception's text; a
    client that has stopped waiting is told nothing. An argument of type ``stream`` is an
    :class:`~sbp_native.seastar.AsyncRpcStream`. :func:`~sbp_native.seastar.caller` tells it who calls, and for how long
    the client waits.

    ``compression`` are the ways to compress that it knows. ``insecure_listen`` lets other machines connect, which can
    call everything.
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        compression: Sequence[str] = ("LZ4", "LZ4_FRAGMENTED"),
        insecure_listen: bool = False,
    ) -> None:
        self._listen = listen
        self._compression = list(compression)
        self._insecure_listen = insecure_listen
        self._verbs: dict[int, _Verb] = {}
        self._native: RpcServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._replies: list[tuple[RpcCall, bytes | str | None]] = []

    @property
    def address(self) -> str:
        """Where clients connect, ``host:port``, once it is entered."""
        if self._native is None:
            raise RuntimeError("the server does not run: enter it with `async with`")
        return self._native.address

    def verb(self, number: int, takes: str = "", returns: str | None = "") -> Callable[[_Handler], _Handler]:
        """Makes a function the handler of a verb; types as in :meth:`~sbp_native.seastar.Rpc.verb`.

        ``returns=None`` is a verb without reply.
        """
        for types in (takes, returns):
            if types is not None:
                _check(types)

        def register(handler: _Handler) -> _Handler:
            if number in self._verbs:
                raise ValueError(f"verb {number} has a handler already")
            self._verbs[number] = _Verb(handler, takes, returns)
            return handler

        return register

    async def __aenter__(self) -> Self:
        if self._native is not None:
            raise RuntimeError("the server runs already")
        self._native = RpcServer(self._listen, compression=self._compression, insecure_listen=self._insecure_listen)
        self._serving = asyncio.create_task(self._serve(self._native), name="sbp_native.seastar.Server")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def wait_closed(self) -> None:
        """Returns when the server was closed."""
        if self._serving is not None:
            await asyncio.wait([self._serving])

    async def close(self) -> None:
        """Accepts nobody more, cancels what handlers still do and waits for it, and ends all connections."""
        native, serving = self._native, self._serving
        if native is None or serving is None:
            return
        closing = native.close()
        running = [task for task in self._running if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._flush()
        await closing
        await asyncio.wait([serving])

    async def _serve(self, native: RpcServer) -> None:
        # Closed while calls are begun with, it has no next ones.
        with contextlib.suppress(ClosedError):
            while calls := await native.next_calls():
                for call in calls:
                    self._begin(call)
                del calls, call

    def _begin(self, call: RpcCall) -> None:
        verb = self._verbs.get(call.verb)
        if verb is None:
            self._reply(call, None)
            return
        who = Caller(call)
        # What the handler starts is told the same, and nobody else.
        before = _CALLER.set(who)
        try:
            result = verb.handler(*call.arguments(verb.takes))
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(self._finish(call, verb, result, who))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
                return
        except Exception as error:
            who._call = None
            self._failed(call, verb, error)
            return
        finally:
            _CALLER.reset(before)
        who._call = None
        self._succeeded(call, verb, result)

    async def _finish(self, call: RpcCall, verb: _Verb, result: Any, who: Caller) -> None:
        try:
            value = await result
        except asyncio.CancelledError:
            # The call has no reply, and ends here: this frame may live on in the traceback.
            del call
            raise
        except Exception as error:
            self._failed(call, verb, error)
            return
        finally:
            who._call = None
        self._succeeded(call, verb, value)

    def _succeeded(self, call: RpcCall, verb: _Verb, value: object) -> None:
        if verb.returns is None:
            return
        try:
            self._reply(call, seastar_result(value, verb.returns))
        except Exception as error:
            self._failed(call, verb, error)

    def _failed(self, call: RpcCall, verb: _Verb, error: Exception) -> None:
        logger.debug("the handler of verb %s has failed", call.verb, exc_info=error)
        if verb.returns is not None:
            self._reply(call, str(error) or type(error).__name__)

    def _reply(self, call: RpcCall, reply: bytes | str | None) -> None:
        # Replies of one turn of the loop leave together.
        if not self._replies:
            asyncio.get_running_loop().call_soon(self._flush)
        self._replies.append((call, reply))

    def _flush(self) -> None:
        replies, self._replies = self._replies, []
        if replies and self._native is not None:
            self._native.reply_all(replies)


def _check(types: str) -> None:
    """Raises for what is no list of types."""
    # A list of types, of other values than these, is none to complain about.
    with contextlib.suppress(TypeError):
        seastar_result((), types)
