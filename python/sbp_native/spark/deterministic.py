"""DataFrames whose rows lie in the same partitions, in the same order, each time they are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from .errors import SCHEMA, SbpOptionError
from .ordering import sorted_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TARGETS: Final = ("stream", "stream_id", "topic")


def deterministic(df: DataFrame, partitions: int) -> DataFrame:
    """The rows of `df` in `partitions` partitions, the same ones in the same order whenever they are computed.

    Which rows there are must not depend on chance or on the clock. Rows are given to partitions by the stream that they
    name, or else by what they hold, and sorted by all columns; of a streaming query, a partition of a batch has to fit
    into a worker's memory for that. This costs a shuffle and a sort. It is what a streaming write needs for
    ``delivery=exactly-once`` where the plan before it does not keep rows in place, and what it does not need where rows
    come straight from a source, through maps and filters alone.

    Raises `SbpOptionError` if a column cannot be sorted by: a map, or a variant.
    """
    for field in df.schema.fields:
        if not _is_sortable(field.dataType):
            raise SbpOptionError(
                SCHEMA,
                f"column {field.name!r} is {field.dataType.simpleString()}, which has no order: turn it into an array "
                "of its entries, or leave it out",
            )
    names = df.columns
    by = [name for name in _TARGETS if name in names][:1] or names
    placed = df.repartition(partitions, *by)
    # Spark refuses to sort streams, within a partition too.
    return placed.mapInArrow(sorted_batches, df.schema) if df.isStreaming else placed.sortWithinPartitions(*names)


def _is_sortable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_sortable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_sortable(field.dataType) for field in kind.fields)
    return not isinstance(kind, MapType | VariantType)
