"""What `make test`, `make test-long` and `make quick` are made of, run stage by stage: `python -m tests.stages`.

Needs nothing but Python itself: the first stage makes the environment of the others.
"""
