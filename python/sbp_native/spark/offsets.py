"""Where a streaming query stands: the JSON that Spark keeps in its checkpoint.

```json
{"v":1,"o":{"17":1042,"23":88}}
{"v":1,"init":true,"o":{"17":1000}}
{"v":1,"o":{"17":1042,"31":5},"from":{"17":1000},"new":{"31":0}}
{"v":1,"o":{"17":1042,"31":9},"gone":[17]}
{"v":2,"z":"<base64 of zstd of numbers>"}
{"v":3,"o":{"17":1042,"23":88},"id":"9f86d0810eb4a3c7"}
{"v":3,"z":"<base64 of zstd of numbers>"}
```

`o` holds, per stream id, the next offset to read. Keys are ids, because a name can be deleted and given again; they
stand in numeric order, because Spark compares offsets as text. This form is read for ever.

Spark asks for the initial offset again when a query crashed before its first commit, and "latest" is a later place
then. So the first end offset carries `from`, the place where the query really began. `new` says where a stream begins
in this batch if not where the last one ended: one that was met for the first time, or one that is shorter than it was.
`gone` are the streams whose end was told: they were deleted, and keep their place in `o`.

Of a service whose streams are told apart by name, `of` says which that is, and names stand where ids do:

```json
{"v":1,"of":"tank","o":{"orders/0":1042,"orders/1":88}}
{"v":1,"of":"pravega","o":{"shop/orders/0.#epoch.0":1042,"shop/orders/1.#epoch.1":88},"gone":["shop/orders/0.#epoch.0"]}
```

There `gone` are also the streams that are sealed and were read to their end: they are not looked for again.

Version 2 is the same for more than 20,000 streams; `wide` knows how it is packed.

Version 3 is either of these, and says which streams the ids stand for: `id` is the beginning of each stream's identity,
eight hexadecimal digits for each stream of `o` in its order, eight zeros where it is not known. A server that was set
up anew gives ids a second time, so a query compares before it goes on at an offset. Offsets of versions 1 and 2 say
nothing, and are gone on from as ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from . import wide
from .errors import OFFSETS, SbpSparkError
from .naming import StreamKey, called

NEWEST_VERSION: Final = 3

#: Hexadecimal digits of an identity that are kept: that two streams share them is an accident of one in four billion,
#: and a query reads thousands.
TAG: Final = 8
_NO_TAG: Final = "0" * TAG

#: From so many streams on an offset is packed.
WIDE: Final = 20_000

#: A span of one stream: (its key, first offset, first offset not wanted).
Span = tuple[StreamKey, int, int]

_PARTS: Final = {"v", "init", "o", "id", "from", "new", "gone"}
#: Services whose streams are told apart by name, as `of` says them.
_BY_NAME: Final = {
    "tank": re.compile(r"[^/]+/(0|[1-9][0-9]{0,4})"),
    "pravega": re.compile(r"[^/]+/[^/]+/(0|[1-9][0-9]{0,9})\.#epoch\.(0|[1-9][0-9]{0,9})"),
}


@dataclass(frozen=True)
class OffsetMap:
    """One offset of a streaming query; see the module's text for what the parts mean."""

    next: Mapping[StreamKey, int]
    initial: bool = False
    began: Mapping[StreamKey, int] = field(default_factory=dict)
    discovered: Mapping[StreamKey, int] = field(default_factory=dict)
    gone: frozenset[StreamKey] = frozenset()
    #: The beginnings of the streams' identities, of those that are known.
    tags: Mapping[StreamKey, str] = field(default_factory=dict)
    #: The service whose streams are told apart by name; None for SBP, whose streams have ids.
    of: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The canonical form: equal maps give equal text."""
        # Versions that say nothing of identities are written where nothing is known, as they always were.
        known = [self.tags.get(stream, _NO_TAG) for stream in sorted(self.next)] if self.tags else []
        if len(self.next) > WIDE and self.of is None:
            tags = [int(tag, 16) for tag in known]
            packed = wide.pack(self.initial, (self.next, self.began, self.discovered), sorted(self.gone), tags)
            return {"v": 3 if known else 2, "z": packed}
        out: dict[str, Any] = {"v": 3 if known else 1}
        if self.of is not None:
            out["of"] = self.of
        if self.initial:
            out["init"] = True
        out["o"] = _canonical(self.next)
        if known:
            out["id"] = "".join(known)
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
        if type(version) is int and version in (2, 3) and value.keys() == {"v", "z"}:
            return cls._unpacked(value["z"], version == 3)
        if type(version) is not int or version not in (1, 3) or not isinstance(value.get("init", False), bool):
            raise SbpSparkError(
                OFFSETS, f"this is not an offset of an SBP source: {_short(dict(value))}; check the checkpoint"
            )
        of = value.get("of")
        if of is not None and (of not in _BY_NAME or version != 1):
            raise SbpSparkError(OFFSETS, f"these are offsets of {_short(of)}, which this release does not know")
        unknown = value.keys() - (_PARTS if version == 3 else _PARTS - {"id"}) - {"of"}
        if unknown:
            raise SbpSparkError(OFFSETS, f"unknown parts {sorted(unknown)} in an offset: was the checkpoint edited?")
        following = _offsets("o", value.get("o"), of)
        return cls(
            next=following,
            initial=bool(value.get("init", False)),
            began=_offsets("from", value.get("from", {}), of),
            discovered=_offsets("new", value.get("new", {}), of),
            gone=_keys("gone", value.get("gone", []), of),
            tags=_tags(following, value.get("id")) if version == 3 else {},
            of=of,
        )

    @classmethod
    def _unpacked(cls, text: object, tagged: bool) -> OffsetMap:
        try:
            initial, (following, began, discovered), gone, numbers = wide.unpack(text, tagged)
        except ValueError as error:
            raise SbpSparkError(
                OFFSETS, f"a packed offset cannot be read ({error}): was the checkpoint edited?"
            ) from error
        tags = {stream: f"{number:08x}" for stream, number in zip(sorted(following), numbers, strict=tagged) if number}
        return cls(following, initial, began, discovered, frozenset(gone), tags)

    def start_of(self, stream_id: int) -> int | None:
        """Where reading of a stream goes on, None if it is not in here."""
        return self.next.get(stream_id)

    def advanced(
        self,
        ends: Mapping[StreamKey, int],
        discovered: Mapping[StreamKey, int],
        gone: frozenset[StreamKey] = frozenset(),
        tags: Mapping[StreamKey, str] | None = None,
    ) -> OffsetMap:
        """The end of the batch that starts here and reads up to `ends`; streams without an end stay where they are.

        `discovered` are the streams that do not begin where this offset says, `gone` those that ended now. `tags` are
        of the streams that are read.
        """
        following = {**self.next, **discovered, **ends}
        known = {**self.tags, **(tags or {})}
        return OffsetMap(
            next=following,
            began=dict(self.next) if self.initial else {},
            discovered=dict(discovered),
            # An id that is read again is another stream's now.
            gone=(self.gone - discovered.keys()) | gone,
            tags={stream: tag for stream, tag in known.items() if stream in following},
            of=self.of,
        )


def spans_between(start: OffsetMap, end: OffsetMap) -> list[Span]:
    """What the batch from `start` to `end` reads, by stream id.

    If the query never got behind its first batch, `start` may have been made anew; what `end` says about the
    beginning counts. Raises `SbpSparkError` when `end` lies before `start`, or names a stream without a beginning.
    """
    began: Mapping[StreamKey, int] = end.began if start.initial and end.began else start.next
    spans = []
    for stream_id, last in sorted(end.next.items()):
        first = end.discovered.get(stream_id)
        if first is None:
            first = began.get(stream_id)
        if first is None:
            raise SbpSparkError(
                OFFSETS, f"{called(stream_id)} has an end {last} but no beginning: was the checkpoint edited?"
            )
        if last < first:
            raise SbpSparkError(
                OFFSETS, f"{called(stream_id)} would be read from {first} back to {last}: was the checkpoint edited?"
            )
        if last > first:
            spans.append((stream_id, first, last))
    return spans


def _canonical(offsets: Mapping[StreamKey, int]) -> dict[str, int]:
    return {str(stream_id): offsets[stream_id] for stream_id in sorted(offsets)}


def _offsets(part: str, value: object, of: str | None) -> dict[StreamKey, int]:
    if not isinstance(value, Mapping):
        raise SbpSparkError(OFFSETS, f"part {part!r} of an offset is missing or no map: was the checkpoint edited?")
    if of is not None:
        return _offsets_by_name(part, value, _BY_NAME[of])
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


def _offsets_by_name(part: str, value: Mapping[str, object], names: re.Pattern[str]) -> dict[StreamKey, int]:
    found: dict[StreamKey, int] = {}
    for name, offset in value.items():
        if not _is_named(names, name) or type(offset) is not int or not 0 <= offset < 2**63:
            raise SbpSparkError(
                OFFSETS, f"part {part!r} of an offset holds {name!r}: {offset!r}: was the checkpoint edited?"
            )
        found[name] = offset
    return found


def _is_named(names: re.Pattern[str], name: object) -> bool:
    return isinstance(name, str) and names.fullmatch(name) is not None


def _keys(part: str, value: object, of: str | None) -> frozenset[StreamKey]:
    if of is None:
        return _ids(part, value)
    if not isinstance(value, list) or not all(_is_named(_BY_NAME[of], name) for name in value):
        raise SbpSparkError(OFFSETS, f"part {part!r} of an offset is no list of streams: was the checkpoint edited?")
    return frozenset(value)


def _ids(part: str, value: object) -> frozenset[StreamKey]:
    if not isinstance(value, list) or not all(type(stream_id) is int and stream_id > 0 for stream_id in value):
        raise SbpSparkError(OFFSETS, f"part {part!r} of an offset is no list of stream ids: was the checkpoint edited?")
    return frozenset(value)


def _tags(following: Mapping[StreamKey, int], text: object) -> dict[StreamKey, str]:
    if not isinstance(text, str) or len(text) != TAG * len(following) or not set(text) <= set("0123456789abcdef"):
        raise SbpSparkError(
            OFFSETS,
            f"part 'id' of an offset does not hold {TAG} hexadecimal digits for each of its {len(following)} streams: "
            "was the checkpoint edited?",
        )
    each = (text[place : place + TAG] for place in range(0, len(text), TAG))
    return {stream: tag for stream, tag in zip(sorted(following), each, strict=True) if tag != _NO_TAG}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
