"""What several of these tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def failure(call: Callable[[], object]) -> str:
    """Calls what must fail; returns the line of Spark's error text that is ours."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by where it failed
        call()
    lines = [line for line in str(caught.value).splitlines() if "[SBP-" in line]
    assert lines, str(caught.value)
    return lines[-1]
