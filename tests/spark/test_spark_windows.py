"""Batch reads between two times: the rows are the records whose own times lie between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark.test_spark_positions import SECOND, append_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrameReader

    import sbp_native as sbp


@pytest.mark.parametrize("columns", ["records", "kafka"])
def test_rows_are_those_of_the_window(
    read: Callable[..., DataFrameReader], client: sbp.Client, name: str, columns: str
) -> None:
    """Whatever the order of the times, within batches and over them."""
    stream = client.create_stream(name)
    times = [[5, 1, 9], [2, 8], [3, 4, 7], [0, 6]]
    first = 0
    for batch in times:
        rows = [{"value": b"%d" % (first + row), "timestamp": SECOND + time} for row, time in enumerate(batch)]
        append_rows(stream, rows)
        first += len(batch)
    flat = [time for batch in times for time in batch]
    for start, end in ((3, 7), (0, 10), (5, 5), (9, 10)):
        frame = read(columns=columns, startingTimestamp=SECOND + start, endingTimestamp=SECOND + end).load(name)
        wanted = [offset for offset, time in enumerate(flat) if start <= time < end]
        assert sorted(row.offset for row in frame.select("offset").collect()) == wanted
        assert frame.count() == len(wanted)
