"""The data source: ``spark.read`` and ``spark.readStream`` with ``format("pravega")``."""

from __future__ import annotations

from ..peer_source import PeerDataSource
from .options import ONLY_READS, PravegaOptions


class PravegaDataSource(PeerDataSource):
    """What Spark knows as ``pravega``."""

    options_of = PravegaOptions
    only_reads = ONLY_READS

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "pravega"
