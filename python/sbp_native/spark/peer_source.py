"""What the data sources of other protocols have in common: they read, and write nothing."""

# The method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from .errors import UNSUPPORTED, SbpSparkError
from .read_options import Use

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType

    from .read_options import ReadOptions


class PeerDataSource(DataSource):
    """Carries the options, opens nothing, and may be pickled anywhere.

    Options and names are judged as early as Spark allows, which is at ``load()``; with a schema from the user it is
    when the query runs. A write is refused before its options are looked at.
    """

    #: The options of the format.
    options_of: ClassVar[type[ReadOptions]]
    #: What is said of a write.
    only_reads: ClassVar[str]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    def schema(self) -> StructType:
        """The columns of a load without ``.schema(...)``."""
        from .schema import column_set
        from .streams import find

        options = self.options_of.parse(self._given)
        options.refuse_all_but(Use.BATCH_READ, Use.STREAM_READ)
        options.check_streams()
        return column_set(find(options), options).default()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        from .batch_reader import SbpBatchReader

        return SbpBatchReader(self.options_of.parse(self._given), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The streaming reader."""
        from .refused import RefusedStreamReader
        from .stream_reader import SbpStreamReader

        try:
            return SbpStreamReader(self.options_of.parse(self._given), schema)
        except SbpSparkError as error:
            # PySpark would tell the user of a bug of its own instead.
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """There is none."""
        raise SbpSparkError(UNSUPPORTED, self.only_reads)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """There is none."""
        raise SbpSparkError(UNSUPPORTED, self.only_reads)
