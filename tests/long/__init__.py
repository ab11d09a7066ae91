"""Abuse of a server, measured: `python -m tests.long`, or `make test-long`."""
