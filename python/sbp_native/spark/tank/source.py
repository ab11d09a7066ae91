"""The data source: ``spark.read`` and ``spark.readStream`` with ``format("tank")``."""

from __future__ import annotations

from ..peer_source import PeerDataSource
from .options import ONLY_READS, TankOptions


class TankDataSource(PeerDataSource):
    """What Spark knows as ``tank``."""

    options_of = TankOptions
    only_reads = ONLY_READS

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "tank"
