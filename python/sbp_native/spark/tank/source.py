"""The data source: ``spark.read`` and ``spark.readStream`` with ``format("tank")``."""

# The method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from ..errors import SbpSparkError
from ..read_options import Use
from .options import TankOptions, only_reads

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType


class TankDataSource(DataSource):
    """What Spark knows as ``tank``. Carries the options, opens nothing, and may be pickled anywhere.

    Options and topics are judged as early as Spark allows, which is at ``load()``; with a schema from the user it is
    when the query runs. A write is refused before its options are looked at.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "tank"

    def schema(self) -> StructType:
        """The columns of a load without ``.schema(...)``."""
        from ..schema import column_set
        from ..streams import find

        options = TankOptions.parse(self._given)
        options.refuse_all_but(Use.BATCH_READ, Use.STREAM_READ)
        options.check_streams()
        return column_set(find(options), options).default()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        from ..batch_reader import SbpBatchReader

        return SbpBatchReader(TankOptions.parse(self._given), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming reader."""
        from ..refused import RefusedStreamReader
        from ..stream_reader import SbpStreamReader

        try:
            return SbpStreamReader(TankOptions.parse(self._given), schema)
        except SbpSparkError as error:
            # PySpark would tell the user of a bug of its own instead.
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """There is none."""
        raise only_reads()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """There is none."""
        raise only_reads()
