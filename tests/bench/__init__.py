"""Benchmarks of the Python surface, each beside the floor of the same run. Run with `python -m tests.bench`."""
