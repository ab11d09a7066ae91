"""What the comparison with Kafka needs: an environment with an older PySpark, and the connector's jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark_sbp
import sbp_native

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / "target" / "bench-spark"


def connector() -> str:
    """The class path of Spark's Kafka source and sink. What else they need, Spark has."""
    jars = PLACE / "connector"
    if not any(jars.glob("spark-sql-kafka-*.jar")):
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "connector.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        subprocess.run(command, check=True, timeout=600)
    return f"{jars}/*"


def peer_python() -> Path:
    """The interpreter of an environment with the requirements of the comparison, made once."""
    place = PLACE / "venv"
    python = place / "bin" / "python"
    wanted = (HERE / "requirements.txt").read_text()
    made = place / "made-from"
    if not made.exists() or made.read_text() != wanted:
        uv = _uv()
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)], check=True)
        command = [uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(HERE / "requirements.txt")]
        subprocess.run(command, check=True, timeout=900)
        made.write_text(wanted)
    return python


def packages() -> Path:
    """A directory with nothing but the two packages that this process uses, for another interpreter's path."""
    place = PLACE / "packages"
    place.mkdir(parents=True, exist_ok=True)
    for package in (sbp_native, pyspark_sbp):
        assert package.__file__ is not None
        link = place / package.__name__
        link.unlink(missing_ok=True)
        link.symlink_to(Path(package.__file__).parent)
    return place


def variables(python: Path, peer: bool) -> dict[str, str]:
    """The environment of a measuring process, and so of its JVM and workers."""
    # Spark looks for data sources, and runs its workers, with this interpreter.
    chosen = os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONHASHSEED": "0", "TZ": "UTC"}
    if peer:
        chosen["PYTHONPATH"] = str(packages())
    return chosen


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise RuntimeError("uv is not installed; `make venv` installs it into .venv")
    return found
