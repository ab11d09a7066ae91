"""What the Spark source raises: one line that says everything.

Spark hands a worker's exception to the user as text, cut to its first line in many places, and keeps neither its class
nor its attributes. So the code, the stream, the offsets, the endpoint and the advice all stand in the message itself.
"""

from __future__ import annotations

import difflib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNKNOWN_OPTION: Final = 9201
MISPLACED_OPTION: Final = 9202
INVALID_VALUE: Final = 9203
SCHEMA: Final = 9204
OFFSETS: Final = 9205
INCOMPLETE: Final = 9206
UNSUPPORTED: Final = 9207
# The next two are raised by `pyspark_sbp`, which must not need this package.
NATIVE_MISSING: Final = 9208
PYSPARK_TOO_OLD: Final = 9209
OTHER_ROWS: Final = 9210

# Codes of the protocol that the source also raises by itself.
NOT_FOUND: Final = 1404
DATA_LOSS: Final = 9013


class Code(NamedTuple):
    """What the documentation says of a code."""

    name: str
    meaning: str
    advice: str


#: The codes of the source and the sink; those of servers and of the client are the client's.
CODES: Final[dict[int, Code]] = {
    UNKNOWN_OPTION: Code(
        "UNKNOWN_OPTION", "there is no such option", "use the one that the message names, or leave it out"
    ),
    MISPLACED_OPTION: Code(
        "MISPLACED_OPTION", "the option is for another kind of query", "leave it out, or use the one that is named"
    ),
    INVALID_VALUE: Code(
        "INVALID_VALUE", "an option has a value that cannot be meant, or is missing", "correct the value"
    ),
    SCHEMA: Code(
        "SCHEMA",
        "columns do not fit: those asked for, those of the stream, or those of the DataFrame",
        "cast, rename, add or leave out the column that is named",
    ),
    OFFSETS: Code(
        "OFFSETS",
        "the checkpoint holds offsets that this version cannot read",
        "use the version that is named, or begin with a new checkpoint",
    ),
    INCOMPLETE: Code(
        "INCOMPLETE",
        "fewer records were delivered than were planned",
        "report it with the server's log: reader and server prove that nothing is left out",
    ),
    UNSUPPORTED: Code("UNSUPPORTED", "the source or the sink cannot do this", "do what the message names instead"),
    NATIVE_MISSING: Code(
        "NATIVE_MISSING",
        "the native part cannot be loaded by this Python",
        "install the wheel for this Python on the driver and on every executor",
    ),
    PYSPARK_TOO_OLD: Code("PYSPARK_TOO_OLD", "PySpark is older than 4.2", "upgrade pyspark"),
    OTHER_ROWS: Code(
        "OTHER_ROWS",
        "a repeated task or batch has other rows than were stored before under its number: storing them would leave "
        "some twice, passing over them would lose some",
        "for a task: `deterministic(df, n)`, `sortWithinBatch=true`, or `delivery=at-least-once`; for a batch: "
        "[checkpoints that were put back](delivery.md#checkpoints-that-were-put-back)",
    ),
}

#: What a message says of trying again.
AGAIN: Final = "can be tried again"
FINAL: Final = "not worth trying again unchanged"
_OUTCOMES: Final = (AGAIN, FINAL, "it may have been done", "not retriable")

#: What Spark puts into the environment of its Python workers, by the kind of socket.
_WORKER: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_SOCK_DIR")


class SbpSparkError(Exception):
    """An error of the Spark source or sink, complete in one line.

    `code` is the number between the brackets: below 9000 the server's, from 9000 on local. `retriable` says whether the
    same query may succeed later without anything being changed. In a process of Spark's, the text that the user gets to
    see is this line without the stack of the source's inside, which would stand before it.
    """

    def __init__(self, code: int, message: str, *, retriable: bool = False) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retriable = retriable
        _hide_stack()

    def __str__(self) -> str:
        told = any(outcome in self.message for outcome in _OUTCOMES)
        again = "" if told else f" ({AGAIN if self.retriable else FINAL})"
        return f"[SBP-{self.code:04}] {self.message}{again}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_again, (type(self), self.code, self.message, self.retriable))


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
        retriable = getattr(error, "retriable", None) is True
        raise SbpSparkError(code, _one_line(doing, servers, error), retriable=retriable) from error


def _again(kind: type[SbpSparkError], code: int, message: str, retriable: bool) -> SbpSparkError:
    return kind(code, message, retriable=retriable)


def _hide_stack() -> None:
    """Lets a worker of Spark's end with the error's own line: it leaves the stack out if this is set when it reports.

    A worker that reports an error ends, so nothing else is told without its stack. The driver's own process, which is
    the user's, is left as it is.
    """
    if any(name in os.environ for name in _WORKER):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def _one_line(doing: str, servers: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    prefix = f"[SBP-{getattr(error, 'code', 0):04}]"
    while said.startswith(prefix):
        said = said.removeprefix(prefix).strip()
    # The client's own text usually names these already; what it left out is added, never said twice.
    known = {name: getattr(error, name, None) for name in ("stream", "range", "offset", "endpoint", "attempts")}
    where = "" if known["endpoint"] is not None or servers in said else f" at {servers}"
    facts = [f"{name} {value}" for name, value in known.items() if value and str(value) not in said]
    return ", ".join([f"{doing}{where}: {said}", *facts])
