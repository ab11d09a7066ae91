"""A DataFrame, or a view, is planned by Spark once: what of it is true, and what makes it read what came since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark.support import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    import sbp_native as sbp


def test_a_frame_reads_what_was_there_at_its_first_action(client: sbp.Client, read: Callable, name: str) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    frame = read().load(name)
    stream.append([b"x"] * 10)
    assert frame.count() == 20, "the plan is made at the first action, not at the load"
    stream.append([b"x"] * 10)
    assert frame.count() == 20
    assert len(frame.select("value").collect()) == 20, "frames made of it share its plan"
    assert read().load(name).count() == 30
    frame.unpersist()
    frame.sparkSession.catalog.clearCache()
    assert frame.count() == 20
    assert frame.where("offset >= 0").count() == 30, "nor does a plan last: Spark's pushdown of filters makes a new one"


@pytest.mark.parametrize("refresh", ["REFRESH TABLE {0}", None])
def test_a_view_reads_what_was_there_at_its_first_query(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, refresh: str | None
) -> None:
    """Spark's own way to look again does nothing here; the view has to be made anew."""
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    view = name.replace("/", "_")

    def make() -> None:
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {view} USING sbp OPTIONS (servers '{server.address}', path '{name}')"
        )

    def count() -> int:
        return spark.sql(f"SELECT value FROM {view}").count()

    make()
    assert count() == 10
    stream.append([b"x"] * 10)
    if refresh is not None:
        spark.sql(refresh.format(view))
        spark.catalog.refreshTable(view)
    assert count() == 10
    make()
    assert count() == 20


def test_a_frame_whose_records_were_trimmed_since_says_that_it_was_planned(
    client: sbp.Client, read: Callable, name: str
) -> None:
    stream = client.create_stream(name)
    stream.append([b"x"] * 10)
    frame = read().load(name)
    assert frame.count() == 10
    stream.trim(5)
    told = failure(frame.count)
    assert "[SBP-9013]" in told
    assert "was planned when it was first used" in told
    assert "load it again" in told
    assert read().load(name).count() == 5
