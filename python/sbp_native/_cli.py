"""The ``sbp`` command: the same program as the standalone binary, run from the extension module."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command line of this process and returns its exit status."""
    # The command handles no signals through Python: Ctrl-C and SIGTERM end it as they end any program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run_cli(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
