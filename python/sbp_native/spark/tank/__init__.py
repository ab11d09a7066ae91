"""Topics of TANK brokers in Spark: ``spark.read`` and ``spark.readStream`` with ``format("tank")``."""
