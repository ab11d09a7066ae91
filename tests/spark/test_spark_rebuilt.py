"""A checkpoint against a server that was set up anew: the streams have the same ids and names, and are others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from sbp_native.testing import eventually
from spark.support import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WITHIN = 60


class Anew:
    """A server that can be replaced by an empty one, and a query over it that collects values."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark, self._place = spark, Path(place)
        self._server: sbp.Server | None = None
        self.client: sbp.Client
        self.values: list[bytes] = []
        self.set_up()

    def set_up(self, **streams: int) -> None:
        """Another server, with so many records in new streams."""
        self.close()
        self._server = sbp.Server(durability="none")
        self.client = sbp.connect(self._server.address, timeout=10)
        for name, count in streams.items():
            self.client.create_stream(name)
            self.append(name, count)

    def append(self, name: str, count: int, mark: str = "") -> None:
        stream = self.client.stream(name)
        first = stream.positions().latest
        if count:
            stream.append([f"{mark}{name}-{first + n}".encode() for n in range(count)])

    def close(self) -> None:
        if self._server is not None:
            self.client.close()
            self._server.close()

    def start(self, streams: str = "orders", available: bool = True, **options: Any) -> StreamingQuery:
        assert self._server is not None
        reader = self._spark.readStream.format("sbp").option("servers", self._server.address)
        frame = reader.options(**{"startingOffsets": "earliest", **options}).load(streams)
        writer = frame.writeStream.foreachBatch(self._collect).option("checkpointLocation", str(self._place))
        return (writer.trigger(availableNow=True) if available else writer).start()

    def _collect(self, batch: DataFrame, _number: int) -> None:
        self.values += sorted(bytes(row.value) for row in batch.select("value").collect())

    def run(self, streams: str = "orders", **options: Any) -> None:
        query = self.start(streams, **options)
        assert query.awaitTermination(WITHIN), "the query did not end"

    def offsets(self) -> dict[str, Any]:
        """The last offset in the checkpoint."""
        return json.loads(self._last().read_text().splitlines()[-1])

    def edit(self, pattern: str, by: str) -> None:
        path = self._last()
        text = path.read_text()
        assert re.search(pattern, text)
        path.write_text(re.sub(pattern, by, text))

    def forget_last_commit(self) -> None:
        max((self._place / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()

    def _last(self) -> Path:
        return max((self._place / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))


@pytest.fixture
def anew(spark: SparkSession, checkpoint: str) -> Iterator[Anew]:
    made = Anew(spark, checkpoint)
    yield made
    made.close()


def named(name: str, first: int, last: int) -> list[bytes]:
    return sorted(f"{name}-{n}".encode() for n in range(first, last))


def test_a_server_that_was_set_up_anew_is_told(anew: Anew) -> None:
    """It has more records than the old one had, so the old offset is in the middle of its stream."""
    anew.set_up(orders=10)
    anew.run()
    anew.set_up(orders=25)
    told = failure(anew.run)
    assert "[SBP-9013]" in told
    assert "stream orders (1) is another one than that of the checkpoint" in told
    assert "from offset 10 on is not known" in told
    assert "start a new query with a new checkpoint" in told
    assert anew.values == named("orders", 0, 10)


def test_a_query_may_go_on_with_the_new_stream(anew: Anew) -> None:
    anew.set_up(orders=10)
    anew.run()
    anew.set_up(orders=25)
    anew.run(failOnDataLoss=False, maxOffsetsPerTrigger=7)
    assert sorted(anew.values[10:]) == named("orders", 0, 25)
    anew.append("orders", 5)
    anew.run()
    assert anew.values[35:] == named("orders", 25, 30), "it is told once"


def test_a_batch_that_was_planned_before_is_not_read_from_another_stream(anew: Anew) -> None:
    anew.set_up(orders=10)
    anew.run()
    anew.forget_last_commit()
    anew.set_up(orders=25)
    assert "is another one than that of the checkpoint" in failure(anew.run)
    anew.run(failOnDataLoss=False)
    assert sorted(anew.values[10:]) == named("orders", 0, 25)


def test_ids_that_were_given_to_other_names(anew: Anew) -> None:
    """The query's stream has another id now, and its id another stream."""
    anew.set_up(orders=10)
    anew.run()
    anew.set_up(payments=25, orders=3)
    assert "stream 1 is another one than that of the checkpoint" in failure(anew.run)
    anew.run(failOnDataLoss=False)
    assert anew.values[10:] == named("orders", 0, 3)


def test_a_checkpoint_without_identities_goes_on_and_takes_them_up(anew: Anew) -> None:
    anew.set_up(orders=10, payments=10)
    anew.run("orders,payments")
    identities = "".join(str(anew.client.stream(name).identity)[:8] for name in ("orders", "payments"))
    assert anew.offsets()["id"] == identities
    anew.edit(r'"v": ?3', '"v":1')
    anew.edit(r', ?"id": ?"[0-9a-f]*"', "")
    assert anew.offsets()["o"] == {"1": 10, "2": 10}
    anew.append("orders", 5)
    anew.run("orders,payments")
    assert anew.values[20:] == named("orders", 10, 15)
    assert anew.offsets()["id"] == identities
    anew.set_up(orders=30, payments=30)
    assert "is another one than that of the checkpoint" in failure(lambda: anew.run("orders,payments"))


def test_a_server_that_is_set_up_anew_while_a_query_runs(anew: Anew, tmp_path: Path) -> None:
    """The same address, another server behind it, with more records than the query has read."""
    for place, count in (("first", 10), ("second", 25)):
        with sbp.Server(tmp_path / place, durability="none") as server, sbp.connect(server.address) as client:
            client.create_stream("orders").append([b"orders-%d" % n for n in range(count)])
    with sbp.Proxy() as proxy:

        def serve(place: str) -> sbp.Server:
            return sbp.Server(tmp_path / place, durability="none", advertise=proxy.address)

        with serve("first") as first, serve("second") as second:
            proxy.target = first.listening
            query = anew.start(available=False, servers=proxy.address)
            eventually(lambda: anew.values == named("orders", 0, 10), timeout=WITHIN)
            proxy.target = second.listening
            first.close()
            told = failure(lambda: query.awaitTermination(WITHIN))
            assert "[SBP-9013]" in told
            assert "stream orders (1) is another one than when this query began" in told
            assert "Start the query again" in told
            assert anew.values == named("orders", 0, 10)
            again = failure(lambda: anew.run(servers=proxy.address))
            assert "is another one than that of the checkpoint" in again
