"""Where batch reads start and end: by offset, distance, and time, against a real server and without Spark."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from sbp_native.spark import SbpDataSource
from sbp_native.spark.errors import SbpOptionError

if TYPE_CHECKING:
    import sbp_native as sbp

SECOND = 1_700_000_000_000


def planned(server: sbp.Server, load: str, **options: object) -> list[tuple[int, int, int]]:
    """The spans of a batch read."""
    given = {"servers": server.address, "path": load} | {name: str(value) for name, value in options.items()}
    if not load:
        del given["path"]
    source = SbpDataSource(given)
    reader = source.reader(source.schema())
    return [span for partition in reader.partitions() for span in partition.spans]


def refusal(server: sbp.Server, load: str, **options: object) -> str:
    with pytest.raises(SbpOptionError) as caught:
        planned(server, load, **options)
    return str(caught.value)


@pytest.fixture
def timed(client: sbp.Client, name: str) -> sbp.Stream:
    """A stream of ten batches of three records; the times of the three differ by ten seconds each."""
    stream = client.create_stream(name)
    for batch in range(10):
        rows = [
            {"value": b"%d" % (3 * batch + row), "timestamp": SECOND + (3 * batch + row) * 10_000} for row in range(3)
        ]
        append_rows(stream, rows)
    return stream


def append_rows(stream: sbp.Stream, rows: list[dict[str, object]]) -> None:
    """One batch whose records have times of their own."""
    import pyarrow as pa

    times = pa.array([row["timestamp"] for row in rows], pa.timestamp("ms", tz="UTC"))
    values = pa.array([row["value"] for row in rows], pa.binary())
    stream.append(pa.record_batch([times, values], names=["timestamp", "value"]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 30)),
        ({"startingOffsets": "latest-7"}, (23, 30)),
        ({"startingOffsets": "latest-1000"}, (0, 30)),
        ({"startingOffsets": "latest-7", "endingOffsets": "latest-2"}, (23, 28)),
        ({"endingOffsets": "latest-30"}, None),
        ({"startingTimestamp": SECOND}, (0, 30)),
        ({"startingTimestamp": SECOND - 5}, (0, 30)),
        # Inside a batch: exact, though the server knows the times of batches alone.
        ({"startingTimestamp": SECOND + 40_000}, (4, 30)),
        ({"startingTimestamp": SECOND + 40_001}, (5, 30)),
        # Older records may stand behind newer ones, so that all are read; the rows are those of the window.
        ({"endingTimestamp": SECOND + 40_000}, (0, 30)),
        ({"startingTimestamp": SECOND + 20_000, "endingTimestamp": "2023-11-14T22:14:20Z"}, (2, 30)),
        ({"startingTimestamp": SECOND + 290_000, "startingOffsets": "earliest"}, (29, 30)),
        ({"startingTimestamp": SECOND + 290_001, "startingOffsetsByTimestampStrategy": "latest"}, None),
        ({"startingTimestamp": "-300000d", "endingOffsets": "latest-1"}, (0, 29)),
    ],
)
def test_places(server: sbp.Server, timed: sbp.Stream, options: dict, expected: tuple[int, int] | None) -> None:
    assert planned(server, timed.name, **options) == ([(timed.id, *expected)] if expected else [])


def test_places_per_stream(server: sbp.Server, client: sbp.Client, timed: sbp.Stream, name: str) -> None:
    other = client.create_stream(f"{name}/other")
    other.append([b"x"] * 5)
    both = f"{name},{name}/other"
    offsets = json.dumps({name: "latest-4", str(other.id): 2})
    assert planned(server, both, startingOffsets=offsets) == [(timed.id, 26, 30), (other.id, 2, 5)]
    times = json.dumps({name: SECOND + 100_000, f"{name}/other": "-1h"})
    ends = json.dumps({name: "2023-11-14T22:15:30+00:00", f"{name}/other": int(time.time() * 1000) + 3_600_000})
    assert planned(server, both, startingOffsetsByTimestamp=times, endingOffsetsByTimestamp=ends) == [
        (timed.id, 10, 30),
        (other.id, 0, 5),
    ]


def test_a_distance_from_now(server: sbp.Server, client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    now = int(time.time() * 1000)
    for minutes in (90, 30, 1):
        stream.append([b"x"] * 2, timestamp=now - 60_000 * minutes)
    assert planned(server, name, startingTimestamp="-1h") == [(stream.id, 2, 6)]
    assert planned(server, name, startingTimestamp="-10m") == [(stream.id, 4, 6)]
    assert planned(server, name, startingTimestamp="-1h", endingTimestamp="-10m") == [(stream.id, 2, 6)]


def test_a_time_that_no_record_has_reached(server: sbp.Server, timed: sbp.Stream) -> None:
    line = refusal(server, timed.name, startingTimestamp=SECOND + 300_000)
    assert "[SBP-9203] option 'startingTimestamp' asks for time 1700000300000" in line
    assert f"stream {timed.name} ({timed.id}) has no record of that time or later" in line
    assert "set startingOffsetsByTimestampStrategy=latest" in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"elsewhere": 3}'}, "names 'elsewhere', which is not read here: did you mean"),
        ({"startingOffsets": '{"NAME": 31}'}, "gives stream NAME (ID) the offset 31, it holds [0, 30): take one of"),
        ({"endingOffsets": '{"NAME": 31}'}, "gives stream NAME (ID) the offset 31, it holds [0, 30): take one of"),
        ({"startingOffsets": '{"NAME": 7}', "endingOffsets": '{"NAME": 6}'}, "would be read from 7 back to 6"),
        ({"startingOffsets": "latest"}, "a batch read that starts at the end reads nothing"),
        ({"startingTimestamp": "7", "endingTimestamp": "6"}, "would be read from time 7 back to 6: swap the options"),
    ],
)
def test_places_that_are_refused(server: sbp.Server, client: sbp.Client, options: dict, expected: str) -> None:
    name = f"elsewher/{time.monotonic_ns()}"
    stream = client.create_stream(name)
    stream.append([b"x"] * 30)
    given = {key: value.replace("NAME", name) for key, value in options.items()}
    assert expected.replace("NAME", name).replace("ID", str(stream.id)) in refusal(server, name, **given)


def test_every_stream_needs_a_place(server: sbp.Server, client: sbp.Client, timed: sbp.Stream, name: str) -> None:
    client.create_stream(f"{name}/other")
    line = refusal(server, f"{name},{name}/other", startingOffsets=json.dumps({name: 3}))
    assert f"option 'startingOffsets' leaves out stream {name}/other (" in line


def test_a_pattern_names_streams(server: sbp.Server, client: sbp.Client, name: str) -> None:
    ids = {}
    for part in ("a/1", "a/2", "b/1"):
        stream = client.create_stream(f"{name}/{part}")
        stream.append(b"x")
        ids[part] = stream.id
    assert planned(server, "", streamsPattern=f"{name}/a/.*") == [(ids["a/1"], 0, 1), (ids["a/2"], 0, 1)]
    assert planned(server, "", streamsPattern=f"{name}/./1") == [(ids["a/1"], 0, 1), (ids["b/1"], 0, 1)]
    # The whole name must match.
    assert "[SBP-1404] no stream matches streamsPattern" in refusal(server, "", streamsPattern=f"{name}/a")
    assert planned(server, "", streamsPattern=f"{name}/a", columns="records") == []
