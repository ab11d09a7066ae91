"""A TANK client for tests: `python3 -m tests.tank.client PORT VERSION` talks through everything that a broker answers.

With `--produce TOPIC` it produces numbers there until the connection ends, and prints each that was acknowledged.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time

from tests.tank.broker import CONSUME, CREATE, PARTITIONS, PING, PRODUCE, STATUS, TOPICS, Reader, frame, name, varint

NUMBERED, TOPOLOGY = 5, 12


def bundle(*messages: tuple[bytes | None, bytes]) -> bytes:
    """A bundle of messages, each with its time or that of the one before."""
    body = b""
    for place, (key, content) in enumerate(messages):
        flags = (key is not None) | (2 if place else 0)
        body += bytes([flags]) + (b"" if place else struct.pack("<Q", 1_700_000_000_123))
        body += (b"" if key is None else name(key)) + varint(len(content)) + content
    count = len(messages)
    head = bytes([count << 2]) if count < 16 else b"\0" + varint(count)
    return head + body


def messages(data: bytes) -> list[tuple[bytes | None, bytes]]:
    """The messages of a bundle that is not compressed and not sparse."""
    reader, found = Reader(data), []
    flags = reader.number("B")
    assert flags & 0xC3 == 0, flags
    for _ in range(flags >> 2 & 15 or reader.varint()):
        flags = reader.number("B")
        if not flags & 2:
            assert reader.number("Q") == 1_700_000_000_123
        key = reader.name() if flags & 1 else None
        found.append((key, reader.take(reader.varint())))
    return found


class Client:
    """One connection; requests are answered one after the other."""

    def __init__(self, port: int, version: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.version, self.rid = version, 0
        assert self.receive() == (PING, b""), "a broker greets"

    def exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            data += more
        return data

    def receive(self) -> tuple[int, bytes]:
        message, length = struct.unpack("<BI", self.exactly(5))
        return message, self.exactly(length)

    def ask(self, message: int, payload: bytes, *, is_versioned: bool = False) -> Reader:
        self.rid += 1
        head = (
            struct.pack("<HI", self.version, self.rid) + name(b"test") if is_versioned else struct.pack("<I", self.rid)
        )
        self.socket.sendall(frame(message, head + payload))
        answer = self.receive()
        while answer == (PING, b""):
            answer = self.receive()
        expected = PRODUCE if message == NUMBERED else message
        assert answer[0] == expected, answer
        reader = Reader(answer[1])
        if message == CONSUME:
            assert reader.number("I") <= len(answer[1])
        assert reader.number("I") == self.rid
        return reader

    def produce(self, topic: bytes, parts: list[tuple[int, bytes]], first: int | None = None) -> bytes:
        """The codes that the broker answers."""
        payload = struct.pack("<BIB", 1, 1000, 1) + name(topic) + bytes([len(parts)])
        for partition, data in parts:
            number = b"" if first is None else struct.pack("<Q", first)
            payload += struct.pack("<H", partition) + varint(len(data)) + number + data
        reader = self.ask(PRODUCE if first is None else NUMBERED, payload, is_versioned=True)
        return reader.data[reader.at :]

    def wants(
        self, topic: bytes, partition: int, sequence: int, wait: int = 0, size: int = 1 << 20, least: int = 0
    ) -> bytes:
        """A Consume of one partition, without its head."""
        flags = b"\0" if self.version >= 3 else b""
        payload = struct.pack("<QI", wait, least) + flags + b"\1" + name(topic) + b"\1"
        return payload + struct.pack("<HQI", partition, sequence, size)

    def begin(self, topic: bytes, partition: int, sequence: int, **options: int) -> None:
        """Sends a Consume with id 99, whose answer is received later."""
        head = struct.pack("<HI", self.version, 99) + name(b"")
        self.socket.sendall(frame(CONSUME, head + self.wants(topic, partition, sequence, **options)))

    def consume(self, topic: bytes, partition: int, sequence: int, **options: int) -> tuple[object, ...]:
        """Code, base, high water, and the messages; of an unknown topic nothing."""
        reader = self.ask(CONSUME, self.wants(topic, partition, sequence, **options), is_versioned=True)
        assert (reader.number("B"), reader.name(), reader.number("B")) == (1, topic, 1)
        if reader.number("H") == 0xFFFF:
            return ()
        code = reader.number("B")
        if code == 0xFF:
            return (code,)
        base, high_water, length = reader.number("Q"), reader.number("Q"), reader.number("I")
        if code == 1:
            return code, high_water, reader.number("Q")
        end, found = reader.at + length, []
        while reader.at < end:
            found += messages(reader.take(reader.varint()))
        assert reader.at == len(reader.data) == end
        return code, base, high_water, found

    def create(self, topic: bytes, partitions: int, config: bytes = b"") -> int:
        reader = self.ask(CREATE, name(topic) + struct.pack("<H", partitions) + varint(len(config)) + config)
        assert reader.name() == topic
        return reader.number("B")

    def partitions(self, topic: bytes) -> list[tuple[int, int]]:
        reader = self.ask(PARTITIONS, name(topic))
        assert reader.name() == topic
        return [(reader.number("Q"), reader.number("Q")) for _ in range(reader.number("H"))]


def answered_before(client: Client, requests: int) -> bytes | None:
    """What a Consume that waits is answered while the connection answers so many other requests."""
    answer = None
    for _ in range(requests):
        client.rid += 1
        client.socket.sendall(frame(STATUS, struct.pack("<I", client.rid)))
        while (received := client.receive())[0] != STATUS:
            if received[0] == CONSUME:
                answer = received[1]
    return answer


def wait_for_bytes(client: Client, other: Client, topic: bytes) -> None:
    """The least number of bytes is that of what comes while a Consume waits. Partition 0 has four messages."""
    hour, many, last = 3_600_000, 1 << 20, 4

    def produce() -> bytes:
        nonlocal last
        last += 1
        content = b"number %04d" % last
        assert other.produce(topic, [(0, bundle((None, content)))]) == b"\0"
        return content

    # What is there is told at once.
    assert client.consume(topic, 0, 1, wait=hour, least=many)[2] == last
    size = len(bundle((None, b"number 0000")))
    for _attempt in range(50):
        client.begin(topic, 0, last + 1, wait=hour, least=2 * size)
        assert answered_before(client, 5) is None
        first = produce()
        early = answered_before(client, 20)
        if early is None:
            second = produce()
            message, answer = client.receive()
            assert (message, first in answer, second in answer) == (CONSUME, True, True), answer
            break
        # The server has looked for the first time when the message was there: that is told at once.
        assert first in early, early
    else:
        raise AssertionError("a Consume is answered with less than it waits for")
    # More than is taken of one partition is not waited for.
    client.begin(topic, 0, last + 1, wait=hour, size=1, least=many)
    content = produce()
    message, answer = client.receive()
    assert (message, content in answer) == (CONSUME, True), answer


def talk(port: int, version: int) -> None:
    """Everything that a broker answers, and that it answers right."""
    client, topic = Client(port, version), b"talk%d" % version
    one, two = (None, b"first"), (b"key", b"second")
    assert client.create(topic, 2) == 0
    assert (client.create(topic, 2), client.create(b"no.topic", 1), client.create(b"x", 1, b"a=b")) == (1, 10, 4)
    assert client.partitions(topic) == [(0, 0), (0, 0)]
    assert client.partitions(b"none") == []
    assert client.consume(topic, 0, 0) == (0, 0, 0, [])
    assert client.produce(topic, [(0, bundle(one, two)), (7, bundle(one)), (1, b"\x06no bundle")]) == b"\0\1\2"
    assert client.produce(b"none", [(0, bundle(one)), (1, bundle(one))]) == b"\xff"
    assert client.consume(topic, 0, 0) == (0, 1, 2, [one, two]) == client.consume(topic, 0, 1)
    assert client.consume(topic, 0, 2) == (0, 2, 2, [two])
    assert client.consume(topic, 0, 4) == (1, 2, 1)
    assert client.consume(topic, 9, 1) == (0xFF,)
    assert client.consume(b"none", 0, 1) == ()
    assert client.partitions(topic) == [(1, 2), (0, 0)]
    # Numbered ones continue exactly, or are told why not.
    assert [client.produce(topic, [(0, bundle(one))], first) for first in (2, 4, 3)] == [b"\x0a", b"\2", b"\0"]
    many = [(b"k", b"%d" % number) for number in range(40)]
    assert client.produce(topic, [(1, bundle(*many))]) == b"\0"
    assert client.consume(topic, 1, 1)[3] == many
    # A wait ends when something is produced, and when its time is over.
    other, end = Client(port, version), 2**64 - 1
    begun = time.monotonic()
    assert client.consume(topic, 0, end, wait=100) == (0, 0, 3, [])
    assert time.monotonic() - begun >= 0.1
    client.begin(topic, 0, 4, wait=20_000, size=1000)
    assert other.produce(topic, [(0, bundle(two))]) == b"\0"
    message, answer = client.receive()
    assert message == CONSUME
    assert b"second" in answer, answer
    wait_for_bytes(client, other, topic)
    assert client.ask(STATUS, b"").data[4:6] == b"\0\0"
    assert client.ask(TOPOLOGY, b"\0").number("H") == 0xFFFF
    assert name(topic) + struct.pack("<BH", 1, 2) in client.ask(TOPICS, b"\0").data
    # What is no request ends the connection, and nothing else.
    other.socket.sendall(frame(4, b"\0\0"))
    assert not other.socket.recv(1)


def produce_on(port: int, topic: bytes) -> None:
    client, number = Client(port, 2), 0
    try:
        while client.produce(topic, [(0, bundle((None, b"%d" % number)))]) == b"\0":
            print(number, flush=True)
            number += 1
    except ConnectionError:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("version", type=int)
    parser.add_argument("--produce")
    options = parser.parse_args()
    if options.produce:
        produce_on(options.port, options.produce.encode())
    else:
        talk(options.port, options.version)
