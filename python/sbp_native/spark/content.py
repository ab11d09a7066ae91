"""What a batch holds, in two numbers: whether a batch that comes again is the one that was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sbp_native._native import digest_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

_MODULUS: Final = 1 << 64


@dataclass(frozen=True)
class Content:
    """How many rows, and the sum of their hashes modulo 2**64.

    It is the same for the same rows in any order, in any tasks, behind any limits of batches. So it holds wherever a
    repeated batch may be called the same: what a shuffle did to the order is no other content, another value is.
    """

    rows: int = 0
    #: None if nobody has noted it: in marks of releases before this was done.
    digest: int | None = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Content:
        """That of one record batch."""
        return cls(batch.num_rows, digest_rows(batch))

    @classmethod
    def sum(cls, parts: Iterable[Content]) -> Content:
        """That of all parts together."""
        rows, digest = 0, 0
        for part in parts:
            assert part.digest is not None
            rows += part.rows
            digest += part.digest
        return cls(rows, digest % _MODULUS)

    def __add__(self, other: Content) -> Content:
        return Content.sum((self, other))


NOTHING: Final = Content()
