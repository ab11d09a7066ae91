"""Tasks that fail, processes that are killed, batches that are repeated: what a query leaves is exact all the same.

Each of these runs with `delivery=at-least-once` too, where it does leave duplicates: so it is known that the fault
happened, and that the delivery made the difference.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sbp_native as sbp
from sbp_native import testing
from sbp_native.testing import eventually
from spark import faults
from spark.drivers import Driver
from spark.support import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 2_000
#: Seconds until a job, the first of a new driver perhaps, comes to its first frame.
PATIENCE = 200
DELIVERIES = ("exactly-once", "at-least-once")

pytestmark = [pytest.mark.timeout(500), pytest.mark.slow]


class Drivers:
    """A driver for the tests of this file, made anew when a test has killed the last."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._driver: Driver | None = None

    def living(self) -> Driver:
        """A driver that runs tasks up to four times."""
        if self._driver is None or not self._driver.is_alive():
            self._driver = Driver(self._place)
        return self._driver

    def close(self) -> None:
        """Kills it."""
        if self._driver is not None:
            self._driver.kill()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Drivers of another process, with task retries."""
    made = Drivers(tmp_path_factory.mktemp("driver"))
    yield made
    made.close()


@pytest.fixture
def proxy() -> Iterator[sbp.Proxy]:
    """A server behind a proxy, so that answers can be held back."""
    with testing.proxied() as made:
        yield made


def judge(client: sbp.Client, target: str, delivery: str, rows: int = ROWS) -> None:
    """Every row is there; exactly once, or with the duplicates that show what happened."""
    found = faults.held(client, target)
    wanted = Counter(faults.numbered(rows))
    print(f"{delivery}: {found.total()} rows for {rows}, {(found - wanted).total()} of them twice or more")
    assert not wanted - found, "rows are missing"
    if delivery == "exactly-once":
        assert found == wanted, f"{(found - wanted).total()} rows too many"
    else:
        assert found != wanted, "the fault did not happen"


def prepared(client: sbp.Client, name: str, rows: int = ROWS) -> tuple[str, str]:
    """A stream with rows, in batches, and an empty one to copy them to."""
    source = client.create_stream(f"{name}/source")
    values = faults.numbered(rows)
    for start in range(0, rows, 100):
        source.append(values[start : start + 100])
    return source.name, client.create_stream(f"{name}/target").name


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_workers_are_killed_amid_a_batch(
    drivers: Drivers, proxy: sbp.Proxy, name: str, checkpoint: str, delivery: str
) -> None:
    """The rows are stored, the acknowledgement is on its way, the worker dies."""
    driver = drivers.living()
    with sbp.connect(proxy.address) as client:
        source, target = prepared(client, name)
        with proxy.hold("answer APPEND") as held:
            options = {"delivery": delivery}
            driver.start(
                "copy", servers=proxy.address, source=source, target=target, checkpoint=checkpoint, options=options
            )
            frame = held.wait(PATIENCE)
            assert client.stream(target).positions().latest > 0
            driver.kill_workers()
            frame.cut()
        driver.answer()
        judge(client, target, delivery)


def test_the_server_is_killed_amid_a_batch(drivers: Drivers, name: str, checkpoint: str, tmp_path: Path) -> None:
    """The rows are on disk, the acknowledgement is lost with the server; the task goes on when it is back."""
    driver = drivers.living()
    with sbp.Proxy() as proxy, ServerProcess(tmp_path, "--advertise", proxy.address) as server:
        proxy.target = server.address
        with sbp.connect(proxy.address) as client:
            source, target = prepared(client, name)
        with proxy.hold("answer APPEND") as held:
            driver.start("copy", servers=proxy.address, source=source, target=target, checkpoint=checkpoint)
            frame = held.wait(PATIENCE)
            server.kill()
            frame.cut()
        server.start()
        driver.answer()
        with sbp.connect(proxy.address) as client:
            judge(client, target, "exactly-once")


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_an_append_comes_when_its_batch_is_over(
    drivers: Drivers, proxy: sbp.Proxy, name: str, checkpoint: str, delivery: str
) -> None:
    """A worker's request is delayed on its way until the worker is dead and other ones have written all batches."""
    driver = drivers.living()
    with sbp.connect(proxy.address) as client:
        source, target = prepared(client, name)
        with proxy.hold("request APPEND times=1") as held:
            driver.start(
                "copy",
                servers=proxy.address,
                source=source,
                target=target,
                checkpoint=checkpoint,
                options={"delivery": delivery},
                per_trigger=900,
            )
            late = held.wait(PATIENCE)
            driver.kill_workers()
            driver.answer()
            answered = proxy.stats()["frames_to_client"]
            late.forward()
            eventually(lambda: proxy.stats()["frames_to_client"] > answered)
        judge(client, target, delivery)


def test_a_worker_is_killed_amid_a_read(drivers: Drivers, proxy: sbp.Proxy, name: str) -> None:
    driver = drivers.living()
    with sbp.connect(proxy.address) as client:
        source, _ = prepared(client, name)
        with proxy.hold("answer FETCH") as held:
            driver.start("sum_of_lengths", servers=proxy.address, stream=source)
            frame = held.wait(PATIENCE)
            driver.kill_workers()
            frame.cut()
        wanted = [ROWS, ROWS * (ROWS - 1) // 2, sum(map(len, faults.numbered(ROWS)))]
        assert driver.answer() == wanted
