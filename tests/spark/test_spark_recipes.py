"""docs/spark/recipes.md, the quickstart and the README: each does what it says, as it stands on the page."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import sbp_native as sbp
import sbp_native.spark

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "spark" / "recipes.md"
QUICKSTART = DOCS / "spark.md"
README = DOCS.parent / "README.md"


def recipes() -> dict[str, str]:
    """The code below each heading."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, body = section.split("\n", 1)
        found[title] = "\n".join(re.findall(r"```python\n(.*?)```", body, re.DOTALL))
    return found


RECIPES = recipes()


@pytest.fixture
def server() -> Iterator[sbp.Server]:
    """The server of one recipe: half of the 100 orders came yesterday."""
    with sbp.Server(durability="none") as server, sbp.connect(server.address, timeout=10) as client:
        orders = client.create_stream("orders")
        now = dt.datetime.now(dt.UTC)
        for first in range(0, 100, 10):
            came = now - dt.timedelta(days=1) if first < 50 else now
            orders.append([b"%d" % number for number in range(first, first + 10)], timestamp=came)
        client.create_stream("payments").append(b"1")
        flights = client.create_stream("flights", schema=pa.schema([("carrier", pa.string()), ("late", pa.int32())]))
        flights.append(pa.record_batch({"carrier": ["UA", "DL", "UA"], "late": pa.array([10, 2, 20], pa.int32())}))
        yield server


def perform(code: str, names: dict[str, Any]) -> str:
    """What code from a page prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # As in a script: Spark sends functions of `__main__` to the workers by value.
        exec(compile(code, "the page", "exec"), {"__name__": "__main__", **names})
    return printed.getvalue()


def run(title: str, spark: SparkSession, servers: str, checkpoint: Path) -> str:
    """What a recipe prints."""
    names: dict[str, Any] = {
        "spark": spark,
        "servers": servers,
        "sbp_format": {"servers": servers},
        "checkpoint": str(checkpoint),
        "fn": fn,
        "pa": pa,
        "sbp": sbp,
        "sbp_native": sbp_native,
    }
    return perform(RECIPES[title], names)


def rows(shown: str) -> list[list[str]]:
    """The cells of what `show` printed, without the heading."""
    lines = [line for line in shown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def numbers(client: sbp.Client, name: str) -> list[int]:
    """The values of a stream, in order of size."""
    return sorted(int(bytes(record.value)) for batch in client.stream(name).read() for record in batch.records())


def table(client: sbp.Client, name: str) -> list[dict[str, Any]]:
    """The rows of a typed stream."""
    return [row for batch in client.stream(name).read() for row in batch.to_arrow().to_pylist()]


def _recent(client: sbp.Client, printed: str) -> None:
    assert printed == "50 100\n"


def _sql(client: sbp.Client, printed: str) -> None:
    assert rows(printed) == [["DL", "2.0"], ["UA", "15.0"]]


def _totals(client: sbp.Client, printed: str) -> None:
    # Yesterday's; today's minute is not over.
    assert sum(row["total"] for row in table(client, "totals")) == sum(range(50))


def _split(client: sbp.Client, printed: str) -> None:
    assert numbers(client, "even") == list(range(0, 100, 2))
    assert numbers(client, "odd") == list(range(1, 100, 2))


def _udf(client: sbp.Client, printed: str) -> None:
    assert sorted(rows(printed)) == [["orders", "100"], ["payments", "1"]]


def _map_in_arrow(client: sbp.Client, printed: str) -> None:
    assert rows(printed) == [["0", "2"]]
    assert [row["carrier"] for row in table(client, "partials")] == ["UA", "DL", "UA"]


def _foreach_partition(client: sbp.Client, printed: str) -> None:
    values = [bytes(record.value) for batch in client.stream("payments").read() for record in batch.records()]
    assert sorted(values) == sorted([b"1", *(b"order %d" % number for number in range(1_000))])


def _losses(client: sbp.Client, printed: str) -> None:
    assert rows(printed) == [["orders", "0", "30"]]


def _pattern(client: sbp.Client, printed: str) -> None:
    assert sorted(rows(printed)) == [["orders", "100"], ["payments", "1"]]


def _lag(client: sbp.Client, printed: str) -> None:
    assert "sbp_spark_lag_records{query=" in printed
    assert re.search(r'stream="orders",stream_id="1"} 0\.0$', printed, re.MULTILINE)


CHECKS: dict[str, Callable[[sbp.Client, str], None]] = {
    "The last ten minutes, the last hundred": _recent,
    "SQL": _sql,
    "A streaming aggregation, written exactly once": _totals,
    "foreachBatch, to two places": _split,
    "The client in a UDF": _udf,
    "The client in mapInArrow": _map_in_arrow,
    "The client in foreachPartition": _foreach_partition,
    "Losses as rows": _losses,
    "Everything that matches a pattern": _pattern,
    "How far behind": _lag,
}


def test_the_quickstart(spark: SparkSession, server: sbp.Server) -> None:
    [code] = [
        code for code in re.findall(r"```python\n(.*?)```", QUICKSTART.read_text(), re.DOTALL) if "people" in code
    ]
    shown = perform(code.replace("127.0.0.1:12378", server.address), {})
    assert sorted(row[:2] for row in rows(shown)) == [["Ada", "36"], ["Grace", "45"]]


def test_the_readme(spark: SparkSession) -> None:
    [code] = [
        code for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "SparkSession" in code
    ]
    assert sorted(rows(perform(code, {}))) == [["ORD", "1"], ["SFO", "2"]]


def test_every_recipe_is_run() -> None:
    assert set(RECIPES) == set(CHECKS)


@pytest.mark.parametrize("title", CHECKS)
def test_it_does_what_the_page_says(title: str, spark: SparkSession, server: sbp.Server, tmp_path: Path) -> None:
    with sbp.connect(server.address, timeout=10) as client:
        if title == "Losses as rows":
            client.stream("orders").trim(30)
        printed = run(title, spark, server.address, tmp_path / "checkpoint")
        CHECKS[title](client, printed)
