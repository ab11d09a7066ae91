"""Events that say which they are, written while a test goes on, and what is to be found of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sbp_native.pravega import Pravega

#: Routing keys.
KEYS = 23
#: Events that are written together.
TOGETHER = 20


def event(number: int) -> tuple[str, bytes]:
    """An event and its key: both in its content."""
    key = f"key-{number % KEYS}"
    return key, f"{key}:{number}".encode()


def check(found: Iterable[bytes], end: int, start: int = 0) -> None:
    """Each of the events from `start` to `end` is there once, and those of one key in their order."""
    of_key: dict[str, list[int]] = {}
    for content in found:
        key, _, number = content.decode().partition(":")
        of_key.setdefault(key, []).append(int(number))
    for key, numbers in of_key.items():
        assert numbers == sorted(numbers), f"events of {key} are out of order: {numbers[:50]}"
    every = sorted(number for numbers in of_key.values() for number in numbers)
    assert every == list(range(start, end)), f"{len(every)} events are there, and not those from {start} to {end}"


class Writing:
    """Writes until its ``with`` block ends, in a thread of its own."""

    def __init__(self, client: Pravega, stream: str, pause: float = 0.0) -> None:
        self._client, self._stream, self._pause = client, stream, pause
        #: Events that are stored.
        self.count = 0
        self._over = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        try:
            with self._client.writer(self._stream) as writer:
                while not self._over.wait(self._pause):
                    writer.append_many(map(event, range(self.count, self.count + TOGETHER)), timeout=60)
                    self.count += TOGETHER
        except BaseException as error:
            self._failed = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "the writer does not end"
        if self._failed is not None:
            raise self._failed
