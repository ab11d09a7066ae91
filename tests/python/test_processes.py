"""What I/O threads may not need, and how a process ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import sbp_native as sbp

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_io_goes_on_while_the_interpreter_lock_is_held(run_python: Run) -> None:
    """10,000 appends are answered while the only Python thread never lets go of the interpreter."""
    script = """
        import asyncio, ctypes, subprocess, sys, time
        import sbp_native as sbp

        server = subprocess.Popen(
            [sys.executable, "-c", "import sys, sbp_native as sbp\\n"
             "server = sbp.Server(durability='none')\\nprint(server.address, flush=True)\\n"
             "while line := sys.stdin.readline(): print(server.stats()['records_appended'], flush=True)"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        address = server.stdout.readline().strip()

        def appended():
            server.stdin.write("?\\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        # PyDLL does not release the interpreter lock around a call.
        hold = ctypes.PyDLL(None).usleep

        async def main():
            async with sbp.aio.connect(address) as client:
                stream = await client.create_stream("busy")
                await stream.append(b"warm")
                operations = [stream.append(b"%d" % n) for n in range(10_000)]
                await asyncio.sleep(0)                  # the tick ends: everything is handed over
                hold(2_000_000)
                assert appended() == 10_001, "the appends waited for the interpreter"
                assert client.stats()["answers"] > 0
                acks = await asyncio.gather(*operations)
                assert [ack.base_offset for ack in acks] == list(range(1, 10_001))

        asyncio.run(main())
        server.kill()
        server.wait()
    """
    run_python(script)


def test_ending_with_operations_under_way(server: sbp.Server, name: str, run_python: Run) -> None:
    script = """
        import asyncio, sys
        import sbp_native as sbp

        async def main(address, name):
            client = await sbp.aio.connect(address)
            stream = await client.create_stream(name, exist_ok=True)

            async def worker():
                while True:
                    await stream.append(b"x" * 100)

            tails = [stream.tail(start="earliest") for _ in range(3)]
            tasks = [asyncio.create_task(worker()) for _ in range(200)]
            tasks += [asyncio.ensure_future(anext(tail)) for tail in tails]
            await asyncio.sleep(0.2)

        asyncio.run(main(*sys.argv[1:]))
        print("ended")
    """
    for _ in range(3):
        done = run_python(script, server.address, name)
        assert done.stdout == "ended\n"
        assert done.stderr == ""


def test_ending_without_closing_anything(run_python: Run) -> None:
    script = """
        import threading
        import sbp_native as sbp
        server = sbp.Server()
        client = sbp.connect(server.address)
        stream = client.create_stream("s")
        stream.append(b"x" * 100_000)
        batches = stream.read()
        next(batches)
        tail = stream.tail()
        threading.Thread(target=next, args=(tail,), daemon=True).start()
        print("ended")
    """
    done = run_python(script)
    assert done.stdout == "ended\n"
    assert done.stderr == ""


def test_a_temporary_directory_goes_with_its_server(run_python: Run) -> None:
    script = """
        import os, tempfile
        before = set(os.listdir(tempfile.gettempdir()))
        import sbp_native as sbp
        server = sbp.Server()
        made = set(os.listdir(tempfile.gettempdir())) - before
        import atexit
        print(*(os.path.join(tempfile.gettempdir(), name) for name in made))
    """
    import os

    made = run_python(script).stdout.split()
    assert not [path for path in made if "sbp" in os.path.basename(path) and os.path.exists(path)]


def test_a_loop_that_is_closed_with_operations_under_way(server: sbp.Server, name: str, run_python: Run) -> None:
    script = """
        import asyncio, gc, sys
        import sbp_native as sbp
        address, name = sys.argv[1:]
        for _ in range(5):
            loop = asyncio.new_event_loop()
            async def main():
                client = await sbp.aio.connect(address)
                stream = await client.create_stream(name, exist_ok=True)
                return [stream.append(b"x") for _ in range(50)] + [client.ping()], client
            operations, client = loop.run_until_complete(main())
            loop.close()
            del operations, client
            gc.collect()
        with sbp.connect(address) as client:
            assert client.ping() > 0
        print("ended")
    """
    assert run_python(script, server.address, name).stdout == "ended\n"


def test_the_command_is_in_the_wheel(server: sbp.Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sbp_native._cli", "--help"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0
    assert "serve" in done.stdout
