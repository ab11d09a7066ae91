"""Streams of Pravega in Spark: ``spark.read`` and ``spark.readStream`` with ``format("pravega")``."""
