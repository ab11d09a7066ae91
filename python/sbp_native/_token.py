"""Asks a function for a token. In Python, because no frame of the extension may lie below the function.

The interpreter ends threads wherever they are when it ends, and the extension's frames do not stand that.
"""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def ask(function: Callable[[], object], give: Callable[[object, BaseException | None], None]) -> None:
    """Calls ``function`` on a thread that nobody waits for; ``give`` gets what it returned, or what it raised."""
    _thread.start_new_thread(_call, (function, give))


def _call(function: Callable[[], object], give: Callable[[object, BaseException | None], None]) -> None:
    try:
        told = function()
    except BaseException as error:
        give(None, error)
    else:
        give(told, None)
