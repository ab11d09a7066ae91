"""A streaming read that cannot begin, and says why.

PySpark asks the source for its stream reader and, should that raise, stops a reader that it never got: the user is told
of an unbound variable. So the reason is kept, and raised by the first thing that Spark asks the reader.
"""

# The methods' and their arguments' names are Spark's.
# ruff: noqa: ARG002, N802

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from .errors import SbpSparkError


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises its error whatever it is asked."""

    def __init__(self, error: SbpSparkError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Not there."""
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:
        """Not there."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        """Not there."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        """Not there."""
        raise self._error

    def reportLatestOffset(self) -> NoReturn:
        """Not there."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Not there."""
        raise self._error

    def read(self, partition: object) -> NoReturn:
        """Not there."""
        raise self._error

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing was read."""

    def stop(self) -> None:
        """Nothing was begun."""
