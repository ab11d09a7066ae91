"""The rows of one task in an order that depends on the rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

#: Rows that are handed on together.
_ROWS: Final = 10_000


def sorted_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, sorted by all columns; they are held in memory together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found).combine_chunks()
    keys = pa.table([_sortable(column) for column in table.columns], names=[str(n) for n in range(table.num_columns)])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    yield from table.take(order).combine_chunks().to_batches(_ROWS)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column itself, or where it has no order of its own, the text of each item."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.array([repr(item) for item in column.to_pylist()], pa.large_string())])
    return column
