"""Spans of OpenTelemetry for the calls of a client, and their contexts in the headers of records."""

from __future__ import annotations

import array
import asyncio
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import sbp_native as sbp
from sbp_native import tracing

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


class Spans:
    """What was told."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def take(self) -> list[ReadableSpan]:
        """The spans that have ended since it was asked last."""
        told = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return told

    def one(self) -> ReadableSpan:
        (span,) = self.take()
        return span


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


@pytest.fixture
def client(server: sbp.Server, spans: Spans) -> Iterator[sbp.Client]:
    with tracing.traced(sbp.connect(server.address), propagate=True, tracer_provider=spans.provider) as client:
        yield client


def test_an_append_and_what_reads_it_are_linked(
    client: sbp.Client, server: sbp.Server, spans: Spans, name: str
) -> None:
    stream = client.create_stream(name)
    made = spans.one()
    assert (made.name, made.kind) == (f"create_stream {name}", SpanKind.CLIENT)
    host, port = server.address.split(":")
    everywhere: dict[str, object] = {"messaging.system": "sbp", "messaging.destination.name": name}
    everywhere |= {"server.address": host, "server.port": int(port)}
    assert of(made) == {**everywhere, "messaging.operation.name": "create_stream"}

    ack = stream.append(b"first", headers={"source": b"shop"})
    sent = spans.one()
    assert (sent.name, sent.kind) == (f"append {name}", SpanKind.PRODUCER)
    assert of(sent) == {
        **everywhere,
        "messaging.operation.name": "append",
        "messaging.operation.type": "send",
        "messaging.sbp.offset": ack.base_offset,
    }
    client.append(stream, [b"second", b"third"], headers=[{"n": b"2"}, None])
    many = spans.one()
    assert of(many)["messaging.batch.message_count"] == 2

    batches = list(client.read(name))
    received = spans.take()
    assert [(span.name, span.kind) for span in received] == [(f"read {name}", SpanKind.CLIENT)] * len(batches)
    assert sum(of(span)["messaging.batch.message_count"] for span in received) == 3
    assert [link for span in received for link in linked(span)] == [number(sent), number(many)]
    records = [record for batch in batches for record in batch.records()]
    assert [record.headers[0] for record in records[:2]] == [("source", b"shop"), ("n", b"2")]
    assert [[key for key, _ in record.headers] for record in records][2] == ["traceparent"]

    with tracing.processing(records[0], name, tracer_provider=spans.provider) as working:
        assert trace.get_current_span() is working
        client.ping()
    inner, outer = spans.take()
    assert (outer.name, outer.kind, linked(outer)) == (f"process {name}", SpanKind.CONSUMER, [number(sent)])
    assert inner.parent is not None
    assert (inner.name, inner.parent.span_id) == ("ping", number(outer))
    context = trace.get_current_span(tracing.context_of(records[0])).get_span_context()
    assert context.span_id == number(sent)


def test_a_context_that_is_there_is_kept(client: sbp.Client, spans: Spans, name: str) -> None:
    stream = client.create_stream(name)
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    stream.append(b"x", headers=[("traceparent", given.encode())])
    stream.append([b"y", b"z"], headers=[{"traceparent": b"nonsense"}, None])
    first, second, third = (record for batch in stream.read() for record in batch.records())
    assert first.headers == [("traceparent", given.encode())]
    link = tracing.link_of(first)
    assert link is not None
    assert link.context.span_id == int("b" * 16, 16)
    assert second.headers == [("traceparent", b"nonsense")]
    assert tracing.link_of(second) is None
    assert tracing.link_of(third) is not None


def test_without_being_asked_nothing_is_written(server: sbp.Server, spans: Spans, name: str) -> None:
    with tracing.traced(sbp.connect(server.address), tracer_provider=spans.provider) as client:
        stream = client.create_stream(name)
        stream.append(b"x")
        assert [of(span)["messaging.operation.name"] for span in spans.take()] == ["create_stream", "append"]
        (record,) = (record for batch in stream.read() for record in batch.records())
        assert record.headers == []
        assert not spans.one().links
        with stream.writer() as writer:
            writer.append(b"y")
        assert [span.name for span in spans.take()] == [f"close {name}"]


def test_all_records_of_a_call_carry_its_context(client: sbp.Client, spans: Spans, name: str) -> None:
    one, other = client.create_stream(f"{name}-one"), client.create_stream(f"{name}-other")
    typed = client.create_stream(f"{name}-typed", schema=pa.schema([("n", pa.int64())]))
    rows = pa.record_batch({"n": pa.array([1, 2])})
    spans.take()
    client.append_all({one: [b"a", b"b"], other.name: b"c", typed: rows})
    together = spans.one()
    assert (together.name, together.kind) == ("append_all", SpanKind.PRODUCER)
    client.append_all({one: b"d"}, headers={"source": b"shop"})
    own = spans.one()
    records = [record for batch in client.read([one, other]) for record in batch.records()]
    found = [tracing.link_of(record) for record in records]
    assert sorted(link.context.span_id for link in found if link) == sorted([number(together)] * 3 + [number(own)])
    assert [key for record in records for key, _ in record.headers if record.value == b"d"] == ["source", "traceparent"]
    (batch,) = typed.read()
    assert pa.table(batch)["n"].to_pylist() == [1, 2]
    spans.take()
    with pytest.raises(TypeError, match="no headers: leave out headers="):
        client.append_all({typed: rows}, headers={"source": b"shop"})
    assert of(spans.one())["error.type"] == "TypeError"


def test_rows_of_a_stream_without_a_schema_carry_the_context(client: sbp.Client, spans: Spans, name: str) -> None:
    stream = client.create_stream(name)
    spans.take()
    given = f"00-{'a' * 32}-{'b' * 16}-01".encode()
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([None, [("traceparent", given)], [("source", b"shop")]], kind)
    stream.append(pa.table({"value": pa.array([b"a", b"b", b"c"], pa.binary()), "headers": headers}))
    sent = spans.one()
    assert sent.kind is SpanKind.PRODUCER
    records = [record for batch in stream.read() for record in batch.records()]
    links = [tracing.link_of(record) for record in records]
    assert [link.context.span_id for link in links if link] == [number(sent), int("b" * 16, 16), number(sent)]
    assert [[key for key, _ in record.headers] for record in records][1:] == [
        ["traceparent"],
        ["source", "traceparent"],
    ]
    keyed = client.keyed(f"{name}-keyed", 2)
    spans.take()
    keyed.append_all([("k", b"v"), ("l", b"w")])
    many = spans.one()
    for record in (record for batch in client.read(keyed.streams) for record in batch.records()):
        link = tracing.link_of(record)
        assert link is not None
        assert link.context.span_id == number(many)


def test_rows_of_a_stream_with_a_schema_carry_nothing(client: sbp.Client, spans: Spans, name: str) -> None:
    schema = pa.schema([("n", pa.int64())])
    stream = client.create_stream(name, schema=schema)
    stream.append(pa.record_batch([pa.array([1, 2])], schema=schema))
    assert pa.table(stream.read()).num_rows == 2
    (batch,) = stream.read()
    assert len(batch) == 2
    assert all(span.status.status_code is StatusCode.UNSET for span in spans.take())


def test_errors_are_told(client: sbp.Client, spans: Spans, name: str) -> None:
    stream = client.create_stream(name)
    spans.take()
    with pytest.raises(sbp.PreconditionFailedError):
        stream.append(b"x", expected_offset=7)
    span = spans.one()
    assert of(span)["error.type"] == "PreconditionFailedError"
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]
    with pytest.raises(sbp.OffsetOutOfRangeError):
        list(stream.read(99))
    assert of(spans.one())["error.type"] == "OffsetOutOfRangeError"
    with stream.tail(timeout=0.01) as tail, pytest.raises(TimeoutError):
        next(tail)
    assert spans.take() == [], "that nothing came is no failure"


def test_writers_cursors_and_keys(client: sbp.Client, spans: Spans, name: str) -> None:
    stream = client.create_stream(name)
    with client.writer(stream) as writer:
        writer.append(b"a")
        writer.append([b"b", b"c"])
        writer.flush()
    told = spans.take()
    assert [span.name.split()[0] for span in told] == ["create_stream", "append", "append", "flush", "close"]
    assert [span.kind for span in told[1:4]] == [SpanKind.PRODUCER, SpanKind.PRODUCER, SpanKind.CLIENT]
    assert of(told[1])["messaging.operation.type"] == "create"
    cursor = client.cursor("job", [stream])
    (batch,) = cursor.read()
    cursor.commit(batch)
    opened, received, settled = spans.take()
    assert opened.name == "cursor"
    assert linked(received) == [number(told[1]), number(told[2])]
    assert of(received)["messaging.consumer.group.name"] == "job"
    assert (of(settled)["messaging.operation.type"], settled.name) == ("settle", "commit")
    keyed = client.keyed(f"{name}-keyed", 2)
    keyed.append("k", b"v")
    with keyed.writer() as keyed_writer:
        keyed_writer.append("k", b"w")
    records = [record for batch in client.read(keyed.streams) for record in batch.records()]
    assert [record.headers[0][0] for record in records] == ["traceparent"] * 2
    assert len(client.append_all({stream: b"x", keyed.streams[0]: b"y"})) == 2


@pytest.mark.asyncio
async def test_asyncio(server: sbp.Server, spans: Spans, name: str) -> None:
    client = tracing.traced(sbp.aio.connect(server.address), propagate=True, tracer_provider=spans.provider)
    async with client:
        stream = await client.create_stream(name)
        acks = await asyncio.gather(*(stream.append(b"%d" % one) for one in range(3)))
        made, *sent = spans.take()
        assert made.name == f"create_stream {name}"
        assert {of(span)["messaging.sbp.offset"] for span in sent} == {ack.base_offset for ack in acks}
        operation = stream.append(b"x", expected_offset=99)
        assert isinstance(operation, sbp.Operation)
        with pytest.raises(sbp.PreconditionFailedError):
            await operation
        assert of(spans.one())["error.type"] == "PreconditionFailedError"
        async with stream.writer() as writer:
            await writer.append(b"w")
        assert [span.name for span in spans.take()] == [f"append {name}", f"close {name}"]
        async with stream.tail("earliest") as tail:
            seen = 0
            while seen < 4:
                seen += len(await anext(tail))
        assert sum(len(linked(span)) for span in spans.take()) == 4
        async for batch in stream.read():
            assert batch.stream == name
        keyed = await client.keyed(f"{name}-keyed", 2)
        spans.take()
        await keyed.append_all([("k", b"v")])
        # By a name that this client has to look up first.
        async with tracing.traced(
            sbp.aio.connect(server.address), propagate=True, tracer_provider=spans.provider
        ) as another:
            await another.append_all({name: bytearray(b"x")})
        of_keyed, looked_up = spans.take()
        batches = [batch async for batch in client.read([*keyed.streams, name])]
        received = [link for span in spans.take() for link in linked(span)]
        assert {number(of_keyed), number(looked_up)} <= set(received)
        assert batches
        async with keyed.writer() as keyed_writer:
            await keyed_writer.append("k", b"v")
        assert spans.take()[-1].name == f"close {name}-keyed"
        assert (await client.positions([stream]))[name].latest == 5


@pytest.mark.asyncio
async def test_a_failure_that_nobody_asks_for_is_reported(server: sbp.Server, spans: Spans, name: str) -> None:
    reported: list[type[BaseException]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, report: reported.append(type(report["exception"])))
    async with tracing.traced(sbp.aio.connect(server.address), tracer_provider=spans.provider) as client:
        stream = await client.create_stream(name)
        for begin, error in (
            (lambda: stream.append(b"x", expected_offset=99), sbp.PreconditionFailedError),
            (lambda: anext(stream.read(99)), sbp.OffsetOutOfRangeError),
        ):
            spans.take()
            await asyncio.wait([begin()])
            gc.collect()
            await asyncio.sleep(0)
            assert reported.pop() is error
            assert reported == []
            assert of(spans.one())["error.type"] == error.__name__
        with pytest.raises(sbp.PreconditionFailedError):
            await stream.append(b"x", expected_offset=99)
        gc.collect()
        assert reported == [], "somebody has asked"


def broken(*_arguments: object, **_keywords: object) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("is_processor", [False, True])
def test_a_call_does_not_fail_and_a_batch_is_not_lost_because_of_its_span(
    server: sbp.Server,
    spans: Spans,
    name: str,
    is_processor: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if is_processor:
        processor = SpanProcessor()
        monkeypatch.setattr(processor, "on_start", broken)
        spans.provider.add_span_processor(processor)
    else:
        monkeypatch.setattr(propagate, "inject", broken)
        monkeypatch.setattr(propagate, "extract", broken)
    with tracing.traced(sbp.connect(server.address), propagate=True, tracer_provider=spans.provider) as client:
        stream = client.create_stream(name)
        stream.append([b"a", b"b"], headers=[{"source": b"x"}, None])
        with stream.writer() as writer:
            writer.append(b"c", headers={"source": b"y"})
        records = [record for batch in stream.read() for record in batch.records()]
        assert [record.value for record in records] == [b"a", b"b", b"c"]
        with tracing.processing(records[0], name, tracer_provider=spans.provider):
            pass
    assert {record.getMessage() for record in caplog.records} == {"a call is not told of as it should be"}


@pytest.mark.parametrize("headers", [{"source": b"x"}, [None], [b"x", 1], "ab", 7])
def test_wrong_headers_are_refused_as_without_spans(
    client: sbp.Client, server: sbp.Server, spans: Spans, name: str, headers: Any
) -> None:
    stream = client.create_stream(name)
    spans.take()
    with sbp.connect(server.address) as plain, pytest.raises((TypeError, ValueError)) as without:
        plain.append(name, [b"a", b"b"], headers=headers)
    with pytest.raises(without.type, match=re.escape(str(without.value))):
        stream.append([b"a", b"b"], headers=headers)
    assert of(spans.one())["error.type"] == without.type.__name__


def test_an_array_is_one_record(client: sbp.Client, spans: Spans, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(array.array("B", b"ab"))
    assert "messaging.batch.message_count" not in of(spans.take()[-1])
    (record,) = (record for batch in stream.read() for record in batch.records())
    assert (record.value, [key for key, _ in record.headers]) == (b"ab", ["traceparent"])


def test_baggage_of_a_record_stays_beside_the_context(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    token = context.attach(baggage.set_baggage("user", "of the program"))
    try:
        stream.append([b"a", b"b"], headers=[{"baggage": b"its=own"}, None])
    finally:
        context.detach(token)
    first, second = (dict(record.headers) for batch in stream.read() for record in batch.records())
    assert first.keys() == second.keys() == {"traceparent", "baggage"}
    assert (first["baggage"], second["baggage"]) == (b"its=own", b"user=of+the+program")


def test_where_there_is_no_context_headers_are_as_they_were() -> None:
    made = tracing._Tracing("", True, trace.NoOpTracerProvider())
    span = made.begin("append", "send", "s", creates=True)
    given = [{"source": b"x"}]
    assert made.with_context(span, [b"a"], None) is None
    assert made.with_context(span, [b"a"], given) is given


UNASKED = """
import sys
import sbp_native as sbp

def loaded():
    return [name for name in sys.modules if name.startswith(("opentelemetry", "sbp_native.tracing"))]

with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
    stream = client.create_stream("s")
    stream.append(b"x")
    list(stream.read())
    assert loaded() == [], loaded()

    def blocks():
        before = sys.getallocatedblocks()
        for _ in range(500):
            stream.append(b"x")
        return sys.getallocatedblocks() - before

    blocks()
    alone = blocks()
    from sbp_native import tracing
    with tracing.traced(sbp.connect(server.address)) as traced:
        traced.append("s", b"x")
        beside = blocks()
    assert type(client) is sbp.Client and type(stream) is sbp.Stream
    print(alone, beside)
"""


def test_a_client_that_is_not_asked_for_spans_imports_and_keeps_nothing() -> None:
    command = [sys.executable, "-c", UNASKED]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50).stdout
    alone, beside = map(int, told.split())
    assert max(alone, beside) < 50, "for 500 appends"


def test_what_the_page_shows_runs(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.read_text().split("## Spans of OpenTelemetry")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    exec(compile(code, str(PAGE), "exec"), {})
    told = spans.take()
    names = ["create_stream orders", "append orders", "read orders", "process orders"]
    assert [span.name for span in told] == names
    assert linked(told[2]) == linked(told[3]) == [number(told[1])]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, server: sbp.Server) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with sbp.connect(server.address) as client, pytest.raises(ImportError, match=r"sbp-native\[opentelemetry\]"):
        tracing.traced(client)
