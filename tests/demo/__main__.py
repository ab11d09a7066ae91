"""The main job: a year of flights through SBP streams, Spark and back, every figure compared with the original file.

Without an option it runs on one server; with ``--cluster`` on three servers and an etcd, where every stream has three
copies of which two acknowledge. While the streaming query runs, the server that takes the appends of half of the
streams is killed with SIGKILL and started again; later the directory of another one is deleted, and that one started
empty. A table and a picture tell who held what when, and how long appends stood still. What a run leaves behind is
below ``target/``: figures and pictures in ``report.html``, the servers' logs beside it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import cluster, pipeline, protocols, selftest

_OUTPUT = Path(__file__).resolve().parents[2] / "target"


def main() -> int:
    """Runs the demo or its self-test; 0 if every figure is right."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cluster", action="store_true", help="on three servers, two of which are lost in turn")
    parser.add_argument(
        "--protocols", action="store_true", help="in through clients of TANK, Pravega and Seastar RPC instead"
    )
    parser.add_argument("--selftest", action="store_true", help="show that the check fails on tampered events")
    parser.add_argument(
        "--months", type=int, choices=range(2, 13), default=12, help="only the first months of the year (default: 12)"
    )
    given = parser.parse_args()
    try:
        if given.protocols:
            protocols.ProtocolsDemo(_OUTPUT / "demo-protocols", given.months).run()
        elif given.selftest and given.cluster:
            selftest.run_cluster(_OUTPUT / "demo-cluster-selftest", given.months)
        elif given.selftest:
            selftest.run(_OUTPUT / "demo-selftest")
        elif given.cluster:
            cluster.ClusterDemo(_OUTPUT / "demo-cluster", given.months).run()
        else:
            pipeline.Demo(_OUTPUT / "demo", given.months).run()
    except pipeline.Failure as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
