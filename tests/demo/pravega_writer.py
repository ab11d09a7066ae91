"""Writes events with the Python package `pravega`: ``pravega_writer.py CONTROLLER SCOPE STREAM``.

Each line of the input is a JSON list of (routing key, event); its length is printed when all of it is stored. This
file imports nothing else of the tests: the package has an environment of its own, because it is there for Python 3.8 to
3.11 alone.
"""

from __future__ import annotations

import json
import sys

import pravega_client


def main() -> None:
    """Writes until the input ends."""
    controller, scope, stream = sys.argv[1:]
    manager = pravega_client.StreamManager(f"tcp://{controller}", False, False)
    manager.create_scope(scope)
    manager.create_stream(scope, stream, 1)
    writer = manager.create_writer(scope, stream)
    for line in sys.stdin:
        pairs = json.loads(line)
        for key, event in pairs:
            writer.write_event(event, routing_key=key)
        writer.flush()
        print(len(pairs), flush=True)


if __name__ == "__main__":
    main()
