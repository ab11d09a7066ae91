"""Measures Spark's source and sink beside sources that cost nothing, and beside Spark's own for Kafka."""
