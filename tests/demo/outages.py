"""What was done to a cluster, and a picture of what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .pulses import Pulses

mpl.use("Agg")

from matplotlib import pyplot as plt

#: Seconds of one column of the picture.
_COLUMN = 0.25


@dataclass
class Fault:
    """What was done to a server at which time, and when every range had its copies again."""

    at: float
    what: str
    server: str
    #: The streams whose appends it took.
    streams: frozenset[str]
    whole_at: float | None = None


def draw(pulses: Pulses, faults: Sequence[Fault], servers: Sequence[str], begun: float, path: Path) -> None:
    """Draws acknowledged appends a second over time, and below them each server: there, away, or without its copies."""
    times = np.sort(np.concatenate([np.array(each) for each in pulses.acknowledged.values()])) - begun
    edges = np.arange(times[0], times[-1], _COLUMN)
    rates = np.histogram(times, edges)[0] / _COLUMN
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 9.5, "axes.edgecolor": "#cccccc"}):
        figure, (top, lanes) = plt.subplots(
            2, 1, figsize=(11, 4.6), dpi=130, sharex=True, height_ratios=(3, 1.3), layout="constrained"
        )
        top.fill_between(edges[:-1], rates, step="post", color="#2a7f9e", linewidth=0)
        top.set_ylim(0, rates.max() * 1.25)
        top.set_ylabel("appends acknowledged\na second")
        for number, fault in enumerate(faults):
            at = fault.at - begun
            top.axvline(at, color="#9c1f34", linewidth=1)
            until = faults[number + 1].at if number + 1 < len(faults) else float("inf")
            longest = max(pulses.longest(fault.at, until).values())
            label = f" {fault.what.split(',')[0]}\n stood still for {longest:.2f} s at most"
            top.text(at, top.get_ylim()[1], label, va="top", color="#9c1f34", fontsize=8.5)
        for row, server in enumerate(servers):
            lanes.barh(row, times[-1] - times[0], left=times[0], height=0.55, color="#8fc3a0")
            for fault in faults:
                if fault.server == server and fault.whole_at is not None:
                    lanes.barh(row, fault.whole_at - fault.at, left=fault.at - begun, height=0.55, color="#e2793c")
                    lanes.text(
                        fault.whole_at - begun, row, " has its copies again", va="center", fontsize=8, color="#333333"
                    )
        lanes.set_yticks(range(len(servers)), servers)
        lanes.invert_yaxis()
        lanes.set_xlabel("seconds")
        for axes in (top, lanes):
            axes.tick_params(length=0)
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, facecolor="white")
        plt.close(figure)
