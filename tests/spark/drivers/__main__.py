"""The driver process: a session, and a loop that runs jobs by name."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

from spark import settings
from spark.drivers import jobs


def main() -> None:
    """Starts the session, says so, and serves until the other side is gone."""
    descriptor, place, master, *given = sys.argv[1:]
    time.tzset()
    wanted = dict(setting.split("=", 1) for setting in given)
    spark = settings.session(Path(place), master, **{"spark.driver.memory": "1g", **wanted})
    with socket.socket(fileno=int(descriptor)) as peer, peer.makefile("rw") as lines:

        def say(what: str, value: object) -> None:
            lines.write(json.dumps([what, value]) + "\n")
            lines.flush()

        say("returned", spark._jvm.ProcessHandle.current().pid())
        for line in lines:
            job, arguments = json.loads(line)
            try:
                say("returned", getattr(jobs, job)(spark, **arguments))
            except Exception as error:
                say("raised", str(error))


main()
