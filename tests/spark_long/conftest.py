"""The long tests use the session, the server and the directories of the quick ones."""

from __future__ import annotations

from spark.conftest import checkpoint, client, name, server, spark

__all__ = ["checkpoint", "client", "name", "server", "spark"]
