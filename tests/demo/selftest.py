"""Shows that the check can fail: three small lies, each through a real server and Spark, each must be named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import sbp_native as sbp

from . import batch, events, verify
from .cluster import ClusterDemo
from .pipeline import Failure, check, fresh, spark_session
from .progress import Screen
from .replay import Ledger, create_streams, replay
from .service import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def drop_one(table: pa.Table) -> pa.Table:
    """The events without one from the middle of the year."""
    victim = table.num_rows // 2
    return pa.concat_tables([table.slice(0, victim), table.slice(victim + 1)]).combine_chunks()


def duplicate_one(table: pa.Table) -> pa.Table:
    """The events with one of them twice."""
    twin = table.num_rows // 3
    return pa.concat_tables([table.slice(0, twin + 1), table.slice(twin)]).combine_chunks()


def swap_two_carriers(table: pa.Table) -> pa.Table:
    """The events with the carriers of two neighbours exchanged: every total stays what it was."""
    carriers = table["carrier"].to_pylist()
    kinds, distances = table["kind"].to_pylist(), table["distance"].to_pylist()
    for one in range(table.num_rows // 4, table.num_rows - 1):
        other = one + 1
        departures = kinds[one] == kinds[other] == events.DEPARTURE
        if departures and carriers[one] != carriers[other] and distances[one] != distances[other]:
            order = np.arange(table.num_rows)
            order[[one, other]] = order[[other, one]]
            swapped = table["carrier"].take(pa.array(order))
            return table.set_column(table.column_names.index("carrier"), events.EVENT_SCHEMA.field("carrier"), swapped)
    raise AssertionError("no two neighbouring departures of different carriers")


LIES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "one event dropped": drop_one,
    "one event twice": duplicate_one,
    "two carriers swapped": swap_two_carriers,
}


def run(directory: Path) -> None:
    """Tells each lie to a server of its own.

    Raises `Failure` if the check believes one.
    """
    screen = Screen()
    fresh(directory)
    with screen.step("reading the original file"):
        honest = events.make_events(events.read_flights(events.data_dir()))
        expected = verify.Expectation().batch()
    believed = []
    with spark_session(screen, directory) as spark:
        for name, lie in LIES.items():
            tampered = lie(honest)
            data = directory / name.replace(" ", "-")
            data.mkdir()
            with ServerProcess(data, directory / "server.log") as server:
                with screen.step(f"{name}: replaying", tampered.num_rows, "events") as advance:
                    streams = asyncio.run(_append(server.address, tampered, advance))
                with screen.step(f"{name}: querying"):
                    found = batch.Queries(spark, server.address, streams).batch()
            try:
                check("the year by carrier and month", expected, found)
            except Failure as failure:
                screen.note(f"caught, {failure}")
            else:
                believed.append(name)
    if believed:
        raise Failure(f"the check did not notice: {', '.join(believed)}")
    screen.title("Each of the three made the check fail and was named.")


def run_cluster(directory: Path, months: int) -> None:
    """Drops an event on its way into the cluster, whose servers are lost as ever.

    Raises `Failure` if the check does not notice.
    """
    screen = Screen()
    try:
        ClusterDemo(directory, months, drop_one).run()
    except Failure as failure:
        if "figures differ" not in str(failure):
            raise
        screen.note(f"caught, {failure}")
        screen.title("The event that was dropped made the check fail.")
        return
    raise Failure("the check did not notice that an event was dropped")


async def _append(address: str, table: pa.Table, advance: Callable[[int], None]) -> list[str]:
    # Replayed in its own order: the lie may have disturbed no more than it says.
    assert pc.all(pc.greater_equal(table["happened"][1:], table["happened"][:-1])).as_py()
    async with sbp.aio.connect(address) as client:
        streams = await create_streams(client, table["carrier"].unique().to_pylist())
        await replay(client, events.slots(table, hours=24), Ledger(), advance)
    return streams
