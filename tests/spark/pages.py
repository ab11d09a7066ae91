"""Writes the tables of docs/spark/ from the code and its tests: ``python -m tests.spark.pages --write``.

Without ``--write`` it says whether the pages are what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from sbp_native.spark.errors import CODES
from sbp_native.spark.options import OPTIONS, Option, Use
from sbp_native.spark.pravega.options import PRAVEGA_OPTIONS
from sbp_native.spark.tank.options import TANK_OPTIONS

from .error_cases import CASES

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "spark"
TANK_PAGE = ROOT / "docs" / "tank" / "options.md"
PRAVEGA_PAGE = ROOT / "docs" / "pravega" / "options.md"
_WRITTEN = "<!-- Written by `python -m tests.spark.pages --write`; a test compares. -->"

_OPTIONS = f"""# Options

{_WRITTEN}

Two are enough: `servers`, and the streams in `load(...)`, `save(...)` or `start(...)`. Upper and lower case are the
same. An option that does not exist, a value that cannot be meant, and an option of another kind of query are refused:
`[SBP-9201]` to `[SBP-9203]`, see [errors](errors.md). Those of a read are judged at `load()`, those of a write at
`save()`. What Spark tells a source only later (that a read is a stream, or what is asked for with `.schema(...)`) is
judged when the query begins, those of a streaming write at its first micro-batch: that of a new query comes at once,
that of a query that goes on from its checkpoint with the next records. To be told before, write no rows:
`spark.createDataFrame([], totals.schema).write.format("sbp")`, to the same target.
"""

_TANK = f"""# Options of `format("tank")`

{_WRITTEN}

Two are enough: `broker`, and the topics in `load(...)`. Upper and lower case are the same. They are judged when
those of [`format("sbp")`](../spark/options.md) are, and refused with the same codes; an option of `format("sbp")` that
makes no sense for TANK is refused with what to do instead.
"""

_PRAVEGA = f"""# Options of `format("pravega")`

{_WRITTEN}

Two are enough: `controller`, and the streams in `load(...)`. Upper and lower case are the same. They are judged when
those of [`format("sbp")`](../spark/options.md) are, and refused with the same codes; an option of `format("sbp")` that
makes no sense for Pravega is refused with what to do instead.
"""

_ERRORS = f"""# Errors

{_WRITTEN}

Whatever goes wrong in the source or the sink is told in one line, and that is the first line of Spark's text:

```text
[SBP-code] what happened: stream (id), offsets, server, attempts; whether to try again; what to do
```

Where it comes from, the class differs (`AnalysisException` from `load()` and `save()`, `PythonException` from a task,
`StreamingQueryException` from a query), so look for the code. The stack inside the source is left out; that of your own
functions is not. Calls that may succeed later are repeated by the client until `timeout` is over, before you see any of
these; Spark repeats a failed task as often as `spark.task.maxFailures` says.

Codes up to 9099 are the client's and the server's: [all of them](../errors.md). Those of the source and the sink:
"""

_CASES = """
## What was done, and what is seen

Each of these is done through a real session by `tests/spark/test_spark_errors.py`, which compares the line. `...` is
what differs from run to run. `The query` means `query.exception()` and `awaitTermination()`.
"""

_SPARK = (
    (
        'cannot be written in the "ErrorIfExists" mode',
        "Spark's default is to fail if there is something, and a stream is only ever appended to",
        '`.mode("append")`',
    ),
    (
        "does not support Update mode",
        "Spark has no update mode for Python sinks",
        '`outputMode("append")` with a watermark, or `foreachBatch`',
    ),
    (
        "Failed to find the data source: sbp",
        "the wheel is not installed where the driver runs, or the driver is behind Spark Connect",
        "[deployment](cluster.md)",
    ),
    (
        "terminated with exception: Connection reset`, `Broken pipe`, or no words at all before `SQLSTATE",
        (
            "the Python process of a streaming read on the driver's machine ended: killed, or out of memory; Spark has "
            "no words for an end amid an answer"
        ),
        "start the query again, it goes on from its checkpoint; no row is lost or doubled by that",
    ),
    (
        "Python worker exited unexpectedly",
        "a worker died: out of memory, or killed",
        "look at its log; `configure()` makes a crash in native code print a stack",
    ),
    (
        "Python worker failed to connect back",
        "the machine is so busy that a Python process takes more than 10 s to start, which is a fixed limit of Spark's",
        "start the query again, it goes on from its checkpoint",
    ),
)


def used_for(option: Option) -> str:
    """The kinds of query that an option is for, in words."""
    words = []
    for both, batch, stream in (
        ("read", Use.BATCH_READ, Use.STREAM_READ),
        ("write", Use.BATCH_WRITE, Use.STREAM_WRITE),
    ):
        if {batch, stream} <= option.uses:
            words.append(both)
        elif batch in option.uses:
            words.append(f"batch {both}")
        elif stream in option.uses:
            words.append(f"streaming {both}")
    return ", ".join(words)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines) + "\n"


def options_page(text: str, options: Mapping[str, Option]) -> str:
    """docs/spark/options.md, docs/tank/options.md, docs/pravega/options.md."""
    rows = [(f"`{name}`", used_for(option), option.default, option.meaning) for name, option in options.items()]
    return f"{text}\n{table(('option', 'for', 'default', 'meaning'), rows)}"


def errors_page() -> str:
    """docs/spark/errors.md."""
    codes = [(str(code), row.name, row.meaning, row.advice) for code, row in sorted(CODES.items())]
    cases = [
        (
            case.name,
            case.when if case.when.startswith("the") else f"`{case.when}`",
            f"`[SBP-{case.code:04}] {case.line}`",
        )
        for case in CASES
    ]
    return (
        f"{_ERRORS}\n{table(('code', 'name', 'what happened', 'what to do'), codes)}{_CASES}\n"
        f"{table(('what was done', 'told by', 'what is seen'), cases)}\n## What Spark itself says\n\n"
        f"{table(('text', 'why', 'what to do'), [(f'`{text}`', why, advice) for text, why, advice in _SPARK])}"
    )


def pages() -> dict[Path, str]:
    """Every page that the code writes."""
    return {
        PAGES / "options.md": options_page(_OPTIONS, OPTIONS),
        PAGES / "errors.md": errors_page(),
        TANK_PAGE: options_page(_TANK, TANK_OPTIONS),
        PRAVEGA_PAGE: options_page(_PRAVEGA, PRAVEGA_OPTIONS),
    }


def main() -> int:
    """Writes the pages, or says which differ."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--write" in sys.argv[1:]:
        for path in stale:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages()[path])
        return 0
    for path in stale:
        print(
            f"{path.relative_to(ROOT)} is not what the code says: python -m tests.spark.pages --write", file=sys.stderr
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
