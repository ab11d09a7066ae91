"""Offsets of very many streams as one short text: numbers of seven bits a byte, under zstd, in base64.

The numbers are: 1 if the offset is an initial one, else 0; for each map how many streams it has, their ids (the first,
then the distance to the one before), their offsets; how many streams are gone, and their ids, likewise. Where
identities are known, a number for each stream of the first map follows: the beginning of its identity, 0 if that is not
known.
"""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING, Final

from sbp_native._native import pack_varints, unpack_varints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Maps = tuple[Mapping[int, int], Mapping[int, int], Mapping[int, int]]

_MAPS: Final = 3


def pack(initial: bool, maps: Maps, gone: Sequence[int], tags: Sequence[int] = ()) -> str:
    """The text for three maps from stream ids to offsets, a sorted list of ids, and a number for each stream."""
    import pyarrow as pa

    numbers = [int(initial)]
    for offsets in maps:
        ids = sorted(offsets)
        numbers += [len(ids), *_distances(ids), *map(offsets.__getitem__, ids)]
    numbers += [len(gone), *_distances(gone), *tags]
    return base64.b64encode(pa.Codec("zstd").compress(pack_varints(numbers), asbytes=True)).decode("ascii")


def unpack(text: object, tagged: bool = False) -> tuple[bool, Maps, list[int], Sequence[int]]:
    """What `pack` packed, with a number for each stream or without. Raises `ValueError` for anything else."""
    import pyarrow as pa

    if not isinstance(text, str):
        raise ValueError("it is no text")
    try:
        packed = base64.b64decode(text, validate=True)
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            numbers = unpack_varints(stream.read())
    except (OSError, pa.ArrowException) as error:
        raise ValueError(" ".join(str(error).split())) from error
    return _arranged(numbers, tagged)


def _arranged(numbers: Sequence[int], tagged: bool) -> tuple[bool, Maps, list[int], Sequence[int]]:
    place = 0

    def take(count: int) -> Sequence[int]:
        nonlocal place
        place += count
        if place > len(numbers):
            raise ValueError("it ends early")
        return numbers[place - count : place]

    (initial,) = take(1)
    maps = []
    for _ in range(_MAPS):
        (count,) = take(1)
        ids = list(itertools.accumulate(take(count)))
        maps.append(dict(zip(ids, take(count), strict=True)))
    (count,) = take(1)
    gone = list(itertools.accumulate(take(count)))
    tags = take(len(maps[0])) if tagged else ()
    if initial > 1 or place != len(numbers):
        raise ValueError("there is more in it than there should be")
    following, began, discovered = maps
    return initial == 1, (following, began, discovered), gone, tags


def _distances(ids: Sequence[int]) -> list[int]:
    return [one - before for before, one in zip([0, *ids], ids, strict=False)]
