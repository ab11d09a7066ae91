"""What I/O threads may not need, and how a process ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import sbp_native as sbp

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_io_goes_on_while_the_interpreter_lock_is_held(run_python: Run) -> None:
    """For two seconds the only Python thread does not let go of the interpreter. Meanwhile a server in another process
    gets 10,000 appends, a heartbeat every 100 ms and the answers to the PINGs that are sent."""
    script = """
        import asyncio, ctypes, json, subprocess, sys
        import sbp_native as sbp

        def start(*command):
            process = subprocess.Popen(
                [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            return process, process.stdout.readline().strip()

        def ask(process):
            process.stdin.write("?\\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        server, upstream = start("-c",
            "import json, sys, sbp_native as sbp\\n"
            "server = sbp.Server(durability='none')\\nprint(server.address, flush=True)\\n"
            "while sys.stdin.readline(): print(json.dumps(server.stats()), flush=True)")
        proxy, address = start(sys.argv[1], upstream)
        # PyDLL does not release the interpreter lock around a call.
        hold = ctypes.PyDLL(None).usleep

        async def main():
            async with sbp.aio.connect(address, heartbeat_interval=0.1) as client:
                stream = await client.create_stream("busy")
                await stream.append(b"warm")
                operations = [stream.append(b"%d" % n) for n in range(10_000)]
                await asyncio.sleep(0)                  # the tick ends: everything is handed over
                before = ask(proxy)
                hold(2_000_000)
                after = ask(proxy)
                assert ask(server)["records_appended"] == 10_001, "appends waited for the interpreter"
                heartbeats = after["heartbeats"] - before["heartbeats"]
                assert heartbeats >= 15, heartbeats
                pongs = after["pongs"] - before.get("pongs", 0)
                assert pongs >= 5, pongs
                assert after["pings"] - after["pongs"] <= 1
                assert not any(operation.done() for operation in operations)
                acks = await asyncio.gather(*operations)
                assert [ack.base_offset for ack in acks] == list(range(1, 10_001))

        asyncio.run(main())
        for process in (proxy, server):
            process.kill()
            process.wait()
    """
    run_python(script, str(Path(__file__).with_name("frame_proxy.py")))


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


def test_a_temporary_directory_goes_with_its_server(run_python: Run, tmp_path: Path) -> None:
    # Not in the directory of all: servers of other tests come and go there.
    script = """
        import os, sys
        os.environ["TMPDIR"] = sys.argv[1]
        import sbp_native as sbp
        server = sbp.Server()
        print(*os.listdir(sys.argv[1]))
    """
    made = run_python(script, str(tmp_path)).stdout.split()
    assert [name for name in made if "sbp" in name]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_start(run_python: Run, tmp_path: Path) -> None:
    script = """
        import os, subprocess, sys
        import sbp_native as sbp
        os.environ["TMPDIR"] = sys.argv[1]
        alive = sbp.Server()
        before = set(os.listdir(sys.argv[1]))
        die = "import os, sbp_native as sbp; server = sbp.Server(); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", die])
        killed, = set(os.listdir(sys.argv[1])) - before
        path = os.path.join(sys.argv[1], killed)
        sbp.Server().close()
        print(os.path.exists(path))
        os.utime(os.path.join(path, "lock"), (0, 0))
        sbp.Server().close()
        print(os.path.exists(path), len(os.listdir(sys.argv[1])))
        with sbp.connect(alive.address) as client:
            print(client.create_stream("s").append(b"x").base_offset)
    """
    # Younger than a minute it may be a server that is about to lock it; later it goes, and no other one does.
    assert run_python(script, str(tmp_path)).stdout.splitlines() == ["True", "False 1", "0"]


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
