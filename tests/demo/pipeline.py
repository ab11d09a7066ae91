"""The demo from beginning to end: replay, stream, query, verify, crash, draw."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sbp_native as sbp

from . import batch, chart, crash, events, report, session, streaming, verify
from .progress import Screen
from .replay import WEATHER, Ledger, create_streams, replay
from .service import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Differing figures shown before the rest is only counted.
_SHOWN = 20

#: Spark's names for what a micro-batch is made of.
_PARTS = {
    "latestOffset": "deciding how far it goes (the source)",
    "queryPlanning": "planning",
    "addBatch": "reading, aggregating, writing the result",
    "walCommit": "Spark's log of offsets",
    "commitOffsets": "Spark's log of commits",
    "triggerExecution": "all of it",
}


class Failure(Exception):
    """A figure is not what it must be, or a promise was not kept. The message says which."""


class Demo:
    """One run; everything it leaves behind lies below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._screen = Screen()
        self._report = report.Report()
        self._ledger = Ledger()
        self._figures = 0

    def run(self) -> None:
        """Runs every stage.

        Raises `Failure` for the first stage whose result is wrong.
        """
        started = time.perf_counter()
        fresh(self._directory)
        screen = self._screen
        screen.title("A year of flights through SBP streams, Spark and back")
        with screen.step("reading the original file"):
            source = events.data_dir()
            everything = events.make_events(events.read_flights(source))
            weather = events.read_weather(source)
            expectation = verify.Expectation()

        data = self._directory / "data"
        server = ServerProcess(data, self._directory / "server.log")
        try:
            with screen.step("starting the durable server"):
                server.start()
            streams, starting = asyncio.run(self._replay(server.address, everything, weather))
            with spark_session(screen, self._directory) as spark:
                self._stream(spark, server.address, streams, starting, everything, expectation)
                delays = self._query(spark, server.address, streams, expectation)
            stored = server.stored_bytes()
            self._crash(server)
        finally:
            server.stop()

        with screen.step("drawing the chart"):
            picture = self._directory / "delays.png"
            chart.draw(delays, chart.airline_names(source), picture)
        self._sizes(stored)
        for name, seconds in screen.seconds.items():
            self._report.add("Steps", name, f"{seconds:.1f} s")
        self._report.add("Steps", "the whole run", f"{time.perf_counter() - started:.1f} s")
        page = self._directory / "report.html"
        self._report.write(page, picture, self._figures)
        screen.title(f"All {self._figures:,} figures equal those of the original file.")
        screen.note(f"chart   {picture}")
        screen.note(f"report  {page}")

    async def _replay(self, address: str, everything: pa.Table, weather: pa.Table) -> tuple[list[str], dict[str, int]]:
        """January to November, and all the weather; returns the streams and the offsets where December begins."""
        before = events.until(everything, events.DECEMBER)
        slots = events.slots(before, hours=12)
        async with sbp.aio.connect(address) as client:
            streams = await create_streams(client, everything["carrier"].unique().to_pylist())
            stage = "replaying January to November"
            with self._screen.step(stage, before.num_rows, "events") as advance:
                await replay(client, slots, self._ledger, advance)
            rate = before.num_rows / self._screen.seconds[stage]
            self._report.add(
                "Throughput", f"replay from asyncio, {len(slots):,} durable frames", f"{rate:,.0f} events/s"
            )
            ack = (await client.append_all({WEATHER: weather}))[WEATHER]
            self._ledger.enter(WEATHER, ack.base_offset, ack.last_offset, weather)
            async with asyncio.timeout(30):
                return streams, await streaming.ends(client, streams)

    def _stream(
        self,
        spark: SparkSession,
        address: str,
        streams: list[str],
        starting: dict[str, int],
        everything: pa.Table,
        expectation: verify.Expectation,
    ) -> None:
        december = everything.filter(_from(everything, events.DECEMBER))
        query = streaming.start(spark, address, streams, starting, self._directory / "checkpoint")

        async def feed(advance: Callable[[int], None]) -> streaming.Outcome:
            async with sbp.aio.connect(address) as client:
                return await streaming.feed(client, query, december, self._ledger, streams, advance)

        try:
            stage = "streaming December, day by day"
            with self._screen.step(stage, december.num_rows, "events") as advance:
                outcome = asyncio.run(feed(advance))
        finally:
            query.stop()
        rate = december.num_rows / self._screen.seconds[stage]
        batches = f"{outcome.triggers} micro-batches, median {outcome.median('triggerExecution'):.0f} ms"
        self._report.add("Throughput", f"streaming query, {batches}", f"{rate:,.0f} events/s")
        for part, what in _PARTS.items():
            self._report.add("A micro-batch, medians", what, f"{outcome.median(part):.0f} ms")
        self._screen.note(
            f"{batches}, at most {outcome.largest_batch:,} rows, {outcome.rows_dropped} dropped by the watermark"
        )
        self._verify(
            "the windows of the streaming query",
            expectation.windows()
            | {"rows dropped by the watermark": 0, "rows of the streaming query": december.num_rows + 1},
            streaming.figures(spark, address)
            | {"rows dropped by the watermark": outcome.rows_dropped, "rows of the streaming query": outcome.rows},
        )

    def _query(
        self, spark: SparkSession, address: str, streams: list[str], expectation: verify.Expectation
    ) -> list[tuple[str, int, float, int]]:
        with sbp.connect(address) as client:
            client.create_stream(batch.PARTIALS, schema=batch.PARTIAL_SCHEMA)
        queries = batch.Queries(spark, address, streams)
        stage = "querying the year by carrier and month"
        with self._screen.step(stage):
            yearly = queries.batch()
        rate = yearly[verify.over_year("events")] / self._screen.seconds[stage]
        self._report.add("Throughput", "batch query by carrier and month, planning included", f"{rate:,.0f} events/s")
        self._verify("the year by carrier and month", expectation.batch(), yearly)
        with self._screen.step("joining flights with the weather"):
            joined = queries.weather()
        self._verify("the join with the weather", expectation.weather(), joined)
        with self._screen.step("letting workers append partial results"):
            partials = queries.partials()
        self._verify("the partial results of the workers", expectation.partials(), partials)
        with self._screen.step("asking for the chart's delays"):
            return queries.delays()

    def _crash(self, server: ServerProcess) -> None:
        with self._screen.step("killing the server amid appends", crash.KILL_AFTER, "acknowledged") as advance:
            outcome = asyncio.run(crash.kill_amid_appends(server, advance))
        with self._screen.step("starting it again on the same directory"):
            seconds = server.start()
        wrong = crash.check_records(server.address, outcome)
        with self._screen.step("comparing all that was acknowledged", self._ledger.records, "records") as advance:
            wrong += crash.check_events(server.address, self._ledger, advance)
        if wrong:
            raise Failure(f"after the kill {len(wrong)} promises are broken:\n  " + "\n  ".join(wrong[:_SHOWN]))
        told = (
            f"{len(outcome.acknowledged):,} acknowledged and there, {outcome.indeterminate + outcome.rejected} cut off"
        )
        self._screen.note(f"{told}; answered again after {seconds * 1e3:.0f} ms")
        self._report.add(
            "After SIGKILL", "appends acknowledged before it, all there byte for byte", f"{len(outcome.acknowledged):,}"
        )
        self._report.add(
            "After SIGKILL",
            "appends under way, whose error says they may be lost",
            f"{outcome.indeterminate + outcome.rejected:,}",
        )
        self._report.add(
            "After SIGKILL", "events and weather compared with what was acknowledged", f"{self._ledger.records:,}"
        )
        self._report.add("After SIGKILL", "until the server answered again", f"{seconds * 1e3:.0f} ms")

    def _verify(self, what: str, expected: Mapping[str, int], found: Mapping[str, int]) -> None:
        check(what, expected, found)
        self._figures += len(expected)
        self._screen.note(f"{what}: {len(expected):,} figures as in the original file")

    def _sizes(self, stored: int) -> None:
        self._report.add("Sizes", "records appended", f"{self._ledger.records:,}")
        self._report.add("Sizes", "as Arrow columns in memory", report.megabytes(self._ledger.columns_bytes))
        self._report.add("Sizes", "on the server's disk, everything", report.megabytes(stored))


def check(what: str, expected: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Raises `Failure` naming every figure that differs."""
    wrong = verify.differences(expected, found)
    if wrong:
        more = f"\n  and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        lines = "\n  ".join(str(difference) for difference in wrong[:_SHOWN])
        raise Failure(f"{what}: {len(wrong)} of {len(expected):,} figures differ\n  {lines}{more}")


def fresh(directory: Path) -> None:
    """An empty `directory`; of what was there only this demo's own leavings are removed."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    (directory / "data").mkdir()


@contextmanager
def spark_session(screen: Screen, directory: Path) -> Iterator[SparkSession]:
    """A Spark session that ends with the block."""
    with screen.step("starting Spark"):
        spark = session.start(directory)
    try:
        yield spark
    finally:
        spark.stop()


def _from(everything: pa.Table, moment: object) -> pa.Array:
    import pyarrow as arrow
    import pyarrow.compute as pc

    return pc.greater_equal(everything["happened"], arrow.scalar(moment, events.TIMESTAMP))
