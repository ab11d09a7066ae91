"""Tasks that fail, drivers that die, commits that Spark forgot: what a query leaves is exact all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from sbp_native import testing
from spark import faults
from spark.drivers import Driver, jobs
from spark.test_spark_faults import DELIVERIES, PATIENCE, ROWS, judge, prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def proxy() -> Iterator[sbp.Proxy]:
    """A server behind a proxy."""
    with testing.proxied() as made:
        yield made


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_tasks_that_fail_are_repeated(
    server: sbp.Server, client: sbp.Client, name: str, checkpoint: str, tmp_path: Path, delivery: str
) -> None:
    source, target = prepared(client, name)
    options = {"delivery": delivery, "batchRows": "50"}
    with Driver(tmp_path / "driver", settings=faults.SMALL_PORTIONS) as driver:
        driver.run(
            "copy",
            servers=server.address,
            source=source,
            target=target,
            checkpoint=checkpoint,
            options=options,
            fail_first_attempts=True,
        )
    judge(client, target, delivery)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_the_driver_is_killed_amid_a_batch(
    proxy: sbp.Proxy, spark: SparkSession, name: str, checkpoint: str, tmp_path: Path, delivery: str
) -> None:
    """Some rows of a batch are stored, the driver dies, another one goes on from the checkpoint."""
    driver = Driver(tmp_path / "driver")
    with sbp.connect(proxy.address) as client:
        source, target = prepared(client, name)
        copied = {"servers": proxy.address, "source": source, "target": target, "checkpoint": checkpoint}
        copied |= {"per_trigger": 700, "options": {"delivery": delivery}}
        with proxy.hold("answer APPEND") as held:
            driver.start("copy", **copied)
            # The first batch goes through, the second is cut off.
            answer = held.wait(PATIENCE)
            while client.stream(target).positions().latest <= 700:
                answer.forward()
                answer = held.wait(PATIENCE)
            driver.kill()
        assert client.stream(target).positions().latest < ROWS
        assert jobs.copy(spark, **copied) >= 2
        judge(client, target, delivery)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_batch_is_repeated_because_its_commit_is_not_in_the_log(
    spark: SparkSession, server: sbp.Server, client: sbp.Client, name: str, checkpoint: str, delivery: str
) -> None:
    """What a crash leaves between the sink's commit and Spark's own: the last commit file is not there."""
    source, target = prepared(client, name)
    copied = {"servers": server.address, "source": source, "target": target, "checkpoint": checkpoint}
    options = {"delivery": delivery}
    jobs.copy(spark, per_trigger=900, options=options, **copied)
    commits = sorted((int(path.name), path) for path in Path(checkpoint, "commits").glob("[0-9]*"))
    assert len(commits) >= 3
    commits[-1][1].unlink()
    jobs.copy(spark, per_trigger=900, options=options, **copied)
    judge(client, target, delivery)
