"""Kafka's Python clients, tuned as their guides say: produce, consume, single sends, end to end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

from . import paced

ROW = bytes(range(100))


def _producer(address: str, **options: Any) -> Any:
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": address,
        "acks": "all",
        "queue.buffering.max.messages": 5_000_000,
        "queue.buffering.max.kbytes": 2_000_000,
        "log_level": 0,
    }
    return Producer(settings | options)


def _consumer(address: str, **options: Any) -> Any:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": address,
        "group.id": "bench",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    return Consumer(settings | options)


TUNED = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_048_576,
    "fetch.message.max.bytes": 16 << 20,
    "fetch.max.bytes": 64 << 20,
    "fetch.queue.backoff.ms": 2,
}


def _partition(topic: str, offset: int | None = None) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    return TopicPartition(topic, 0, OFFSET_BEGINNING if offset is None else offset)


# Fuller batches cost client and broker less of each record than the 10,000 records of the defaults.
BULK = {"batch.num.messages": 100_000, "batch.size": 1_000_000, "linger.ms": 10}


def _delete(address: str, topic: str) -> None:
    """Deletes a topic, so that what it holds does not have to find its way to the disk while others are measured."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for deleted in admin.delete_topics([topic], operation_timeout=30).values():
        deleted.result(timeout=60)


def produce(address: str, topic: str, rows: int, *, callback: bool = False, keep: bool = False) -> float:
    """Records a second, a list of them produced until all are acknowledged. The topic is deleted, unless told to keep
    it."""
    producer = _producer(address, **BULK)
    producer.produce(topic, ROW)
    producer.flush(60)
    records = [ROW] * rows
    done = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal done
        done += error is None

    started = time.perf_counter()
    for index, record in enumerate(records):
        if callback:
            producer.produce(topic, record, on_delivery=delivered)
        else:
            producer.produce(topic, record)
        if index % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    elapsed = time.perf_counter() - started
    if left or (callback and done != rows):
        raise RuntimeError(f"{left} of {rows} records were not acknowledged")
    if not keep:
        _delete(address, topic)
    return rows / elapsed


def consume(address: str, topic: str, rows: int, *, tuned: bool = True) -> float:
    """Records a second as `list[bytes]`, a list for each call; as ours, they are let go of then."""
    consumer = _consumer(address, **(TUNED if tuned else {}))
    started = time.perf_counter()
    consumer.assign([_partition(topic)])
    seen = 0
    while seen < rows:
        values = [message.value() for message in consumer.consume(10_000, timeout=30)]
        seen += len(values)
    elapsed = time.perf_counter() - started
    consumer.close()
    return seen / elapsed


def awaited_sends(address: str, topic: str, in_flight: int, total: int) -> float:
    """Sends a second, each awaited, from so many asyncio tasks."""

    async def main() -> float:
        from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped, unused-ignore]

        producer = AIOKafkaProducer(bootstrap_servers=address, acks="all")
        await producer.start()
        body = bytes(64)
        await producer.send_and_wait(topic, body)

        async def worker() -> None:
            for _ in range(total // in_flight):
                await producer.send_and_wait(topic, body)

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        elapsed = time.perf_counter() - started
        await producer.stop()
        return total // in_flight * in_flight / elapsed

    return asyncio.run(main())


def blocking_send_us(address: str, topic: str, calls: int = 3_000) -> float:
    """Median microseconds of one blocking send."""
    producer = _producer(address, **{"linger.ms": 0})
    body = bytes(64)
    samples = []
    for _ in range(calls):
        started = time.perf_counter_ns()
        producer.produce(topic, body)
        if producer.flush(30):
            raise RuntimeError("a record was not acknowledged")
        samples.append((time.perf_counter_ns() - started) / 1_000)
    samples.sort()
    return samples[calls // 2]


def end_to_end(address: str, topic: str) -> paced.Latency:
    """Latency at a steady rate: no linger, and a consumer that polls."""
    producer = _producer(address, **{"linger.ms": 0})

    def send(value: bytes) -> None:
        producer.produce(topic, value)
        producer.poll(0)

    def values(stop: threading.Event) -> Iterator[bytes]:
        consumer = _consumer(address, **{"fetch.wait.max.ms": 500, "fetch.min.bytes": 1})
        consumer.assign([_partition(topic)])
        while not stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                yield message.value()
        consumer.close()

    send(paced.stamped())
    producer.flush(30)
    return paced.measure(send, values)
