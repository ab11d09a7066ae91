"""Where a streaming query stands: the JSON that Spark keeps in its checkpoint.

```json
{"v":1,"o":{"17":1042,"23":88}}
{"v":1,"init":true,"o":{"17":1000}}
{"v":1,"o":{"17":1042,"31":5},"from":{"17":1000},"new":{"31":0}}
{"v":1,"o":{"17":1042,"31":9},"gone":[17]}
{"v":2,"z":"<base64 of zstd of numbers>"}
```

`o` holds, per stream id, the next offset to read. Keys are ids, because a name can be deleted and given again; they
stand in numeric order, because Spark compares offsets as text. This form is read for ever.

Spark asks for the initial offset again when a query crashed before its first commit, and "latest" is a later place
then. So the first end offset carries `from`, the place where the query really began. `new` says where a stream begins
in this batch if not where the last one ended: one that was met for the first time, or one that is shorter than it was.
`gone` are the streams whose end was told: they were deleted, and keep their place in `o`.

Version 2 is the same for more than 20,000 streams; `wide` knows how it is packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from . import wide
from .errors import OFFSETS, SbpSparkError

NEWEST_VERSION: Final = 2

#: From so many streams on an offset is packed.
WIDE: Final = 20_000

#: A span of one stream: (stream id, first offset, first offset not wanted).
Span = tuple[int, int, int]

_PARTS: Final = {"v", "init", "o", "from", "new", "gone"}


@dataclass(frozen=True)
class OffsetMap:
    """One offset of a streaming query; see the module's text for what the parts mean."""

    next: Mapping[int, int]
    initial: bool = False
    began: Mapping[int, int] = field(default_factory=dict)
    discovered: Mapping[int, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The canonical form: equal maps give equal text."""
        if len(self.next) > WIDE:
            packed = wide.pack(self.initial, (self.next, self.began, self.discovered), sorted(self.gone))
            return {"v": 2, "z": packed}
        out: dict[str, Any] = {"v": 1}
        if self.initial:
            out["init"] = True
        out["o"] = _canonical(self.next)
        if self.began:
            out["from"] = _canonical(self.began)
        if self.discovered:
            out["new"] = _canonical(self.discovered)
        if self.gone:
            out["gone"] = sorted(self.gone)
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OffsetMap:
        """Reads what `to_json` made, also that of earlier releases.

        Raises `SbpSparkError` for anything else, above all for a version that is yet to come.
        """
        version = value.get("v")
        if type(version) is int and version > NEWEST_VERSION:
            raise SbpSparkError(
                OFFSETS,
                f"the checkpoint holds offsets of version {version}, this release of sbp-native reads up to "
                f"{NEWEST_VERSION}: upgrade it, or go on with the release that wrote them",
            )
        if version == 2 and type(version) is int and value.keys() == {"v", "z"}:
            return cls._unpacked(value["z"])
        if type(version) is not int or version != 1 or not isinstance(value.get("init", False), bool):
            raise SbpSparkError(
                OFFSETS, f"this is not an offset of an SBP source: {_short(dict(value))}; check the checkpoint"
            )
        unknown = value.keys() - _PARTS
        if unknown:
            raise SbpSparkError(OFFSETS, f"unknown parts {sorted(unknown)} in an offset: was the checkpoint edited?")
        return cls(
            next=_offsets("o", value.get("o")),
            initial=bool(value.get("init", False)),
            began=_offsets("from", value.get("from", {})),
            discovered=_offsets("new", value.get("new", {})),
            gone=_ids("gone", value.get("gone", [])),
        )

    @classmethod
    def _unpacked(cls, text: object) -> OffsetMap:
        try:
            initial, (following, began, discovered), gone = wide.unpack(text)
        except ValueError as error:
            raise SbpSparkError(
                OFFSETS, f"a packed offset cannot be read ({error}): was the checkpoint edited?"
            ) from error
        return cls(following, initial, began, discovered, frozenset(gone))

    def start_of(self, stream_id: int) -> int | None:
        """Where reading of a stream goes on, None if it is not in here."""
        return self.next.get(stream_id)

    def advanced(
        self, ends: Mapping[int, int], discovered: Mapping[int, int], gone: frozenset[int] = frozenset()
    ) -> OffsetMap:
        """The end of the batch that starts here and reads up to `ends`; streams without an end stay where they are.

        `discovered` are the streams that do not begin where this offset says, `gone` those that ended now.
        """
        return OffsetMap(
            next={**self.next, **discovered, **ends},
            began=dict(self.next) if self.initial else {},
            discovered=dict(discovered),
            gone=self.gone | gone,
        )


def spans_between(start: OffsetMap, end: OffsetMap) -> list[Span]:
    """What the batch from `start` to `end` reads, by stream id.

    If the query never got behind its first batch, `start` may have been made anew; what `end` says about the
    beginning counts. Raises `SbpSparkError` when `end` lies before `start`, or names a stream without a beginning.
    """
    began: Mapping[int, int] = end.began if start.initial and end.began else start.next
    spans = []
    for stream_id, last in sorted(end.next.items()):
        first = end.discovered.get(stream_id)
        if first is None:
            first = began.get(stream_id)
        if first is None:
            raise SbpSparkError(
                OFFSETS, f"stream {stream_id} has an end {last} but no beginning: was the checkpoint edited?"
            )
        if last < first:
            raise SbpSparkError(
                OFFSETS, f"stream {stream_id} would be read from {first} back to {last}: was the checkpoint edited?"
            )
        if last > first:
            spans.append((stream_id, first, last))
    return spans


def _canonical(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(stream_id): offsets[stream_id] for stream_id in sorted(offsets)}


def _offsets(part: str, value: object) -> dict[int, int]:
    if not isinstance(value, Mapping):
        raise SbpSparkError(OFFSETS, f"part {part!r} of an offset is missing or no map: was the checkpoint edited?")
    # There may be ten thousand, at every micro-batch: judged as a whole, and one by one only to say which is wrong.
    if value and set(map(type, value)) == {str} and set(map(type, value.values())) == {int}:
        offsets = list(value.values())
        if all(map(str.isdecimal, value)) and all(map(str.isascii, value)):
            ids = list(map(int, value))
            if list(map(str, ids)) == list(value) and min(ids) > 0 and 0 <= min(offsets) <= max(offsets) < 2**63:
                return dict(zip(ids, offsets, strict=True))
    for key, offset in value.items():
        valid_key = isinstance(key, str) and key.isascii() and key.isdigit() and str(int(key)) == key and key != "0"
        if not valid_key or isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
            raise SbpSparkError(
                OFFSETS, f"part {part!r} of an offset holds {key!r}: {offset!r}: was the checkpoint edited?"
            )
    return {}


def _ids(part: str, value: object) -> frozenset[int]:
    if not isinstance(value, list) or not all(type(stream_id) is int and stream_id > 0 for stream_id in value):
        raise SbpSparkError(OFFSETS, f"part {part!r} of an offset is no list of stream ids: was the checkpoint edited?")
    return frozenset(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
