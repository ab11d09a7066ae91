"""The chart: when in the day, and with whom, do flights leave late?"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap

#: A mean of fewer departures says nothing and is left white.
_ENOUGH = 10
_LATEST = 45.0


def draw(delays: Iterable[tuple[str, int, float, int]], airlines: dict[str, str], path: Path) -> None:
    """Draws the mean departure delay by scheduled hour and carrier: (carrier, hour, minutes, departures)."""
    cells = {(carrier, hour): (mean, count) for carrier, hour, mean, count in delays}
    totals: dict[str, int] = {}
    for (carrier, _), (_, count) in cells.items():
        totals[carrier] = totals.get(carrier, 0) + count
    carriers = sorted(totals, key=lambda carrier: -totals[carrier])
    hours = [hour for hour in range(24) if sum(cells.get((c, hour), (0, 0))[1] for c in carriers) >= _ENOUGH]
    grid = np.full((len(carriers), len(hours)), np.nan)
    for row, carrier in enumerate(carriers):
        for column, hour in enumerate(hours):
            mean, count = cells.get((carrier, hour), (np.nan, 0))
            if count >= _ENOUGH:
                grid[row, column] = mean

    colours = LinearSegmentedColormap.from_list("delay", ["#f2f6f5", "#f6d28b", "#e2793c", "#9c1f34", "#3d0b2b"])
    colours.set_bad("#ffffff")
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 9.5, "axes.edgecolor": "#cccccc"}):
        figure, axes = plt.subplots(figsize=(12.5, 7.2), dpi=150)
        figure.subplots_adjust(left=0.185, right=0.99, top=0.875, bottom=0.085)
        image = axes.pcolormesh(grid, cmap=colours, vmin=0, vmax=_LATEST, edgecolors="white", linewidth=1.5)
        for (row, column), mean in np.ndenumerate(grid):
            if not np.isnan(mean):
                colour = "white" if mean > _LATEST * 0.5 else "#333333"
                axes.text(
                    column + 0.5, row + 0.52, f"{round(mean)}", ha="center", va="center", fontsize=8, color=colour
                )
        axes.set_yticks(
            np.arange(len(carriers)) + 0.5,
            [f"{airlines.get(c, c)}  {c}  {totals[c]:>7,}".replace(",", "\u2009") for c in carriers],
        )
        axes.set_xticks(np.arange(len(hours)) + 0.5, [f"{hour}" for hour in hours])
        axes.set_xlabel("scheduled hour of departure, New York time", labelpad=8)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.text(0.012, 0.945, "Delays build up over the day", fontsize=17, fontweight="bold", color="#222222")
        subtitle = (
            "Mean departure delay in minutes, flights from New York in 2013, by carrier (with its departures) and hour"
        )
        figure.text(0.012, 0.905, subtitle, fontsize=11, color="#555555")
        bar = figure.colorbar(image, ax=axes, shrink=0.45, aspect=22, fraction=0.03, pad=0.012, extend="max")
        bar.outline.set_visible(False)
        bar.set_label("minutes")
        figure.savefig(path, facecolor="white")
        plt.close(figure)


def airline_names(directory: Path) -> dict[str, str]:
    """Carrier code to the airline's name, without what all of them have in it."""
    with (directory / "airlines.csv").open(newline="") as file:
        return {
            row["carrier"]: row["name"].replace(" Inc.", "").replace(" Co.", "").replace(" Corporation", "").strip()
            for row in csv.DictReader(file)
        }
