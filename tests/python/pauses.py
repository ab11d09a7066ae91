"""Processes that are paused, and what it takes to know that they are."""

from __future__ import annotations

import os
import signal
import subprocess


def pause(process: subprocess.Popen[str]) -> None:
    """Stops a child, and returns when it stands still. SIGCONT has it go on.

    A signal that was sent is on its way: until every thread has taken it, which may be tens of milliseconds, a server
    goes on answering, and what is sent meanwhile may meet no pause at all.
    """
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
