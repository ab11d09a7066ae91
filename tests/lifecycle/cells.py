"""All cells by name. `python -m lifecycle.cells NAME ADDRESS` runs one in this process."""

from __future__ import annotations

import sys
import warnings

from . import ends, forks, pools, runs
from .support import CELLS

__all__ = ["CELLS", "ends", "forks", "pools", "runs"]


def main() -> None:
    """Runs one cell."""
    warnings.simplefilter("error")
    # Python 3.12 warns about every fork of a process with threads, which is what is tested here.
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    CELLS[sys.argv[1]](sys.argv[2])
    print("ok", flush=True)


if __name__ == "__main__":
    main()
