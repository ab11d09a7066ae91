"""For all tests that run under pytest: one that hangs leaves a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import stalls

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of the time that a test may take, when the report is written.
_PART = 0.9


def pytest_sessionstart(session: pytest.Session) -> None:
    """Reports are of this run, from whichever of its processes."""
    if not hasattr(session.config, "workerinput"):
        stalls.REPORT.unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watches a test with its fixtures."""
    mark = item.get_closest_marker("timeout")
    limit = float(mark.args[0] if mark and mark.args else item.config.getini("timeout"))
    watch = stalls.Watch(item.nodeid, limit * _PART)
    try:
        return (yield)
    finally:
        watch.stop()
