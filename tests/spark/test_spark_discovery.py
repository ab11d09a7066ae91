"""How Spark comes to know the source, and what a broken installation says."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    import sbp_native as sbp


def alone(code: str) -> str:
    """Runs `code` in an interpreter of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_found_without_a_register_call(client: sbp.Client, read: Callable, name: str) -> None:
    client.create_stream(name).append([b"a", b"b"])
    assert read().load(name).count() == 2
    assert read().format("SBP").load(name).count() == 2


def test_a_session_can_be_told(spark: SparkSession, client: sbp.Client, read: Callable, name: str) -> None:
    import sbp_native.spark

    client.create_stream(name).append(b"a")
    sbp_native.spark.register(spark)
    assert read().load(name).count() == 1


def test_configure_sets_what_it_says(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.execution.pyspark.udf.faulthandler.enabled") == "true"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_the_finder_imports_pyspark_alone() -> None:
    """It is imported in every session that uses any Python source: nothing of ours may be able to break it."""
    out = alone("""
        import sys
        import pyspark_sbp
        assert pyspark_sbp.DefaultSource.name() == "sbp"
        print([name for name in sys.modules if name.startswith("sbp_native")])
    """)
    assert out == "[]"


def test_without_the_native_part_the_source_explains_itself() -> None:
    out = alone("""
        import sys
        sys.modules["sbp_native"] = None
        import pyspark_sbp
        try:
            pyspark_sbp.DefaultSource({"servers": "a:1"})
        except Exception as error:
            print(error)
    """)
    assert out.startswith("[SBP-9208] the native part of sbp-native cannot be loaded here")
    assert "install the wheel" in out


def test_on_an_old_pyspark_the_source_explains_itself() -> None:
    out = alone("""
        import pyspark
        pyspark.__version__ = "4.1.4"
        import pyspark_sbp
        try:
            pyspark_sbp.DefaultSource({"servers": "a:1"})
        except Exception as error:
            print(error)
    """)
    assert out.startswith("[SBP-9209] format('sbp') needs PySpark 4.2 or later, this is 4.1.4: upgrade pyspark (")


def test_the_package_does_not_need_spark() -> None:
    out = alone("""
        import sys
        for name in ("pyspark", "pyarrow", "pandas"):
            sys.modules[name] = None
        import sbp_native
        print("sbp_native.spark" in sys.modules)
    """)
    assert out == "False"


def test_imports_bring_in_what_is_used() -> None:
    """Every worker of Spark waits for them."""
    out = alone("""
        import sys
        import sbp_native, sbp_native.spark
        early = {"asyncio", "pyarrow", "pandas", "numpy", "pyspark"} & set(sys.modules)
        sbp_native.spark.SbpDataSource({"servers": "a:1", "streams": "b"})
        late = {"asyncio", "pyarrow", "pandas", "numpy", "sbp_native.spark.stream_reader", "sbp_native.spark.writer"}
        print(sorted(early), sorted(late & set(sys.modules)))
        assert set(sbp_native.spark.__all__) <= set(dir(sbp_native.spark))
        assert all(getattr(sbp_native.spark, name) for name in sbp_native.spark.__all__)
        try:
            sbp_native.spark.nothing
        except AttributeError as error:
            print(error)
    """)
    assert out == "[] []\nmodule 'sbp_native.spark' has no attribute 'nothing'"
