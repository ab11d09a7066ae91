"""SBP streams in Spark: ``spark.read``, ``spark.readStream`` and ``spark.write`` with ``format("sbp")``.

```python
import sbp_native.spark

spark = sbp_native.spark.configure(SparkSession.builder.master("local[2]")).getOrCreate()
flights = spark.read.format("sbp").option("servers", "127.0.0.1:12378").load("flights/UA,flights/DL")
flights.write.format("sbp").option("servers", "127.0.0.1:12378").mode("append").save("copy")
```

Spark finds the source by itself wherever this package is installed. Executors need the wheel too: in their image, or
in a packed environment given with ``spark.archives``; ``addPyFile`` cannot carry native code.

`import sbp_native` does not import this module, and needs neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .deterministic import deterministic
    from .errors import SbpOptionError, SbpSparkError
    from .listener import LagListener
    from .session import configure, register
    from .source import SbpDataSource

__all__ = ["LagListener", "SbpDataSource", "SbpOptionError", "SbpSparkError", "configure", "deterministic", "register"]

# Every worker of Spark imports its part of this package, and waits for it: so none imports the parts of others.
_HOMES: Final = {
    "LagListener": "listener",
    "SbpDataSource": "source",
    "SbpOptionError": "errors",
    "SbpSparkError": "errors",
    "configure": "session",
    "deterministic": "deterministic",
    "register": "session",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
