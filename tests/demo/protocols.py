"""Flights that come in through clients of TANK, Pravega and Seastar RPC, and go through one query of Spark.

Every third event takes each way. The server is killed with SIGKILL half-way, amid the appends of two of them, while the
query runs. Each figure is compared with the original file.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from tests.pravega.server import wheel_python

from . import batch, events, streaming, verify
from .pipeline import Failure, check, fresh, spark_session
from .progress import Screen
from .service import ServerProcess, free_port
from .ways import PATIENCE, Pravega, Seastar, Tank, Way

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from .ways import Event

TITLE = "Flights through TANK, Pravega and Seastar RPC into one query of Spark"

#: Where the clients put the events: a topic, a stream of Pravega, a stream of this server.
TOPIC, PARTITIONS, STREAM, CALLED = "flights", 2, "air/flights", "flights-by-rpc"
#: The streams that those are.
STREAMS = ("flights/0", "flights/1", "air/flights/0", CALLED)
#: The columns of an event that the figures are made of, as JSON and as Spark reads it.
_COLUMNS = ("kind", "time_hour", "month", "carrier", "distance", "dep_delay", "arr_delay")
_SCHEMA = "kind string, time_hour bigint, month int, carrier string, distance int, dep_delay int, arr_delay int"
#: Events that a way sends at a time while the server is killed.
_PIECE = 10
#: Seconds until the query has read what was stored.
_READ_WITHIN = 120.0


class ProtocolsDemo:
    """One run with the first `months` of the year; everything it leaves behind lies below `directory`."""

    def __init__(self, directory: Path, months: int) -> None:
        self._directory, self._months = directory, months
        self._screen = Screen()
        self._figures = 0
        self._under_way = 0
        self._listens = {name: f"127.0.0.1:{free_port()}" for name in ("tank", "pravega", "seastar")}

    def run(self) -> None:
        """Runs every stage.

        Raises `Failure` for the first stage whose result is wrong.
        """
        fresh(self._directory)
        screen = self._screen
        screen.title(TITLE)
        with screen.step("reading the original file"):
            everything = events.make_events(events.read_flights(events.data_dir(), self._months))
            slots = [self._thirds(slot) for slot in events.slots(everything, hours=12)]
            expectation = verify.Expectation(months=self._months)
        with screen.step("installing the client of Pravega"):
            python = wheel_python()
        server = ServerProcess(self._directory / "data", self._directory / "server.log")
        server.options = [word for name, place in self._listens.items() for word in (f"--{name}-listen", place)]
        ways: list[Way] = []
        try:
            with screen.step("starting the durable server, with four listeners"):
                server.start()
            with screen.step("connecting its clients"):
                ways.append(Tank(self._listens["tank"], TOPIC, PARTITIONS))
                called = Seastar(self._listens["seastar"], CALLED)
                ways.append(called)
                ways.append(Pravega(self._listens["pravega"], STREAM, python))
            with spark_session(screen, self._directory) as spark:
                query = self._start(spark, server.address)
                self._send(ways, slots, server)
                screen.note(
                    f"SIGKILL with {self._under_way} ways amid appends; Seastar RPC sent {called.again} times again"
                )
                self._finish(query, ways, everything.num_rows)
                self._verify(spark, server.address, expectation)
        finally:
            for way in ways:
                way.close()
            server.stop()
        screen.title(f"All {self._figures:,} figures equal those of the original file.")

    def _thirds(self, slot: events.Slot) -> list[list[Event]]:
        """The events of a slot by the way that they take."""
        rows = [row for table in slot.streams.values() for row in table.select([*_COLUMNS, "row"]).to_pylist()]
        return [[_as_event(row) for row in rows if row["row"] % 3 == third] for third in range(3)]

    def _start(self, spark: SparkSession, address: str) -> StreamingQuery:
        source = (
            spark.readStream.format("sbp")
            .option("servers", address)
            .option("streams", ",".join(STREAMS))
            .option("startingOffsets", "earliest")
            .load()
        )
        return (
            streaming.windowed(_parsed(source), streaming.WATERMARK)
            .writeStream.format("sbp")
            .option("servers", address)
            .option("body", "arrow")
            .option("createStreams", "true")
            .option("sortWithinBatch", "true")
            .option("checkpointLocation", streaming.checkpoint(self._directory, "windows"))
            .outputMode("append")
            .start(streaming.WINDOWS)
        )

    def _send(self, ways: Sequence[Way], slots: Sequence[list[list[Event]]], server: ServerProcess) -> None:
        total = sum(len(third) for slot in slots for third in slot)
        with self._screen.step("sending events while Spark reads them", total, "events") as advance:
            for number, slot in enumerate(slots):
                killing = number == len(slots) // 2
                # TANK knows no repeats: nothing of it is under way when the server is killed.
                ways[0].send(slot[0])
                if killing:
                    self._kill_amid(ways[1:], slot[1:], server)
                else:
                    _together(zip(ways[1:], slot[1:], strict=True))
                advance(sum(map(len, slot)))

    def _kill_amid(self, ways: Sequence[Way], thirds: Sequence[list[Event]], server: ServerProcess) -> None:
        """Kills the server while both ways send piece after piece, and starts it again."""
        sent = threading.Semaphore(0)

        def send(way: Way, third: list[Event]) -> None:
            for start in range(0, len(third), _PIECE):
                way.send(third[start : start + _PIECE])
                sent.release()

        with ThreadPoolExecutor(len(ways)) as threads:
            sending = [threads.submit(send, way, third) for way, third in zip(ways, thirds, strict=True)]
            # Both have most of their pieces before them then.
            for _ in ways:
                sent.acquire(timeout=PATIENCE)
            server.kill()
            self._under_way = sum(not one.done() for one in sending)
            server.start()
            for one in sending:
                one.result()
        if self._under_way < len(ways):
            raise Failure(f"only {self._under_way} ways had appends under way when the server was killed")

    def _finish(self, query: StreamingQuery, ways: Sequence[Way], total: int) -> None:
        with self._screen.step("waiting until the query has read everything"):
            closing = _as_event(events.closing_event().to_pylist()[0])
            _together([(way, [closing]) for way in ways])
            wanted, limit = total + len(ways), time.monotonic() + _READ_WITHIN
            while _read_to(query) < wanted:
                if not query.isActive:
                    raise Failure(f"the query has ended: {query.exception()}")
                if time.monotonic() > limit:
                    raise Failure(f"the query has read {_read_to(query):,} of {wanted:,} events")
                time.sleep(0.2)
            query.processAllAvailable()
            query.stop()

    def _verify(self, spark: SparkSession, address: str, expectation: verify.Expectation) -> None:
        with self._screen.step("reading the windows back"):
            windows = streaming.figures(spark, address, streaming.WINDOWS)
        self._check("the windows of the streaming query", expectation.windows(), windows)
        with self._screen.step("querying all streams by carrier and month"):
            source = spark.read.format("sbp").option("servers", address).load(",".join(STREAMS))
            found = batch.by_month(_parsed(source).where(fn.col("kind") != events.CLOSING))
        self._check("all streams by carrier and month", expectation.batch(), found)

    def _check(self, what: str, expected: verify.Figures, found: verify.Figures) -> None:
        check(what, expected, found)
        self._figures += len(expected)
        self._screen.note(f"{what}: {len(expected):,} figures as in the original file")


def _together(sending: Iterable[tuple[Way, list[Event]]]) -> None:
    """Sends each way's events side by side, and waits for all of them."""
    with ThreadPoolExecutor() as threads:
        for one in [threads.submit(way.send, third) for way, third in sending]:
            one.result()


def _as_event(row: dict[str, Any]) -> Event:
    """A row as its key and its JSON."""
    values = {name: row[name] for name in _COLUMNS}
    values["time_hour"] = round(row["time_hour"].astimezone(dt.UTC).timestamp() * 1_000)
    return row["carrier"].encode(), json.dumps(values).encode()


def _parsed(source: DataFrame) -> DataFrame:
    """Records as events."""
    values = source.select(fn.from_json(fn.col("value").cast("string"), _SCHEMA).alias("event")).select("event.*")
    return values.withColumn("time_hour", fn.timestamp_millis("time_hour"))


def _read_to(query: StreamingQuery) -> int:
    """How many events the query has read."""
    progress = query.lastProgress
    end = progress["sources"][0]["endOffset"] if progress else None
    return sum((json.loads(end) if isinstance(end, str) else end)["o"].values()) if end else 0
