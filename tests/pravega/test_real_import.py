"""``sbp import pravega`` from a real server."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from pravega.control import scale, truncate
from pravega.ours import CLIENTS, Ours, ask_at
from pravega.writing import Writing, check, event
from sbp_native import pravega
from sbp_native.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sbp_native.pravega import Pravega

pytestmark = pytest.mark.timeout(300)
WITHIN = 120.0


@pytest.fixture
def ours() -> Iterator[Ours]:
    """`sbp serve`, with an address for clients of Pravega."""
    with Ours() as server:
        yield server


def command(ours: Ours, source: Pravega, stream: str, *more: str) -> list[str]:
    return [ours.sbp, "import", "pravega", stream, "--from", source.address, "--servers", ours.address, *more]


def run(ours: Ours, source: Pravega, stream: str, *more: str) -> dict[str, dict[str, Any]]:
    """Imports up to the end: what became of each segment, by the stream's name."""
    asked = command(ours, source, stream, "--json", *more)
    done = subprocess.run(asked, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    return {told["stream"]: told for told in map(json.loads, done.stdout.splitlines())}


@contextmanager
def following(ours: Ours, source: Pravega, stream: str) -> Iterator[subprocess.Popen[str]]:
    """An import that goes on; it is killed at the end, if it is not over then."""
    asked = command(ours, source, stream, "--follow", "--json")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as importing:
        try:
            yield importing
        finally:
            importing.kill()


def imported(client: sbp.Client, stream: str) -> list[str]:
    """The streams of a stream's segments, in the order of their numbers."""
    names = [info.name for info in client.list_streams() if info.name.startswith(f"{stream}/")]
    return sorted(names, key=lambda name: int(name.rpartition("/")[2]))


def stored(client: sbp.Client, stream: str) -> int:
    """Records that are imported."""
    return sum(client.stream(name).positions().latest for name in imported(client, stream))


def contents(client: sbp.Client, stream: str) -> list[bytes]:
    """All of them, one segment after the other."""
    return [
        value or b""
        for name in imported(client, stream)
        for batch in client.stream(name).read(start="earliest", end="latest")
        for value in batch.values
    ]


def test_an_import_is_killed_again_and_again_while_the_stream_is_scaled(
    source: Pravega, stream: str, ours: Ours
) -> None:
    with sbp.connect(ours.address, timeout=20) as client:
        with Writing(source, stream) as writing:
            for kill in range(8):
                before = stored(client, stream)
                with following(ours, source, stream):
                    if kill == 2:
                        scale(source, stream, [0, 0.5, 1])
                    if kill == 5:
                        scale(source, stream, [0, 1])
                    eventually(lambda before=before: stored(client, stream) >= before + 200, timeout=WITHIN)
        told = run(ours, source, stream)
        assert list(told) == [f"{stream}/{number}" for number in range(4)]
        assert sum(each["before"] + each["imported"] for each in told.values()) == writing.count
        check(contents(client, stream), writing.count)
        again = run(ours, source, stream)
        assert all(each["imported"] == 0 for each in again.values())


def test_an_import_goes_on_over_scalings(source: Pravega, stream: str, ours: Ours) -> None:
    """One run takes the segments that follow, and a stream that is sealed ends it."""
    with sbp.connect(ours.address, timeout=20) as client, following(ours, source, stream) as importing:
        with Writing(source, stream) as writing:
            for cuts in ([0, 0.5, 1], [0, 0.2, 0.4, 1], [0, 1]):
                written = writing.count
                eventually(lambda written=written: stored(client, stream) > written, timeout=WITHIN)
                scale(source, stream, cuts)
            written = writing.count
            eventually(lambda written=written: stored(client, stream) > written, timeout=WITHIN)
        source.seal_stream(stream)
        assert importing.stdout is not None
        told = [json.loads(line) for line in importing.stdout]
        assert importing.wait(WITHIN) == 0
        assert sum(each["imported"] for each in told) == writing.count
        check(contents(client, stream), writing.count)


@pytest.mark.parametrize("name", CLIENTS)
def test_clients_of_pravega_read_what_was_imported(source: Pravega, stream: str, ours: Ours, name: str) -> None:
    """From our server, in the order of the segments; also where the source has lost the first one."""
    with source.writer(stream) as writer:
        writer.append_many(map(event, range(300)))
        scale(source, stream, [0, 0.5, 1])
        writer.append_many(map(event, range(300, 600)))
        scale(source, stream, [0, 1])
        writer.append_many(map(event, range(600, 900)))
    scope, _, short = stream.partition("/")

    def read(server: Ours, count: int) -> Iterator[bytes]:
        events = ask_at(CLIENTS[name], server.pravega, "read", scope, short, "group", str(count), "1")["events"]
        return (content.encode() for content in events)

    run(ours, source, stream)
    check(read(ours, 900), 900)
    with pravega.connect(ours.pravega, timeout=60) as client:
        check((value or b"" for batch in client.read(stream, end="latest") for value in batch.values), 900)
    # A producer goes on there.
    assert ask_at(CLIENTS[name], ours.pravega, "write", scope, short, "1", "100") == {"stored": 100}
    with sbp.connect(ours.address, timeout=20) as client:
        assert stored(client, stream) == 1_000
    truncate(source, stream, {1 << 32 | 1: 0, 1 << 32 | 2: 0})
    with Ours() as later:
        assert list(run(later, source, stream)) == [f"{stream}/{number}" for number in (1, 2, 3)]
        check(read(later, 600), 900, start=300)


def test_what_is_truncated(source: Pravega, stream: str, ours: Ours) -> None:
    """Before the first run it is no part of the import; between two runs it is told, and left out on request."""
    with source.writer(stream) as writer:
        writer.append_many(map(event, range(100)))
        length = [8 + len(event(number)[1]) for number in range(400)]
        truncate(source, stream, {0: sum(length[:10])})
        told = run(ours, source, stream)[f"{stream}/0"]
        assert (told["imported"], told["first"], told["lost"]) == (90, sum(length[:10]), 0)
        writer.append_many(map(event, range(100, 400)))
        truncate(source, stream, {0: sum(length[:150])})
    refused = subprocess.run(command(ours, source, stream), capture_output=True, text=True, timeout=WITHIN, check=False)
    assert refused.returncode != 0
    assert "--skip-lost" in refused.stderr, refused.stderr
    told = run(ours, source, stream, "--skip-lost")[f"{stream}/0"]
    assert (told["before"], told["imported"], told["lost"]) == (90, 250, sum(length[100:150]))
    with sbp.connect(ours.address, timeout=20) as client:
        wanted = [event(number)[1] for number in [*range(10, 100), *range(150, 400)]]
        assert contents(client, stream) == wanted
