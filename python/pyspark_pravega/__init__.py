"""How Spark finds the ``pravega`` data source without a call to register it; see `pyspark_sbp`, which finds ``sbp``."""

from __future__ import annotations

from pyspark_sbp import StandIn

__all__ = ["DefaultSource"]


class DefaultSource(StandIn):
    """Stands in for `sbp_native.spark.pravega.source.PravegaDataSource` until a query uses it."""

    home = ("sbp_native.spark.pravega.source", "PravegaDataSource")

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "pravega"
