"""The demo from beginning to end: replay, stream, query, verify, crash, draw."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import sbp_native as sbp

from . import batch, chart, crash, driver, events, report, session, streaming, verify
from .progress import Screen
from .replay import IN_FLIGHT, ONE, WEATHER, Copies, Ledger, create_streams, replay
from .service import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Seconds for the query with the short watermark.
_HASTY_WITHIN = 300

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


class Service(Protocol):
    """What has the streams: one server, or several."""

    @property
    def address(self) -> str:
        """What a client connects to."""

    def start(self) -> float:
        """Starts it and waits until it answers; returns the seconds that took."""

    def stop(self) -> None:
        """Ends it."""

    def stored_bytes(self) -> int:
        """The size of everything that it has on disk."""


class Demo:
    """One run with the first `months` of the year; everything it leaves behind lies below `directory`."""

    title = "A year of flights through SBP streams, Spark and back"
    in_flight = IN_FLIGHT

    def __init__(self, directory: Path, months: int = 12, copies: Copies = ONE) -> None:
        self._directory = directory
        self._months = months
        self._copies = copies
        self._screen = Screen()
        self._report = report.Report(self.title)
        self._ledger = Ledger()
        self._figures = 0

    def run(self) -> None:
        """Runs every stage.

        Raises `Failure` for the first stage whose result is wrong.
        """
        started = time.perf_counter()
        fresh(self._directory)
        screen = self._screen
        screen.title(self.title)
        with screen.step("reading the original file"):
            source = events.data_dir()
            everything = self._told(events.make_events(events.read_flights(source, self._months)))
            weather = events.read_weather(source)
            expectation = verify.Expectation(months=self._months)

        service = self._service()
        try:
            self._start(service)
            streams = asyncio.run(self._replay(service.address, everything, weather))
            self._replayed(streams)
            batches = self._stream_and_kill(service.address, streams, everything.num_rows + 1)
            self._between_drivers()
            with spark_session(screen, self._directory) as spark:
                self._go_on(spark, service.address, streams, batches, everything.num_rows + 1)
                self._windows(spark, service.address, batches, everything.num_rows + 1, expectation)
                self._hasty(spark, service.address, streams, everything.num_rows)
                delays = self._query(spark, service.address, streams, expectation)
            stored = service.stored_bytes()
            self._end(service)
        finally:
            self._stop(service)

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

    # What a demo with another service does differently.

    def _told(self, everything: pa.Table) -> pa.Table:
        """The events as they are replayed."""
        return everything

    def _service(self) -> Service:
        """What the streams are kept in; not started."""
        return ServerProcess(self._directory / "data", self._directory / "server.log")

    def _start(self, service: Service) -> None:
        with self._screen.step("starting the durable server"):
            service.start()

    def _stop(self, service: Service) -> None:
        service.stop()

    def _created(self) -> None:
        """The streams are there, and empty."""

    def _replayed(self, streams: list[str]) -> None:
        """All events are in the streams."""

    def _between_drivers(self) -> None:
        """The first driver of the streaming query was killed, and the second one not started."""

    def _read(self, share: float) -> None:
        """The streaming query has read this share of the events."""

    def _end(self, service: Service) -> None:
        """All figures were compared; the service runs."""
        assert isinstance(service, ServerProcess)
        self._crash(service)

    async def _replay(self, address: str, everything: pa.Table, weather: pa.Table) -> list[str]:
        """The whole year, and all the weather; returns the streams."""
        slots = events.slots(everything, hours=12)
        async with sbp.aio.connect(address) as client:
            streams = await create_streams(client, everything["carrier"].unique().to_pylist(), self._copies)
            await asyncio.to_thread(self._created)
            stage = "replaying the year"
            with self._screen.step(stage, everything.num_rows, "events") as advance:
                await replay(client, slots, self._ledger, advance, self.in_flight)
            rate = everything.num_rows / self._screen.seconds[stage]
            self._report.add(
                "Throughput", f"replay from asyncio, {len(slots):,} durable frames", f"{rate:,.0f} events/s"
            )
            closing = events.closing_event()
            last = events.stream_name(closing["carrier"][0].as_py())
            for name, rows, timestamp in ((last, closing, closing["happened"][0].as_py()), (WEATHER, weather, None)):
                ack = (await client.append_all({name: rows}, timestamp=timestamp))[name]
                self._ledger.enter(name, ack.base_offset, ack.last_offset, rows)
            return streams

    def _stream_and_kill(self, address: str, streams: list[str], records: int) -> streaming.Outcome:
        """The streaming query in a driver of its own, which is killed half-way."""
        outcome = streaming.Outcome()
        with self._screen.step("streaming the year, and killing the driver", records // 2, "events") as advance:

            def half(progress: dict[str, Any]) -> bool:
                advance(outcome.add(progress))
                self._read(outcome.rows / records)
                return outcome.rows >= records // 2

            if driver.drive(self._job(address, streams), self._directory / "driver", half):
                raise Failure("the streaming query came to its end before its driver was killed")
        return outcome

    def _job(self, address: str, streams: list[str]) -> streaming.Job:
        checkpoint = streaming.checkpoint(self._directory, "windows")
        return streaming.Job(
            address, tuple(streams), streaming.WINDOWS, streaming.WATERMARK, checkpoint, **self._copies.options()
        )

    def _go_on(
        self, spark: SparkSession, address: str, streams: list[str], outcome: streaming.Outcome, records: int
    ) -> None:
        """The same query on its checkpoint, with this process as its driver."""
        killed_after, killed_at = outcome.triggers, outcome.read_to
        with self._screen.step("starting it again on its checkpoint", records - killed_at, "events") as advance:

            def heard(progress: dict[str, Any]) -> None:
                advance(outcome.add(progress))
                self._read(outcome.read_to / records)

            driver.go_on(spark, self._job(address, streams), heard)
        after = outcome.triggers - killed_after
        self._screen.note(f"SIGKILL after {killed_after} micro-batches and {killed_at:,} events, {after} after it")
        batches = f"{outcome.triggers} micro-batches, median {outcome.median('triggerExecution'):.0f} ms"
        self._screen.note(
            f"{batches}, at most {outcome.largest_batch:,} rows, {outcome.rows_dropped} dropped by the watermark"
        )
        per_second = outcome.median("triggerExecution") / 1e3
        self._report.add(
            "Throughput", f"streaming query, {batches}", f"{streaming.ROWS_PER_TRIGGER / per_second:,.0f} events/s"
        )
        for part, what in _PARTS.items():
            self._report.add("A micro-batch, medians", what, f"{outcome.median(part):.0f} ms")
        self._report.add("The driver", "micro-batches before SIGKILL", f"{killed_after}")
        self._report.add("The driver", "micro-batches after it", f"{after}")

    def _windows(
        self,
        spark: SparkSession,
        address: str,
        outcome: streaming.Outcome,
        records: int,
        expectation: verify.Expectation,
    ) -> None:
        with self._screen.step("reading the windows back"):
            windows = streaming.figures(spark, address, streaming.WINDOWS)
        dropped, read = "rows dropped by the watermark", "events that the streaming query has read"
        self._verify(
            "the windows of the streaming query",
            expectation.windows() | {dropped: 0, read: records},
            windows | {dropped: outcome.rows_dropped, read: outcome.read_to},
        )

    def _hasty(self, spark: SparkSession, address: str, streams: list[str], total: int) -> None:
        """The same query with a watermark that is too short for some flights."""
        checkpoint = streaming.checkpoint(self._directory, "hasty")
        job = streaming.Job(
            address,
            tuple(streams),
            streaming.HASTY_WINDOWS,
            streaming.HASTY_WATERMARK,
            checkpoint,
            **self._copies.options(),
        )
        with self._screen.step(f"the same with a watermark of {streaming.HASTY_WATERMARK}"):
            streaming.judge_by_last_batch(spark)
            query = streaming.start(spark, job)
            if not query.awaitTermination(_HASTY_WITHIN):
                query.stop()
                raise Failure(f"the query with the short watermark did not end within {_HASTY_WITHIN} s")
            found = streaming.counted(streaming.figures(spark, address, streaming.HASTY_WINDOWS))
        late = total - found
        if not 0 < late < total:
            raise Failure(
                f"with a watermark of {streaming.HASTY_WATERMARK}, {found:,} of {total:,} events were counted"
            )
        told = f"{late:,} of {total:,} events ({late / total:.2%})"
        self._screen.note(f"{told} came after their window was closed, and are in none")
        self._report.add("Late events", f"with a watermark of {streaming.HASTY_WATERMARK}, in no window", told)
        self._report.add("Late events", f"with a watermark of {streaming.WATERMARK}", "none")

    def _query(
        self, spark: SparkSession, address: str, streams: list[str], expectation: verify.Expectation
    ) -> list[tuple[str, int, float, int]]:
        with sbp.connect(address) as client:
            client.create_stream(batch.PARTIALS, schema=batch.PARTIAL_SCHEMA, **self._copies.options())
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
        self._compare(server.address, crash.check_records(server.address, outcome))
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

    def _compare(self, address: str, wrong: list[str]) -> None:
        """Compares every event with what was acknowledged, and fails with what is `wrong` already and that."""
        with self._screen.step("comparing all that was acknowledged", self._ledger.records, "records") as advance:
            wrong = wrong + crash.check_events(address, self._ledger, advance)
        if wrong:
            raise Failure(f"{len(wrong)} promises are broken:\n  " + "\n  ".join(wrong[:_SHOWN]))

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
