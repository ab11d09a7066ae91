"""What a process may do to clients and servers, as cells: each runs in an interpreter of its own.

`python -m tests.lifecycle` runs every cell many times; `tests/python/test_lifecycle.py` runs each once.
"""
