"""What happens in a forked child and at the interpreter's end. Imported once, by the package."""

from __future__ import annotations

import atexit

# The extension looks these up at first use. They are imported here, while the package is: a child that is forked while
# another thread imports a module inherits that module's lock, and nobody who would ever release it.
import concurrent.futures.thread  # noqa: F401
import contextlib
import contextvars  # noqa: F401
import functools  # noqa: F401
import hashlib  # noqa: F401
import logging  # noqa: F401
import os
import types  # noqa: F401
import uuid  # noqa: F401
import weakref  # noqa: F401

from . import _native


def _after_fork_in_child() -> None:
    # The parent's sockets and lock files came along. Kept open, they would hold its port and directory after its death.
    for descriptor in _native.after_fork_in_child():
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _at_exit() -> None:
    try:
        _native.warn_unflushed()
    finally:
        _native.stop_all()
        _native.shut_down()


def install() -> None:
    """Registers both hooks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)
    atexit.register(_at_exit)
