"""The streams that a load or a save names, looked up on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import runtime
from .errors import DATA_LOSS, INVALID_VALUE, NOT_FOUND, SbpOptionError, SbpSparkError, explained, nearest
from .options import EARLIEST, LATEST, Places, SbpOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa


@dataclass(frozen=True)
class StreamHead:
    """A stream as it was when the query was planned."""

    id: int
    name: str
    schema_ipc: bytes | None = None

    def arrow_schema(self) -> pa.Schema:
        """The stream's own columns; only for a stream that has a schema."""
        import pyarrow as pa

        return pa.ipc.read_schema(pa.py_buffer(self.schema_ipc))

    def __str__(self) -> str:
        return f"stream {self.name} ({self.id})"


@dataclass(frozen=True)
class Bounds:
    """What a stream holds: records from `earliest` up to but without `latest`."""

    earliest: int
    latest: int


def every_stream(options: SbpOptions) -> list[StreamHead]:
    """All streams of the server."""
    with explained("listing the streams", options.servers):
        return [StreamHead(int(info.id), info.name, info.schema_ipc) for info in runtime.client(options).list_streams()]


def resolve(options: SbpOptions, names: Iterable[str]) -> tuple[StreamHead, ...]:
    """The streams with these names or ids, in the order given.

    Raises `SbpOptionError` for one that does not exist, naming the nearest that does.
    """
    by_key: dict[str, StreamHead] = {}
    for head in every_stream(options):
        by_key[head.name] = head
        by_key[str(head.id)] = head
    heads: list[StreamHead] = []
    for name in names:
        found = by_key.get(name)
        if found is None:
            known = sorted({head.name for head in by_key.values()})
            hint = nearest(name, known) or "the server has no stream yet"
            raise SbpOptionError(NOT_FOUND, f"there is no stream {name!r} at {options.servers}: {hint}")
        if found in heads:
            raise SbpOptionError(INVALID_VALUE, f"{found} is listed twice, by name and by id: name it once")
        heads.append(found)
    return tuple(heads)


def bounds(options: SbpOptions, heads: Iterable[StreamHead]) -> dict[int, Bounds]:
    """What each stream holds now, by id: one question for all of them."""
    heads = list(heads)
    with explained(f"asking for the offsets of {len(heads)} streams", options.servers):
        positions = runtime.client(options).positions([head.name for head in heads])
        return {head.id: Bounds(int(positions[head.name].earliest), int(positions[head.name].latest)) for head in heads}


def settle(
    option: str, places: Places, heads: Iterable[StreamHead], held: Mapping[int, Bounds], needed: bool = True
) -> dict[int, int]:
    """The offsets that `places` means, by stream id.

    Raises `SbpOptionError` if a place names a stream that is not read, lies outside its stream, or (when `needed`) if
    a stream is left out.
    """
    heads = list(heads)
    for key, _ in places.each:
        if not any(key in (head.name, str(head.id)) for head in heads):
            hint = nearest(key, [head.name for head in heads])
            raise SbpOptionError(INVALID_VALUE, f"option {option!r} names {key!r}, which is not read here: {hint}")
    offsets: dict[int, int] = {}
    for head in heads:
        place = places.of(head.name, head.id)
        if place is None:
            if needed:
                raise SbpOptionError(INVALID_VALUE, f"option {option!r} leaves out {head}: give every stream a place")
            continue
        inside = held[head.id]
        if place == EARLIEST:
            place = inside.earliest
        elif place == LATEST:
            place = inside.latest
        elif not inside.earliest <= place <= inside.latest:
            raise SbpOptionError(
                INVALID_VALUE,
                f"option {option!r} gives {head} the offset {place}, it holds [{inside.earliest}, {inside.latest})",
            )
        offsets[head.id] = place
    return offsets


def check_kept(spans: Iterable[tuple[int, int, int]], heads: Iterable[StreamHead], held: Mapping[int, Bounds]) -> None:
    """Raises `SbpSparkError` if some of these records are gone, listing every missing interval."""
    names = {head.id: str(head) for head in heads}
    missing = []
    for stream_id, start, end in spans:
        name = names.get(stream_id, f"stream {stream_id}")
        inside = held.get(stream_id)
        if inside is None:
            missing.append(f"{name} [{start}, {end})")
        elif start < inside.earliest:
            missing.append(f"{name} [{start}, {min(end, inside.earliest)})")
        elif end > inside.latest:
            missing.append(f"{name} [{max(start, inside.latest)}, {end})")
    if missing:
        raise SbpSparkError(
            DATA_LOSS,
            f"records of this query are not there: {', '.join(missing)}; not retriable, "
            "start a new query with a new checkpoint from offsets that exist",
        )
