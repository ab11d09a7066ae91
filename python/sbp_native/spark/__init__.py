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

from .deterministic import deterministic
from .errors import SbpOptionError, SbpSparkError
from .listener import LagListener
from .session import configure, register
from .source import SbpDataSource

__all__ = ["LagListener", "SbpDataSource", "SbpOptionError", "SbpSparkError", "configure", "deterministic", "register"]
