"""What the options of sources that read from other systems have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .errors import nearest
from .options import OPTIONS
from .read_options import Option, Use

if TYPE_CHECKING:
    from collections.abc import Mapping

READS: Final = frozenset({Use.BATCH_READ, Use.STREAM_READ})
BATCH_READ: Final = frozenset({Use.BATCH_READ})

ENDING_OFFSETS: Final = Option(
    BATCH_READ, "`latest`", "where reading ends, exclusive: as `startingOffsets`, but not `earliest`"
)
COLUMNS: Final = Option(READS, "`records`", "there is one set of columns: `records`")
INCLUDE_HEADERS: Final = Option(READS, "`true`", "`false` leaves out the column `headers`, which is always empty")
WORKER_GC_FREEZE: Final = OPTIONS["workerGcFreeze"]._replace(uses=READS)


def timeout(who: str) -> Option:
    """The option ``timeout``, where `who` is waited for."""
    return Option(
        READS,
        "`30s`",
        f"how long a {who} that is away is waited for, and how long it may take: `30s`, `2m`, or seconds",
    )


def instead_of(key: str, called: Mapping[str, str], table: Mapping[str, Option], only_reads: str) -> str:
    """What to use in place of an option that there is not; `called` says how it is called here, in lower case."""
    lower = key.lower()
    if lower in called:
        return f"it is called {called[lower]!r} here"
    if lower in ("maxattempts", "retrybackoffms") or lower.startswith("client."):
        return "a call is made again until 'timeout' is over"
    theirs = {name.lower(): option for name, option in OPTIONS.items()}
    if lower in theirs and not theirs[lower].uses & READS:
        return only_reads
    return nearest(key, table)
