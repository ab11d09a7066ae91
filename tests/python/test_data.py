"""Records and columns, in and out, in every form that they are given and taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import sbp_native as sbp

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])


def only(stream: sbp.Stream, start: int = 0) -> sbp.Batch:
    [batch] = stream.read(start=start)
    return batch


# Keys and headers.


def test_one_record_with_a_key_and_headers(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(b"value", key=b"key", headers=[("trace", b"1"), ("trace", None), ("", b"")])
    [record] = only(stream)
    assert (record.key, record.value) == (b"key", b"value")
    assert record.headers == [("trace", b"1"), ("trace", None), ("", b"")]


@pytest.mark.parametrize("key", [b"", bytearray(b"k"), memoryview(b"key")])
def test_keys_are_bytes_of_any_kind(client: sbp.Client, name: str, key: Any) -> None:
    stream = client.create_stream(name)
    stream.append(b"v", key=key)
    assert only(stream).keys == [bytes(key)]


def test_headers_may_be_a_dict(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(b"v", headers={"a": b"1", "b": None})
    assert only(stream).headers == [[("a", b"1"), ("b", None)]]


def test_a_list_has_lists_of_keys_and_headers(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    ack = stream.append(
        [b"a", None, b"c"],
        key=[b"1", b"2", None],
        headers=[None, [("h", b"x")], {"i": b"y", "j": None}],
    )
    assert len(ack) == 3
    batch = only(stream)
    assert batch.values == [b"a", None, b"c"]
    assert batch.keys == [b"1", b"2", None]
    assert batch.headers == [[], [("h", b"x")], [("i", b"y"), ("j", None)]]
    assert [(r.key, r.value, r.headers) for r in batch] == list(
        zip(batch.keys, batch.values, batch.headers, strict=True)
    )
    stream.append((b"a", b"b"), key=(b"k", b"l"))
    assert only(stream, 3).keys == [b"k", b"l"]


def test_a_null_value_needs_a_key(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append(None, key=b"gone")
    [record] = only(stream)
    assert (record.key, record.value) == (b"gone", None)
    with pytest.raises(TypeError, match="not NoneType"):
        stream.append(None)


@pytest.mark.parametrize(
    ("data", "beside", "error", "message"),
    [
        ([b"a", b"b"], {"key": b"k"}, TypeError, "list of as many keys, not bytes"),
        ([b"a", b"b"], {"key": [b"k"]}, sbp.InvalidRequestError, "2 records and 1 keys"),
        ([b"a"], {"headers": [None, None]}, sbp.InvalidRequestError, "1 records and 2 lists of headers"),
        ([b"a"], {"headers": [("h", b"x")]}, TypeError, "headers of record 0 are pairs"),
        ([b"a", b"b"], {"key": [b"k", "text"]}, TypeError, "item 1 of the list: .* not str"),
        (b"a", {"key": [b"k"]}, TypeError, "one record has one key"),
        (b"a", {"key": "text"}, TypeError, "not str"),
        (b"a", {"headers": "text"}, TypeError, "headers are pairs"),
        (b"a", {"headers": [(b"h", b"x")]}, TypeError, "headers are pairs"),
        (b"a", {"headers": [("h", "x")]}, TypeError, "headers are pairs"),
        (b"a", {"headers": [("h",)]}, TypeError, "headers are pairs"),
        (pa.table({"value": [b"a"]}), {"key": b"k"}, TypeError, "a column of it"),
    ],
)
def test_keys_and_headers_that_do_not_fit(
    client: sbp.Client, name: str, data: Any, beside: dict[str, Any], error: type[Exception], message: str
) -> None:
    stream = client.create_stream(name)
    with pytest.raises(error, match=message):
        stream.append(data, **beside)
    assert stream.positions().latest == 0


@pytest.mark.asyncio
async def test_keys_and_headers_from_asyncio(aclient: sbp.AsyncClient, name: str) -> None:
    stream = await aclient.create_stream(name)
    await stream.append([b"a", b"b"], key=[b"k", None], headers=[{"h": b"1"}, None])
    [batch] = [batch async for batch in stream.read()]
    assert (batch.keys, batch.headers) == ([b"k", None], [[("h", b"1")], []])


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("data", [b"x" * 100_000, [b"y" * 100] * 1_000], ids=["one", "list"])
def test_compressed(client: sbp.Client, name: str, compression: Any, data: Any) -> None:
    stream = client.create_stream(name)
    before = client.stats()["bytes_out"]
    stream.append(data, compression=compression)
    sent = client.stats()["bytes_out"] - before
    assert (sent < 10_000) == (compression is not None)
    assert only(stream).values == (data if isinstance(data, list) else [data])


# What a batch can be taken as.


def test_a_batch_has_many_faces(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", None, b"c"], key=[b"1", b"2", None], timestamp=1_700_000_000_123)
    [batch] = stream.read(start=1)
    assert batch.values == [None, b"c"]
    assert batch.keys == [b"2", None]
    assert batch.headers == [[], []]
    assert [payload and bytes(payload) for payload in batch.payloads] == [None, b"c"]
    assert [record.offset for record in batch] == list(batch.offsets) == [1, 2]
    arrow = batch.to_arrow()
    assert arrow.column("value").to_pylist() == [None, b"c"]
    assert arrow.column("key").to_pylist() == [b"2", None]
    pandas = batch.to_pandas()
    assert list(pandas["offset"]) == [1, 2]
    polars = batch.to_polars()
    assert polars["value"].to_list() == [None, b"c"]
    assert polars["timestamp"].dt.epoch("ms").to_list() == [1_700_000_000_123] * 2


def test_typed_batches_are_columns_only(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, schema=SCHEMA)
    stream.append(pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]}, schema=SCHEMA))
    [batch] = stream.read(start=1)
    assert batch.to_arrow().to_pydict() == {"n": [2, 3], "text": [None, "c"]}
    assert batch.to_polars().rows() == [(2, None), (3, "c")]
    assert list(batch.to_pandas()["n"]) == [2, 3]
    for refused in ("payloads", "values", "keys", "headers"):
        with pytest.raises(TypeError, match="to_arrow"):
            getattr(batch, refused)
    for read in (batch.records, batch.__iter__):
        with pytest.raises(TypeError, match="to_arrow"):
            read()


def test_records_are_values(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"a"], key=[b"k", b"k"], headers=[{"h": b"1"}, {"h": b"1"}])
    first, second = only(stream)
    again, _ = only(stream)
    assert first == again
    assert hash(first) == hash(again)
    assert first != second
    assert first != b"a"
    assert len({first, again, second}) == 2
    assert first.value is first.value, "no copy for each look"
    assert repr(first) == f'Record(offset=0, timestamp={first.timestamp}, key=b"k", value=b"a")'


def test_streams_of_arrow_data_need_no_pyarrow(run_python: Callable[..., Any]) -> None:
    run_python("""
        import sys
        for absent in ("pyarrow", "pandas", "numpy"):
            sys.modules[absent] = None
        import ctypes
        import sbp_native as sbp
        with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
            one = client.create_stream("one")
            one.append([b"a", b"b"], key=[b"k", None])
            [batch] = one.read()
            capsule = batch.__arrow_c_stream__()
            name = ctypes.pythonapi.PyCapsule_GetName
            name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
            assert name(capsule) == b"arrow_array_stream"

            class Holder:
                def __init__(self, capsule):
                    self.capsule = capsule
                def __arrow_c_stream__(self, requested_schema=None):
                    return self.capsule

            two = client.create_stream("two")
            two.append(Holder(capsule))
            two.append(batch)
            assert [(r.key, r.value) for batch in two.read() for r in batch] == [(b"k", b"a"), (None, b"b")] * 2
    """)


def test_a_batch_shows_itself_in_a_notebook(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"<b>%d</b>" % n for n in range(12)] + [bytes([0, 255]), b"x" * 200], key=[b"k"] * 14)
    html = only(stream)._repr_html_()
    assert html.count("<tr>") == 11, "a head and ten rows"
    assert "&lt;b&gt;9&lt;/b&gt;" in html
    assert "<b>" not in html
    assert "4 rows more" in html
    assert "<th>headers</th>" not in html, "a column that is null throughout is left out"
    [tail] = stream.read(start=12)
    shown = tail._repr_html_()
    assert r"\x00\xff" in shown
    assert "x" * 80 + "&hellip;" in shown
    assert "more" not in shown
    typed = client.create_stream(f"{name}/typed", schema=SCHEMA)
    typed.append(pa.table({"n": [1], "text": ["<&>"]}, schema=SCHEMA))
    assert re.search(r"<th>n</th><th>text</th>.*<td>1</td><td>&lt;&amp;&gt;</td>", only(typed)._repr_html_())


def test_payloads_equal_their_bytes(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"one", b"one", b"two"])
    one, again, two = only(stream).payloads
    assert one == again == b"one" == bytearray(b"one")
    assert one == memoryview(b"one")
    assert one != two
    assert one != b"two"
    assert one != "one"
    assert one is not None
    assert hash(one) == hash(b"one")
    assert {one, again, two, b"one"} == {b"one", b"two"}
    assert one in {b"one": 1}


def test_what_is_read_is_one_arrow_stream(client: sbp.Client, name: str) -> None:
    plain = client.create_stream(name)
    plain.append([b"a", b"b"], timestamp=1_000)
    plain.append(b"c", key=b"k", timestamp=2_000)
    rows = pa.table(plain.read())
    assert rows.column("offset").to_pylist() == [0, 1, 2]
    assert rows.column("value").to_pylist() == [b"a", b"b", b"c"]
    assert rows == pa.Table.from_batches([batch.to_arrow() for batch in plain.read()])
    assert pa.table(plain.read(1, 2)).column("value").to_pylist() == [b"b"]
    reader = pa.RecordBatchReader.from_stream(plain.read())
    assert [batch.num_rows for batch in reader] == [2, 1], "one at a time"
    # What was handed out before is not read again, and nothing is left behind it.
    batches = plain.read()
    assert next(batches).values == [b"a", b"b"]
    assert pa.table(batches).column("value").to_pylist() == [b"c"]
    assert pa.table(batches).num_rows == 0
    cursor = client.cursor(name, [name])
    assert pa.table(cursor.read()).num_rows == 3
    assert cursor.reached == {name: 3}


def test_an_arrow_stream_has_one_schema(client: sbp.Client, name: str) -> None:
    typed = client.create_stream(name, schema=SCHEMA)
    first = pa.table({"n": [1], "text": ["a"]}, schema=SCHEMA)
    typed.append(first)
    tail = typed.tail("earliest", timeout=20)
    grown = SCHEMA.append(pa.field("more", pa.int64()))
    typed.update(schema=grown)
    typed.append(pa.table({"n": [2], "text": ["b"], "more": [7]}, schema=grown))
    assert pa.table(typed.read()).to_pydict() == {"n": [1, 2], "text": ["a", "b"], "more": [None, 7]}
    # A tail that began before the update has the columns that it began with.
    reader = pa.RecordBatchReader.from_stream(tail)
    assert reader.schema.names == ["n", "text"]
    assert [next(reader).to_pydict() for _ in range(2)] == [{"n": [1], "text": ["a"]}, {"n": [2], "text": ["b"]}]
    client.create_stream(f"{name}/plain").append(b"x")
    client.create_stream(f"{name}/twin").append(b"y")
    with pytest.raises(sbp.SchemaMismatchError, match="have not the same columns"):
        pa.table(client.read([name, f"{name}/plain"]))
    assert pa.table(client.read([f"{name}/plain", f"{name}/twin"])).column("value").to_pylist() == [b"x", b"y"]


def test_an_arrow_stream_goes_to_polars(client: sbp.Client, name: str) -> None:
    polars = pytest.importorskip("polars")
    stream = client.create_stream(name, schema=SCHEMA)
    assert polars.DataFrame(stream.read()).columns == ["n", "text"]
    stream.append(pa.table({"n": [1], "text": ["a"]}, schema=SCHEMA))
    assert polars.DataFrame(stream.read()).rows() == [(1, "a")]
