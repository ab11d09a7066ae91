"""A Spark cluster on loopback: a master and workers, each on an address of its own, so that Spark takes them for hosts.

Spark repeats a slow task only on another host than the first attempt's, and never in local mode.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark

from sbp_native.testing import eventually
from spark.support import Process, descendants

if TYPE_CHECKING:
    from types import TracebackType

_JARS = Path(pyspark.__file__).parent / "jars"
_TESTS = Path(__file__).resolve().parents[1]


class Cluster:
    """A master and `hosts` workers with one core each. Leaving its ``with`` block kills everything below them."""

    def __init__(self, place: Path, hosts: int = 2) -> None:
        self._place = place
        self._hosts = hosts
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        """Starts them, and waits until the workers are known to the master."""
        self._place.mkdir(parents=True, exist_ok=True)
        self._java("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        for number in range(self._hosts):
            options = ["--host", f"127.0.0.{number + 2}", "--cores", "1", "--memory", "1g"]
            options += ["--work-dir", str(self._place / f"work-{number}")]
            self._java(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *options, self.master)
            self._said(f"worker-{number}", r"(Successfully registered with master)")

    def settings(self) -> dict[str, str]:
        """What a session needs beyond `master`."""
        search = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        return {
            "spark.executor.memory": "700m",
            "spark.executor.cores": "1",
            "spark.executorEnv.PYTHONPATH": search,
            "spark.pyspark.python": sys.executable,
        }

    def executors(self, application: str) -> list[Process]:
        """The executors that run now for an application."""
        below = [process for started in self._started for process in descendants(started.pid)]
        return [
            process
            for process in below
            if "CoarseGrainedExecutorBackend" in process.command and application in process.command
        ]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _java(self, name: str, role: str, *options: str) -> None:
        command = ["java", "-Xmx256m", "-cp", f"{_JARS}/*", role, "--webui-port", "0", *options]
        # The version is what a distribution would show by the names of its directories.
        environment = {**os.environ, "SPARK_HOME": str(_JARS.parent), "SPARK_SCALA_VERSION": "2.13"}
        with self._log(name).open("ab") as log:
            started = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._started.append(started)

    def _said(self, name: str, pattern: str) -> str:
        found: list[str] = []

        def there() -> bool:
            found[:] = re.findall(pattern, self._log(name).read_text(errors="replace"))
            return bool(found)

        eventually(there, timeout=60)
        return found[0]

    def _log(self, name: str) -> Path:
        return self._place / f"{name}.log"

    def _kill(self) -> None:
        below = [process.pid for started in self._started for process in descendants(started.pid)]
        for pid in [*(started.pid for started in self._started), *below]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for started in self._started:
            started.wait(30)
