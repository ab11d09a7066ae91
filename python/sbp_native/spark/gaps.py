"""Records that a read should deliver and that their stream does not hold any more. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .naming import called

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .naming import StreamKey
    from .offsets import Span


class Piece(NamedTuple):
    """A part of a span: there, or gone."""

    span: Span
    gone: bool

    @property
    def records(self) -> int:
        """How many records it has, or had."""
        return self.span[2] - self.span[1]


def pieces(spans: Iterable[Span], earliest: Mapping[StreamKey, int], latest: Mapping[StreamKey, int]) -> list[Piece]:
    """The spans in their order, cut where records begin or end to be gone; all of a stream without bounds is gone."""
    found = []
    for stream, start, end in spans:
        first = min(max(start, earliest.get(stream, end)), end)
        last = min(max(first, latest.get(stream, end)), end)
        for one, other, gone in ((start, first, True), (first, last, False), (last, end, True)):
            if other > one:
                found.append(Piece((stream, one, other), gone))
    return found


def runs(cut: Iterable[Piece]) -> list[list[Piece]]:
    """Neighbours of which all are there, in one run each; each gap by itself."""
    found: list[list[Piece]] = []
    for piece in cut:
        if found and not piece.gone and not found[-1][-1].gone:
            found[-1].append(piece)
        else:
            found.append([piece])
    return found


def behind(spans: Sequence[Span], delivered: int) -> list[Span]:
    """What is left of spans when so many of their records, in order, were delivered."""
    left = []
    for stream, start, end in spans:
        taken = min(delivered, end - start)
        delivered -= taken
        if start + taken < end:
            left.append((stream, start + taken, end))
    return left


def told(gone: Iterable[Piece], names: Mapping[StreamKey, str]) -> str:
    """The missing intervals as text: every one of them, up to twenty."""
    parts = []
    for stream, start, end in (piece.span for piece in gone):
        parts.append(f"{called(stream, names.get(stream))} [{start}, {end})")
    more = f" and {len(parts) - 20} more" if len(parts) > 20 else ""
    return ", ".join(parts[:20]) + more
