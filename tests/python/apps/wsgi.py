"""A WSGI service that is loaded before its workers are forked, and checks the service with a client while it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import sbp_native as sbp

# Made in the master, used there: a worker must not use it, and makes its own.
AT_IMPORT = sbp.connect(os.environ["SBP_ADDRESS"])
AT_IMPORT.create_stream(os.environ["SBP_STREAM"], exist_ok=True)
MASTER = os.getpid()


@cache
def stream() -> sbp.Stream:
    """The stream, through this worker's own client."""
    client = sbp.connect(os.environ["SBP_ADDRESS"])
    return client.stream(os.environ["SBP_STREAM"])


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Appends the body; answers with the worker, the offset, and whether the master's client was refused."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    refused = False
    try:
        AT_IMPORT.ping()
    except sbp.ForkedClientError:
        refused = True
    offset = stream().append(body).base_offset
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {MASTER} {offset} {refused}".encode()]
