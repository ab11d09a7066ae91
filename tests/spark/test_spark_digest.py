"""The number by which rows are known again: it depends on what they hold, and on nothing else."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest

import sbp_native as sbp
from sbp_native._native import digest_rows

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

#: A column of every type that Spark can hand over, with two values.
COLUMNS = {
    "bool": (pa.bool_(), True, False),
    "byte": (pa.int8(), 1, -1),
    "int": (pa.int32(), 1, 2),
    "long": (pa.int64(), 1, 2**62),
    "float": (pa.float32(), 0.5, -0.5),
    "double": (pa.float64(), 0.1, 0.1 + 2**-55),
    "decimal": (pa.decimal128(38, 18), Decimal("1.5"), Decimal("-1.5")),
    "date": (pa.date32(), dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    ),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)),
    "interval": (pa.duration("us"), dt.timedelta(1), dt.timedelta(2)),
    "string": (pa.string(), "", "x" * 300),
    "large_string": (pa.large_string(), "", "x"),
    "binary": (pa.binary(), b"", b"\0"),
    "large_binary": (pa.large_binary(), b"a", b"b"),
    "list": (pa.list_(pa.int32()), [], [None]),
    "large_list": (pa.large_list(pa.int32()), [1, 2], [2, 1]),
    "lists": (pa.list_(pa.list_(pa.int32())), [[1], [2]], [[1, 2], []]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"a": 1, "b": None}, {"a": None, "b": 1}),
    "map": (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 2)]),
    "headers": (HEADERS, [{"key": "a", "value": None}], [{"key": "a", "value": b""}]),
}


def batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def digest(*batches: pa.RecordBatch) -> int:
    return sum(map(digest_rows, batches)) % 2**64


@pytest.mark.parametrize("name", COLUMNS)
def test_values_of_every_type(name: str) -> None:
    kind, one, other = COLUMNS[name]

    def of(*values: object) -> int:
        return digest_rows(batch({"c": pa.array(values, kind)}))

    assert len({of(one), of(other), of(None), of(one, other), of(one, one), of(one, None), of()}) == 7
    assert of(one, other, None) == of(None, one, other) == (of(one) + of(other) + of(None)) % 2**64
    # A part of an array is not told from the same values alone.
    longer = batch({"c": pa.array([other, None, one, other], kind)})
    assert digest_rows(longer.slice(2, 1)) == of(one)
    assert digest_rows(longer.slice(1, 1)) == of(None)


def rows(count: int) -> pa.RecordBatch:
    choose = random.Random(7)
    columns = {}
    for name, (kind, one, other) in COLUMNS.items():
        columns[name] = pa.array([choose.choice([one, other, None]) for _ in range(count)], kind)
    return batch(columns | {"n": pa.array(range(count))})


def test_order_and_limits_of_batches_do_not_matter() -> None:
    whole = rows(500)
    wanted = digest_rows(whole)
    for seed in range(5):
        choose = random.Random(seed)
        order = choose.sample(range(500), 500)
        names = choose.sample(whole.schema.names, len(whole.schema.names))
        moved = whole.take(pa.array(order)).select(names)
        cut = sorted(choose.sample(range(500), 4))
        parts = [moved.slice(start, end - start) for start, end in zip([0, *cut], [*cut, 500], strict=True)]
        assert digest(*parts) == wanted


def test_what_stands_together_in_a_row_matters() -> None:
    def of(first: list[str], second: list[str]) -> int:
        return digest_rows(batch({"a": pa.array(first), "b": pa.array(second)}))

    assert of(["x", "y"], ["1", "2"]) != of(["x", "y"], ["2", "1"])
    assert of(["x"], ["y"]) != of(["y"], ["x"])
    assert of(["x", "x"], ["1", "1"]) != of(["x"], ["1"])


def test_a_column_of_nulls_counts_for_nothing() -> None:
    values = pa.array([b"1", b"2"])
    with_key = batch({"value": values, "key": pa.nulls(2, pa.binary())})
    assert digest_rows(with_key) == digest_rows(batch({"value": values}))
    assert digest_rows(batch({"key": pa.nulls(2, pa.binary())})) == digest_rows(batch({"key": pa.nulls(2)})) != 0


def test_numbers_that_were_kept() -> None:
    """Marks of earlier releases hold these: they may never change."""
    assert digest_rows(batch({"value": pa.array([b"1", b"2"])})) == 12690181410675174297
    columns = {name: pa.array([one, other, None], kind) for name, (kind, one, other) in COLUMNS.items()}
    assert digest_rows(batch(columns)) == 58515670619456896


def test_a_type_that_spark_never_hands_over() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(sbp.SchemaMismatchError, match="column of type"):
        digest_rows(batch({"u": union}))
