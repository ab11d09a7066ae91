"""What the Spark source raises: one line that says everything.

Spark hands a worker's exception to the user as text, cut to its first line in many places, and keeps neither its class
nor its attributes. So the code, the stream, the offsets, the endpoint and the advice all stand in the message itself.
"""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNKNOWN_OPTION: Final = 9201
MISPLACED_OPTION: Final = 9202
INVALID_VALUE: Final = 9203
SCHEMA: Final = 9204
OFFSETS: Final = 9205
INCOMPLETE: Final = 9206
UNSUPPORTED: Final = 9207

# Codes of the protocol that the source also raises by itself.
NOT_FOUND: Final = 1404
DATA_LOSS: Final = 9013


class SbpSparkError(Exception):
    """An error of the Spark source or sink, complete in its first line.

    `code` is the number between the brackets: below 9000 the server's, from 9000 on local.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[SBP-{self.code:04}] {self.message}"


class SbpOptionError(SbpSparkError, ValueError):
    """An option, a stream name or a value that cannot be meant."""


def nearest(given: str, valid: Iterable[str]) -> str:
    """A hint that names the valid word nearest to `given`, or all of them if none is near; empty without words."""
    words = list(valid)
    by_lower = {word.lower(): word for word in words}
    close = difflib.get_close_matches(given.lower(), by_lower, n=1, cutoff=0.5)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    shown = ", ".join(sorted(words)[:12])
    more = f" and {len(words) - 12} more" if len(words) > 12 else ""
    return f"there are: {shown}{more}" if words else ""


@contextmanager
def explained(doing: str, servers: str) -> Iterator[None]:
    """Turns an error of the client into one line: `doing` is what was tried, as in "reading 3 spans"."""
    try:
        yield
    except SbpSparkError:
        raise
    except Exception as error:
        code = getattr(error, "code", None)
        if not isinstance(code, int):
            raise
        raise SbpSparkError(code, _one_line(doing, servers, error)) from error


def _one_line(doing: str, servers: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    prefix = f"[SBP-{getattr(error, 'code', 0):04}]"
    while said.startswith(prefix):
        said = said.removeprefix(prefix).strip()
    parts = [f"{doing}: {said}"]
    for name in ("stream", "range", "offset", "endpoint", "attempts"):
        value = getattr(error, name, None)
        # The client's own text usually names these already; what it left out is added, never said twice.
        if value is not None and str(value) not in said:
            parts.append(f"{name} {value}")
    if getattr(error, "endpoint", None) is None and servers not in said:
        parts.append(f"servers {servers}")
    retriable = getattr(error, "retriable", None)
    if isinstance(retriable, bool) and "retr" not in said:
        parts.append("retriable" if retriable else "not retriable")
    return ", ".join(parts)
