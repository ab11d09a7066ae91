"""The data source: ``spark.read``, ``spark.readStream`` and ``spark.write`` with ``format("sbp")``."""

# The method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from .errors import SbpSparkError
from .options import SbpOptions, Use

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType


class SbpDataSource(DataSource):
    """What Spark knows as ``sbp``. Carries the options, opens nothing, and may be pickled anywhere.

    Each of Spark's processes imports the part that it uses.

    Options and streams are judged as early as Spark allows, which is at ``load()``; with a schema from the user it is
    when the query runs, since Spark does not make the source before.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SbpOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "sbp"

    def schema(self) -> StructType:
        """The columns of a load without ``.schema(...)``."""
        from .schema import column_set
        from .streams import find

        self._options.refuse_all_but(Use.BATCH_READ, Use.STREAM_READ)
        self._options.check_streams()
        return column_set(find(self._options), self._options).default()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        from .batch_reader import SbpBatchReader

        return SbpBatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming reader."""
        from .refused import RefusedStreamReader
        from .stream_reader import SbpStreamReader

        try:
            return SbpStreamReader(self._options, schema)
        except SbpSparkError as error:
            # PySpark would tell the user of a bug of its own instead.
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch writer."""
        from .batch_writer import SbpBatchWriter

        return SbpBatchWriter(self._options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The streaming writer."""
        from .stream_writer import SbpStreamWriter

        return SbpStreamWriter(self._options, schema, overwrite)
