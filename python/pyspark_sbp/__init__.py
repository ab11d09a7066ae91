"""How Spark finds the ``sbp`` data source without a call to register it.

Spark imports every top-level module whose name begins with ``pyspark_``, in every session that uses any Python data
source, and an error here would break all of those sources. So this module imports pyspark alone and never raises: what
is wrong is told by the source when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # PySpark before 4.0 has no Python data sources, and looks for none
    DataSource = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


def _make(word: str, home: tuple[str, str], options: MutableMapping[str, str]) -> DataSource:
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < (4, 2):
        raise RuntimeError(
            f"[SBP-9209] format({word!r}) needs PySpark 4.2 or later, this is {pyspark.__version__}: upgrade pyspark "
            "(not worth trying again unchanged)"
        )
    try:
        import sbp_native  # noqa: F401 - to tell a missing native part from an error in what is built on it
    except ImportError as error:
        raise RuntimeError(
            f"[SBP-9208] the native part of sbp-native cannot be loaded here ({error}): install the wheel for this "
            "Python on the driver and on every executor (not worth trying again unchanged)"
        ) from error
    import importlib

    module, name = home
    source: DataSource = getattr(importlib.import_module(module), name)(options)
    return source


class StandIn(DataSource):
    """Stands in for a source of this package until a query uses it."""

    #: The module and the class that it stands in for.
    home: tuple[str, str]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._source = _make(self.name(), self.home, options)

    def schema(self) -> StructType | str:
        """The columns of a load without ``.schema(...)``."""
        return self._source.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        return self._source.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        """The streaming reader."""
        return self._source.streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch writer."""
        return self._source.writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - the name is Spark's
        """The streaming writer."""
        return self._source.streamWriter(schema, overwrite)


class DefaultSource(StandIn):
    """Stands in for `sbp_native.spark.SbpDataSource`."""

    home = ("sbp_native.spark", "SbpDataSource")

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "sbp"
