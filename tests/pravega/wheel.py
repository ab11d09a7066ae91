"""What the Python package `pravega` does with a server: `python3 -m tests.pravega.wheel CONTROLLER COMMAND ...`.

It runs in the environment that has that package, and needs nothing else. Each command tells what it has done as lines
of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pravega_client  # type: ignore[import-not-found]

#: How long one slice of a segment is waited for, in seconds.
PATIENCE = 60


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def admin(manager: Any) -> None:
    """Scopes and streams: made, listed, changed, sealed and deleted."""
    made = [manager.create_scope("admin"), manager.create_scope("admin")]
    scaling = pravega_client.StreamScalingPolicy.fixed_scaling_policy(2)
    retention = pravega_client.StreamRetentionPolicy.by_size(1 << 30)
    made += [manager.create_stream_with_policy("admin", "st", scaling, retention, ["blue", "green"])]
    made += [manager.create_stream("admin", "st", 2), manager.create_stream("admin", "other", 1)]
    tags = manager.get_stream_tags("admin", "st")
    changed = manager.update_stream_with_policy("admin", "st", scaling, retention, ["red"])
    later = manager.get_stream_tags("admin", "st")
    listed = [sorted(manager.list_scope()), sorted(manager.list_stream("admin"))]
    ended = [manager.seal_stream("admin", "st"), manager.delete_stream("admin", "st")]
    ended += [manager.seal_stream("admin", "other"), manager.delete_stream("admin", "other")]
    ended += [manager.delete_scope("admin")]
    tell(made=made, tags=[tags, later], changed=changed, listed=listed, ended=ended)


def write(manager: Any, scope: str, stream: str, segments: str, count: str) -> None:
    """Writes numbered events with keys, and tells how many are stored after each hundred."""
    manager.create_scope(scope)
    manager.create_stream(scope, stream, int(segments))
    writer = manager.create_writer(scope, stream, 100)
    for number in range(int(count)):
        writer.write_event(f"{number % 5}:{number}", routing_key=f"key-{number % 5}")
        if number % 100 == 99:
            writer.flush()
            tell(stored=number + 1)
    writer.flush()
    tell(stored=int(count))


def read(manager: Any, scope: str, stream: str, group: str, count: str, readers: str = "1") -> None:
    """Reads so many events with the readers of a group, and tells them in the order in which each reader had them."""
    reader_group = manager.create_reader_group(group, scope, stream)

    async def read_all(wanted: int) -> list[str]:
        seen: list[str] = []

        async def read_with(name: str) -> None:
            reader = reader_group.create_reader(name)
            while len(seen) < wanted:
                waiting = reader.get_segment_slice_async()
                try:
                    part = await asyncio.wait_for(waiting, PATIENCE if len(seen) < wanted else 1)
                except TimeoutError:
                    break
                if part is None:
                    continue
                seen.extend(event.data().decode() for event in part)
                reader.release_segment(part)
            reader.reader_offline()

        tasks = [asyncio.create_task(read_with(f"reader-{number}")) for number in range(int(readers))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # The others have nothing more to read.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
        return seen

    tell(events=asyncio.run(read_all(int(count))))


def byte_stream(manager: Any, scope: str, stream: str) -> None:
    """Writes bytes, looks where it is, reads from several places, and truncates."""
    manager.create_scope(scope)
    manager.create_stream(scope, stream, 1)
    stored = manager.create_byte_stream(scope, stream)
    data = bytes(range(256)) * 400
    for start in range(0, len(data), 10_000):
        stored.write(data[start : start + 10_000])
    stored.flush()

    def part(offset: int, length: int) -> bool:
        stored.seek(offset, 0)
        buffer = bytearray(length)
        got = 0
        while got < length:
            rest = bytearray(length - got)
            more = stored.readinto(rest)
            buffer[got : got + more] = rest[:more]
            got += more
        return bytes(buffer) == data[offset : offset + length] and stored.tell() == offset + length

    same = [part(0, len(data)), part(12_345, 20_000), part(len(data) - 3, 3)]
    tail = stored.current_tail_offset()
    stored.truncate(50_001)
    head = stored.current_head_offset()
    same.append(part(50_001, 1_000))
    tell(same=same, tail=tail, head=head)


def main() -> None:
    controller, command, *arguments = sys.argv[1:]
    manager = pravega_client.StreamManager(f"tcp://{controller}", False, False)
    {"admin": admin, "write": write, "read": read, "bytes": byte_stream}[command](manager, *arguments)


if __name__ == "__main__":
    main()
