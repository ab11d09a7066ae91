"""How long a producer of Kafka stands still when the broker is killed that leads its partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.bench_python.broker import Broker

_WITHIN = 120.0
_INTERVAL = 0.01


class Singles:
    """Produces one record after the other, each when the one before was acknowledged, and notes when that was."""

    def __init__(self, address: str, topic: str) -> None:
        """Begins at once, in a thread of its own."""
        self.acknowledged: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address, topic), daemon=True)
        self._thread.start()

    def goes_on(self) -> None:
        """Waits for two acknowledgements from now on: the first may be of a record that was under way."""
        wanted = len(self.acknowledged) + 2
        deadline = time.monotonic() + _WITHIN
        while len(self.acknowledged) < wanted:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError("the producer of Kafka does not get on")
            time.sleep(_INTERVAL)

    def longest(self, since: float) -> float:
        """The longest time between two acknowledgements of which the second one came later than `since`."""
        return max(b - a for a, b in pairwise(self.acknowledged) if b > since)

    def stop(self) -> None:
        """Ends it."""
        self._over.set()
        self._thread.join(_WITHIN)

    def _run(self, address: str, topic: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

        def delivered(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.append(time.monotonic())

        while not self._over.is_set():
            producer.produce(topic, bytes(64), on_delivery=delivered)
            producer.flush(_WITHIN)
            time.sleep(_INTERVAL)


def of_one_partition(brokers: list[Broker], times: int, told: Callable[[str], None]) -> list[float]:
    """Seconds without an acknowledged record, for each SIGKILL of the partition's leader. Each comes when all three
    brokers are in sync again."""
    from confluent_kafka.admin import AdminClient

    address = ",".join(broker.address for broker in brokers)
    topic = "taken-over"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    singles = Singles(address, topic)
    lost = []
    try:
        for number in range(times):
            singles.goes_on()
            leader = _leader_when_in_sync(admin, topic, len(brokers))
            since = time.monotonic()
            brokers[leader - 1].kill()
            singles.goes_on()
            lost.append(singles.longest(since))
            told(f"Kafka: {number + 1} of {times}, {lost[-1]:.2f} s")
            brokers[leader - 1].start()
            brokers[leader - 1].wait()
    finally:
        singles.stop()
    return lost


def _leader_when_in_sync(admin: Any, topic: str, brokers: int) -> int:
    deadline = time.monotonic() + _WITHIN
    while time.monotonic() < deadline:
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if 0 in partitions and len(partitions[0].isrs) == brokers and partitions[0].leader > 0:
            leader: int = partitions[0].leader
            return leader
        time.sleep(0.2)
    raise TimeoutError("the brokers of Kafka are not in sync")
