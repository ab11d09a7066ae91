"""Columns of other libraries into streams: what fits, what does not, and what the errors say."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sbp_native as sbp

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
MIB = 1 << 20
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
ROWS = [
    {"n": 1, "text": "a", "at": NOON, "tags": ["x", "y"]},
    {"n": 2, "text": None, "at": None, "tags": None},
]


def rows_of(stream: sbp.Stream, start: int = 0) -> list[dict[str, Any]]:
    return [row for batch in stream.read(start=start) for row in batch.to_arrow().to_pylist()]


def table(**columns: Any) -> pa.Table:
    return pa.table(
        {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    )


# Libraries.

LIBRARIES: dict[str, Any] = {
    "pyarrow table": lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA),
    "pyarrow batch": lambda: pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA),
    "pyarrow reader": lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA).to_reader(),
    "pyarrow chunks": lambda: pa.concat_tables([pa.Table.from_pylist([row], schema=SCHEMA) for row in ROWS]),
    "pyarrow struct array": lambda: pa.array(ROWS, pa.struct(list(SCHEMA))),
    "polars": lambda: pl.DataFrame(ROWS, schema_overrides={"at": pl.Datetime("us", "UTC")}),
    "pandas": lambda: pd.DataFrame(ROWS).astype({"at": "datetime64[us, UTC]"}),
    "large types": lambda: pa.Table.from_pylist(
        ROWS,
        schema=pa.schema(
            {
                "n": pa.int64(),
                "text": pa.large_string(),
                "at": SCHEMA.field("at").type,
                "tags": pa.large_list(pa.large_string()),
            }
        ),
    ),
    "views": lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA).set_column(
        1, "text", pa.array(["a", None], pa.string_view())
    ),
    "dictionaries": lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA).set_column(
        1, "text", pa.array(["a", None]).dictionary_encode()
    ),
    "another order": lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA).select(["tags", "at", "text", "n"]),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_of_any_library(client: sbp.Client, name: str, library: str) -> None:
    stream = client.create_stream(name, schema=SCHEMA)
    assert len(stream.append(LIBRARIES[library]())) == 2
    assert rows_of(stream) == ROWS
    [first, *_] = stream.read()
    assert first.to_arrow().schema == SCHEMA


def test_a_stream_made_for_a_polars_frame(client: sbp.Client, name: str) -> None:
    frame = pl.DataFrame({"n": [1, 2], "text": ["a", None], "lists": [[1], [2, 3]]})
    stream = client.create_stream(name, schema=frame.to_arrow().schema)
    assert stream.schema is not None
    assert [str(field.type) for field in stream.schema] == ["int64", "string", "list<item: int64>"]
    stream.append(frame)
    assert stream.append(frame.slice(1)).base_offset == 2
    [first, second] = stream.read()
    assert first.to_polars().equals(frame)
    assert second.to_polars().equals(frame.slice(1))


def test_columns_that_are_missing(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, schema=SCHEMA)
    stream.append(table(n=[1]))
    stream.append(table(tags=[["x"]], n=[2]))
    stream.append(table(n=[3], text=pa.nulls(1)))
    empty = {"text": None, "at": None}
    assert rows_of(stream) == [
        {"n": 1, **empty, "tags": None},
        {"n": 2, **empty, "tags": ["x"]},
        {"n": 3, **empty, "tags": None},
    ]


# What is refused, and how.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            lambda: table(n=pa.array([1], pa.int32())),
            'column "n": int64 is wanted, the data has int32; cast it to int64',
        ),
        (lambda: table(n=["1"]), 'column "n": int64 is wanted, the data has string; cast it to int64'),
        (
            lambda: table(n=[1], at=pa.array([NOON], pa.timestamp("ns", tz="UTC"))),
            "the data has timestamp[ns, tz=UTC]; cast it to timestamp[us, tz=UTC]",
        ),
        (
            lambda: table(n=[1], tags=[[1]]),
            'column "tags": list<string> is wanted, the data has list<int64>; cast it to list<string>',
        ),
        (
            lambda: table(n=[1, None]),
            'column "n": a value in every row is wanted, the data has 1 nulls; fill or drop them',
        ),
        (
            lambda: table(text=["a"]),
            'column "n" is missing, and the stream does not allow nulls in it; add it as int64',
        ),
        (
            lambda: table(n=[1], m=[1]),
            'column "m" is not in the stream\'s schema; drop it, or add it to the stream first',
        ),
        (lambda: pd.DataFrame({"n": [1]}, index=pd.Index([7])), 'column "__index_level_0__" is the frame\'s index'),
        (lambda: pa.array([1, 2]), "a column by itself was given, and the stream has a schema; give a table"),
        (lambda: pl.Series("n", [1, 2]), "a column by itself was given"),
    ],
)
def test_errors_name_column_and_cast(client: sbp.Client, name: str, data: Any, message: str) -> None:
    stream = client.create_stream(name, schema=SCHEMA)
    with pytest.raises(sbp.SchemaMismatchError) as caught:
        stream.append(data())
    assert message in str(caught.value)
    assert stream.positions().latest == 0


def test_no_rows_are_nothing_to_append(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name, schema=SCHEMA)
    with pytest.raises(sbp.InvalidRequestError, match="no rows"):
        stream.append(pa.Table.from_pylist([], schema=SCHEMA))


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.uint64(), "decimal128(20, 0)"),
        (pa.timestamp("ns"), "timestamp('us')"),
        (pa.time64("us"), "int64"),
        (pa.null(), "the type its values will have"),
        (pa.list_(pa.uint8()), "int16"),
    ],
    ids=str,
)
def test_schemas_that_streams_do_not_carry(client: sbp.Client, name: str, kind: pa.DataType, advice: str) -> None:
    with pytest.raises(sbp.SchemaMismatchError) as caught:
        client.create_stream(name, schema=pa.schema([pa.field("odd", kind)]))
    assert 'column "odd' in str(caught.value)
    assert f"cast it to {advice}" in str(caught.value)


# Streams without a schema.


def test_tables_of_records(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    stream.append(
        pa.table(
            {
                "value": pa.array([b"a", None, b"c"]),
                "key": pa.array(["k", None, "l"]),
                "timestamp": pa.array([NOON, None, NOON], pa.timestamp("ms", tz="UTC")),
                "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], headers),
            }
        ),
        timestamp=7,
    )
    micros = int(NOON.timestamp() * 1_000_000)
    records = [record for batch in stream.read() for record in batch]
    assert [(r.value, r.key, r.timestamp, r.headers) for r in records] == [
        (b"a", b"k", micros, [("h", b"1")]),
        (None, None, 7_000, []),
        (b"c", b"l", micros, []),
    ]


def test_what_was_read_can_be_appended_elsewhere(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"a", b"b"], key=[b"k", None], headers=[{"h": b"1"}, None], timestamp=1_700_000_000_000)
    [batch] = stream.read()
    copies = client.create_stream(f"{name}/copies")
    for form in (batch, batch.to_arrow(), batch.to_polars(), pa.table(batch)):
        copies.append(form)
    for copy in copies.read():
        assert [(r.timestamp, r.key, r.value, r.headers) for r in copy] == [
            (r.timestamp, r.key, r.value, r.headers) for r in batch
        ]


@pytest.mark.parametrize(
    "column",
    [
        lambda: pa.array([b"a", b"b", None]),
        lambda: pa.array(["a", "b", None], pa.large_string()),
        lambda: pa.array(["a", "b", None], pa.string_view()),
        lambda: pa.chunked_array([[b"a"], [b"b", None]]),
        lambda: pa.array(["a", "b", None]).dictionary_encode(),
        lambda: pl.Series(["a", "b", None]),
        lambda: pl.Series([b"a", b"b", None]),
        lambda: pl.DataFrame({"value": ["a", "b", None]}),
        lambda: pd.DataFrame({"value": ["a", "b", None]}),
    ],
)
def test_a_column_by_itself_is_values(client: sbp.Client, name: str, column: Any) -> None:
    stream = client.create_stream(name)
    stream.append(column())
    assert [value for batch in stream.read() for value in batch.values] == [b"a", b"b", None]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: pa.table({"n": [1]}), 'column "n" is none of a stream without a schema'),
        (lambda: pa.table({"key": [b"k"]}), 'column "value" is missing'),
        (
            lambda: pa.table({"value": [1]}),
            'column "value": binary or string is wanted, the data has int64; cast it to binary',
        ),
        (lambda: pa.table({"value": [b"a"], "timestamp": [1]}), 'column "timestamp": timestamp[us] is wanted'),
        (lambda: pa.table({"value": [b"a"], "headers": [[b"x"]]}), 'column "headers": list<struct'),
        (lambda: pa.array([1.5]), "binary or string is wanted, the data has"),
    ],
)
def test_columns_that_records_do_not_have(client: sbp.Client, name: str, data: Any, message: str) -> None:
    stream = client.create_stream(name)
    with pytest.raises(sbp.SchemaMismatchError) as caught:
        stream.append(data())
    assert message in str(caught.value)
    assert stream.positions().latest == 0


@pytest.mark.parametrize(
    "data",
    ["text", {"a": 1}, 7, object(), None, ["text"], [b"a", 7], np.array(["x"], object), (byte for byte in b"")],
    ids=lambda data: type(data).__name__,
)
def test_what_cannot_be_appended(client: sbp.Client, name: str, data: Any) -> None:
    stream = client.create_stream(name)
    with pytest.raises(TypeError, match="bytes"):
        stream.append(data)
    assert stream.positions().latest == 0


def test_rows_that_are_too_many_bytes(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    rows = pa.table({"value": pa.array([bytes(MIB)] * 70)})
    with pytest.raises(sbp.PayloadTooLargeError, match="fewer records at once"):
        stream.append(rows)
    with pytest.raises(sbp.PayloadTooLargeError, match="fewer records at once"):
        stream.append([bytes(MIB)] * 70)
