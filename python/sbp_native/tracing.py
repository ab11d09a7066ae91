"""Spans of OpenTelemetry for the calls of a client, by ``opentelemetry-api``: ``sbp-native[opentelemetry]`` brings it.

    import sbp_native as sbp
    from sbp_native import tracing

    with tracing.traced(sbp.connect(), propagate=True) as client:
        client.append("orders", b"first")                 # a span, and its context in the record's headers
        for batch in client.read("orders"):               # a span for each batch, linked to those of its records
            for record in batch.records():
                with tracing.processing(record, batch.stream):
                    ...

Spans and their attributes are those of the semantic conventions for messaging: ``send`` and ``create`` for records that
leave, ``receive`` for batches that arrive, ``settle`` for commits of cursors, and a span with neither for other calls.
A client that is not given to ``traced`` is as it was: it imports, allocates and asks nothing for this.

No call fails because its span could not be made, ended or written into headers; the logger ``sbp_native.tracing`` says
so.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from ._native import AsyncClient, AsyncCursor, Client, Cursor, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

    from ._native import Batch, Record

__all__ = ["context_of", "link_of", "processing", "traced"]

_Client = TypeVar("_Client", Client, AsyncClient)

_log = logging.getLogger(__name__)
_NOT_TOLD = "a call is not told of as it should be"

#: Links of one span; exporters keep no more.
_MOST_LINKS = 128
#: What is no call to a server, or ends a client.
_LOCAL = frozenset({"stats", "stream_of", "close"})


def traced(client: _Client, *, propagate: bool = False, tracer_provider: TracerProvider | None = None) -> _Client:
    """The client with a span for each of its calls, and for those of the streams, writers, readers and cursors that it
    gives. It has all methods of the client; an object that it gives can be given back to it.

    With ``propagate`` the context of a span goes into the headers of the records that it sends (``traceparent``, or
    what ``OTEL_PROPAGATORS`` says), unless they have one already; and spans of batches that arrive are linked to the
    contexts in their records. Rows of streams with a schema have no headers, and carry none.

    A writer gathers records, so that its ``append`` has a span (``create``) only with ``propagate``. A step of a reader
    or a tail has one when it gave a batch or failed, not when there was nothing within its ``timeout``.

    ``tracer_provider`` is where spans go; ``None``: to the global one. Raises ``ImportError`` without
    ``opentelemetry-api``.
    """
    return cast("_Client", _wrapped(client, _Tracing(client.servers, propagate, tracer_provider)))


def context_of(record: Record) -> Context:
    """The context that a record's headers carry, as a parent for spans; an empty one if they carry none."""
    from opentelemetry import propagate
    from opentelemetry.context import Context

    return propagate.extract(_carrier(record.headers), context=Context())


def link_of(record: Record) -> Link | None:
    """A link to the span that sent a record; ``None`` if its headers tell of none."""
    return _link(record.headers)


@contextlib.contextmanager
def processing(record: Record, stream: str = "", *, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """A span (``process``) around the work on one record, linked to the span that sent it.

    ``stream`` is the name of the stream that the record is of; a ``Record`` does not know it.
    """
    tracing = _Tracing("", False, tracer_provider)
    link = None
    with _only_logged():
        link = link_of(record)
    span = tracing.begin("process", "process", stream, {"messaging.sbp.offset": record.offset}, [link] if link else [])
    with tracing.trace.use_span(span, end_on_exit=True, record_exception=True, set_status_on_exception=True):
        yield span


@contextlib.contextmanager
def _only_logged() -> Iterator[None]:
    """Nothing that goes wrong with a span, in a propagator or a processor of spans, is the affair of the program."""
    try:
        yield
    except Exception:
        _log.warning(_NOT_TOLD, exc_info=True)


def _carrier(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in headers if value is not None}


def _link(headers: Iterable[tuple[str, bytes | None]]) -> Link | None:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context

    context = propagate.extract(_carrier(headers), context=Context())
    creator = trace.get_current_span(context).get_span_context()
    return trace.Link(creator) if creator.is_valid else None


def _links(batch: Batch) -> list[Link]:
    """The spans that sent the records of a batch, each once."""
    try:
        headers = batch.headers
    except TypeError:  # rows
        return []
    found: dict[int, Link] = {}
    for link in filter(None, map(_link, filter(None, headers))):
        found.setdefault(link.context.span_id, link)
        if len(found) == _MOST_LINKS:
            break
    return list(found.values())


class _WherePossible(list[tuple[str, bytes]]):
    """Headers that are left out where records cannot have any."""

    _is_optional = True


class _Tracing:
    """How the calls of one client are told."""

    def __init__(self, servers: str, propagate: bool, provider: TracerProvider | None) -> None:
        try:
            from opentelemetry import propagate as propagation
            from opentelemetry import trace
        except ImportError as error:
            raise ImportError("spans need opentelemetry-api: pip install 'sbp-native[opentelemetry]'") from error
        from ._native import __version__

        self.trace = trace
        self.propagate = propagate
        self._inject = propagation.inject
        self._tracer = trace.get_tracer("sbp_native", __version__, tracer_provider=provider)
        self._attributes: dict[str, Any] = {"messaging.system": "sbp"}
        host, _, port = servers.rpartition("//")[2].rpartition(":")
        if port.isdigit() and "," not in servers:
            self._attributes |= {"server.address": host.strip("[]"), "server.port": int(port)}

    def begin(
        self,
        name: str,
        kind: str | None,
        destination: str | None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
        start: int | None = None,
        creates: bool = False,
    ) -> Span:
        """A span that has begun, or one that records nothing if it could not be made. ``kind`` is the type of the
        operation in the words of the conventions; ``creates`` says that its context goes into records.
        """
        try:
            return self._begin(name, kind, destination, attributes, links, start, creates)
        except Exception:
            _log.warning(_NOT_TOLD, exc_info=True)
            return self.trace.INVALID_SPAN

    def _begin(
        self,
        name: str,
        kind: str | None,
        destination: str | None,
        attributes: Mapping[str, Any] | None,
        links: Sequence[Link],
        start: int | None,
        creates: bool,
    ) -> Span:
        kinds = self.trace.SpanKind
        all_attributes = {**self._attributes, "messaging.operation.name": name, **(attributes or {})}
        if kind is not None:
            all_attributes["messaging.operation.type"] = kind
        if destination:
            all_attributes["messaging.destination.name"] = destination
        return self._tracer.start_span(
            f"{name} {destination}" if destination else name,
            kind=kinds.PRODUCER if creates else kinds.CONSUMER if kind == "process" else kinds.CLIENT,
            attributes=all_attributes,
            links=links,
            start_time=start,
        )

    def end(self, span: Span, error: BaseException | None, result: object = None) -> None:
        """Ends a span with what came of it."""
        with _only_logged():
            if error is not None:
                span.set_attribute("error.type", type(error).__qualname__)
                span.record_exception(error)
                span.set_status(self.trace.StatusCode.ERROR, str(error))
            elif (offset := getattr(result, "base_offset", None)) is not None:
                span.set_attribute("messaging.sbp.offset", offset)
        with _only_logged():
            span.end()

    def call(self, span: Span, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls, and ends the span with the call or, where that is awaited, with its operation."""
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.end(span, error)
            raise
        if isinstance(result, Operation):
            result.add_done_callback(lambda operation: self._done(span, operation))
            return result
        if isinstance(result, Coroutine):
            return self._awaited(span, result)
        self.end(span, None, result)
        return result

    async def _awaited(self, span: Span, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            result = await coroutine
        except BaseException as error:
            self.end(span, error)
            raise
        self.end(span, None, result)
        return result

    def _done(self, span: Span, operation: Operation[Any]) -> None:
        if operation.cancelled():
            with _only_logged():
                span.set_attribute("error.type", "CancelledError")
            self.end(span, None)
        elif (error := operation._failure()) is not None:
            self.end(span, error)
        else:
            self.end(span, None, operation.result())

    def with_context(self, span: Span, data: object, headers: Any, *, every: bool = False) -> Any:
        """The headers with the context of a span, where the records can have some.

        ``every``: the call takes headers that are those of every record of it.
        """
        if not self.propagate:
            return headers
        carrier: dict[str, str] = {}
        with _only_logged():
            self._inject(carrier, context=self.trace.set_span_in_context(span))
        if not carrier:
            return headers
        context = [(name, value.encode()) for name, value in carrier.items()]
        if every or hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__"):
            # Else the call says which records can have none.
            return _WherePossible(context) if headers is None else _joined(headers, context)
        if not isinstance(data, (list, tuple)):
            return _joined(headers, context)
        if headers is None:
            return [context] * len(data)
        # Else the call says what it should be.
        return [_joined(one, context) for one in headers] if isinstance(headers, (list, tuple)) else headers

    def received(self, name: str, group: str | None, batch: Batch, start: int) -> None:
        """A span for a batch that has arrived. The batch is the program's, whatever goes wrong here."""
        links: list[Link] = []
        if self.propagate:
            with _only_logged():
                links = _links(batch)
        attributes: dict[str, Any] = {
            "messaging.batch.message_count": len(batch),
            "messaging.sbp.offset": batch.base_offset,
        }
        if group:
            attributes["messaging.consumer.group.name"] = group
        self.end(self.begin(name, "receive", batch.stream, attributes, links, start), None)


def _count(data: Any) -> dict[str, int]:
    return {"messaging.batch.message_count": len(data)} if isinstance(data, (list, tuple)) else {}


def _joined(headers: Any, context: list[tuple[str, bytes]]) -> Any:
    """The headers of one record with a context, unless they have one; what is no headers, as it is."""
    if headers is None:
        return context
    try:
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        names = {name for name, _ in pairs}
    except Exception:  # The call says what they should be.
        return headers
    # Baggage is no context of a span: a record's own stays beside the span that sends it.
    if any(name in names for name, _ in context if name != "baggage"):
        return pairs
    return [*pairs, *(pair for pair in context if pair[0] not in names)]


#: The types of operations that have one, by method.
_TYPES = {"append": "send", "try_append": "send", "append_all": "send", "fetch": "receive", "commit": "settle"}
#: What sends records.
_APPENDS = frozenset({"append", "try_append", "append_all"})
#: What gives an object whose calls have spans too.
_GIVES = frozenset({"create_stream", "stream", "keyed", "cursor"})
#: The arguments that name streams, where they are given by name.
_NAMES = ("stream", "key", "name", "streams")


class _Traced:
    """A client, stream, cursor or set of streams whose calls have spans."""

    _local = _LOCAL

    def __init__(self, inner: Any, tracing: _Tracing) -> None:
        self._inner = inner
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        # Those of this object are asked for before it is made, when it is copied.
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._inner, name)
        if name in self._local or not callable(found):
            return found
        return lambda *args, **kwargs: self._call(
            name, found, tuple(map(_plain, args)), {key: _plain(value) for key, value in kwargs.items()}
        )

    def _call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in {"read", "tail"}:
            start = time.time_ns()
            try:
                batches = function(*args, **kwargs)
            except Exception as error:
                destination = self._destination(name, args, kwargs)
                self._tracing.end(self._tracing.begin(name, "receive", destination, start=start), error)
                raise
            return _Batches(batches, self._tracing, name, self._group())
        if name == "writer":
            return _Writer(function(*args, **kwargs), self._tracing)
        attributes: dict[str, Any] = {}
        if (group := self._group()) is not None:
            attributes["messaging.consumer.group.name"] = group
        if has_records := name in _APPENDS:
            data = kwargs.get("data", kwargs.get("value", args[-1] if args else None))
            attributes |= _count(data)
        destination = self._destination(name, args, kwargs)
        creates = has_records and self._tracing.propagate
        span = self._tracing.begin(name, _TYPES.get(name), destination, attributes, creates=creates)
        if has_records:
            every = name == "append_all"
            kwargs["headers"] = self._tracing.with_context(span, data, kwargs.get("headers"), every=every)
        result = self._tracing.call(span, function, *args, **kwargs)
        return _wrapped(result, self._tracing) if name in _GIVES else result

    def _destination(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if not isinstance(self._inner, (Client, AsyncClient)):
            return None if self._group() else cast("str", self._inner.name)
        if name == "cursor":
            return None
        given = args[0] if args else next((kwargs[key] for key in _NAMES if key in kwargs), None)
        if isinstance(given, (list, tuple)) and len(given) == 1:
            (given,) = given
        return given if isinstance(given, str) else getattr(given, "name", None)

    def _group(self) -> str | None:
        """The name of a cursor."""
        return self._inner.name if isinstance(self._inner, (Cursor, AsyncCursor)) else None

    def __iter__(self) -> Any:
        if self._group() is None:
            return iter(self._inner)
        return self.tail()

    def __aiter__(self) -> Any:
        return self.tail()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._inner.__exit__(*exception)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._inner.__aexit__(*exception)

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._inner.__await__()
        return self

    def __repr__(self) -> str:
        return f"<traced {self._inner!r}>"


class _Writer(_Traced):
    """A writer whose records carry contexts, and whose flushes have spans."""

    _local = frozenset[str]()

    def _call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tracing = self._tracing
        if name != "append":
            span = tracing.begin(name, "send" if name in {"flush", "close"} else None, self._stream())
            return tracing.call(span, function, *args, **kwargs)
        if not tracing.propagate:
            return function(*args, **kwargs)
        data = kwargs.get("value", args[-1] if args else None)
        span = tracing.begin(name, "create", self._stream(), _count(data), creates=True)
        kwargs["headers"] = tracing.with_context(span, data, kwargs.get("headers"))
        return tracing.call(span, function, *args, **kwargs)

    def _stream(self) -> str:
        owner = getattr(self._inner, "_owner", None)
        return cast("str", self._inner.stream if owner is None else owner.name)

    def __exit__(self, *exception: object) -> None:
        span = self._tracing.begin("close", "send", self._stream())
        self._tracing.call(span, self._inner.__exit__, *exception)

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class _Batches:
    """Batches, each with a span."""

    def __init__(self, inner: Any, tracing: _Tracing, name: str, group: str | None) -> None:
        self._inner = inner
        self._tracing = tracing
        self._name = name
        self._group = group

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        start = time.time_ns()
        try:
            batch = next(self._inner)
        except Exception as error:
            self._failed(error, start)
            raise
        self._tracing.received(self._name, self._group, batch, start)
        return cast("Batch", batch)

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Operation[Batch]:
        start = time.time_ns()
        operation: Operation[Batch] = self._inner.__anext__()
        operation.add_done_callback(lambda operation: self._done(operation, start))
        return operation

    def _done(self, operation: Operation[Batch], start: int) -> None:
        if operation.cancelled():
            return
        if (error := operation._failure()) is not None:
            self._failed(error, start)
        else:
            self._tracing.received(self._name, self._group, operation.result(), start)

    def _failed(self, error: BaseException, start: int) -> None:
        """A step that gave nothing within its time, or at the end, is no failure."""
        if not isinstance(error, (StopIteration, StopAsyncIteration, TimeoutError)):
            self._tracing.end(self._tracing.begin(self._name, "receive", None, start=start), error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__arrow_c_stream__":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._inner.close()


class _Giving:
    """An operation whose result has calls of its own."""

    def __init__(self, operation: Operation[Any], tracing: _Tracing) -> None:
        self._operation = operation
        self._tracing = tracing

    def __await__(self) -> Generator[Any, None, Any]:
        result = yield from self._operation.__await__()
        return _wrapped(result, self._tracing)

    def cancel(self, msg: object | None = None) -> bool:
        return self._operation.cancel(msg)


def _wrapped(value: Any, tracing: _Tracing) -> Any:
    return (_Giving if isinstance(value, Operation) else _Traced)(value, tracing)


def _plain(given: Any) -> Any:
    """An argument of a call, without what is around objects of a client."""
    if isinstance(given, _Traced):
        return given._inner
    if isinstance(given, dict):
        return {_plain(key): value for key, value in given.items()}
    if isinstance(given, (list, tuple)) and any(isinstance(one, _Traced) for one in given):
        return [_plain(one) for one in given]
    return given
