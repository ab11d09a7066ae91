"""Inside what people use: FastAPI under uvicorn, gunicorn with a preloaded application, a Jupyter kernel."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sbp_native as sbp

APPS = Path(__file__).with_name("apps")
PATIENCE = 40.0

pytestmark = pytest.mark.timeout(120)


@contextlib.contextmanager
def serving(*command: str, address: str, stream: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """An HTTP server in a process of its own, on a socket of ours; it has to end by itself at SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        descriptor = listener.fileno()
        environment = {**os.environ, "SBP_ADDRESS": address, "SBP_STREAM": stream}
        process = subprocess.Popen(
            [sys.executable, *(part.replace("{fd}", str(descriptor)) for part in command)],
            pass_fds=[descriptor],
            env=environment,
            cwd=APPS,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        port = listener.getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}", process
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode in (0, -signal.SIGTERM), errors.decode()
            assert b"Traceback" not in errors, errors.decode()
        finally:
            process.kill()
            process.communicate()


def ask(url: str, body: bytes | None = None) -> Any:
    """One request; what came back."""
    with urllib.request.urlopen(url, data=body, timeout=PATIENCE) as response:
        data = response.read()
    return json.loads(data) if response.headers["Content-Type"] == "application/json" else data.decode()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_fastapi_with_uvicorn(client: sbp.Client, server: sbp.Server, name: str, loop: str) -> None:
    command = ("-m", "uvicorn", "fast:app", "--fd", "{fd}", "--loop", loop, "--log-level", "warning")
    with serving(*command, address=server.address, stream=name) as (url, _):
        assert ask(f"{url}/loop")["loop"].split(".")[0] == loop
        assert ask(f"{url}/orders", b"first") == {"offset": 0}
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: ask(f"{url}/orders", b"order %d" % n)["offset"], range(40)))
        assert sorted(answers) == list(range(1, 41))
        assert ask(f"{url}/several/50", b"")["offsets"] == list(range(41, 91))
        assert ask(f"{url}/orders/0") == {"value": "first"}
        with pytest.raises(urllib.error.HTTPError) as missing:
            ask(f"{url}/orders/5000")
        assert missing.value.code == 404
        missing.value.close()
    assert client.stream(name).positions().latest == 91


def test_fastapi_with_two_uvicorn_workers(client: sbp.Client, server: sbp.Server, name: str) -> None:
    command = ("-m", "uvicorn", "fast:app", "--fd", "{fd}", "--workers", "2", "--log-level", "warning")
    with serving(*command, address=server.address, stream=name) as (url, process):
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: ask(f"{url}/orders", b"x")["offset"], range(40)))
        assert sorted(answers) == list(range(40))
        assert int(ask(f"{url}/loop")["pid"]) != process.pid
    assert client.stream(name).positions().latest == 40


def test_gunicorn_with_a_preloaded_application(client: sbp.Client, server: sbp.Server, name: str) -> None:
    command = ("-m", "gunicorn", "--preload", "--workers", "2", "--threads", "2", "--bind", "fd://{fd}", "wsgi:app")
    with serving(*command, address=server.address, stream=name) as (url, process):
        seen: dict[str, list[int]] = {}
        killed = None
        deadline = time.monotonic() + PATIENCE
        # Until a worker that came after the one we killed has answered.
        while killed is None or not set(seen) - {killed} or len(seen) < 2:
            assert time.monotonic() < deadline, seen
            try:
                worker, master, offset, refused = ask(f"{url}/", b"x").split()
            except (ConnectionError, urllib.error.URLError):
                continue
            assert int(master) == process.pid != int(worker)
            assert refused == "True", "the master's client is refused in a worker"
            seen.setdefault(worker, []).append(int(offset))
            if killed is None:
                killed = worker
                os.kill(int(worker), signal.SIGKILL)
        offsets = [offset for found in seen.values() for offset in found]
        assert len(set(offsets)) == len(offsets)
    stored = client.stream(name).positions().latest
    assert max(offsets) < stored


CELLS = [
    "import sbp_native as sbp\nserver = sbp.Server(durability='none')\nserver.address",
    "client = await sbp.aio.connect(server.address)\nstream = await client.create_stream('notebook')",
    "acks = [await stream.append([b'a', b'b']) for _ in range(3)]\nacks[-1].last_offset",
    "blocking = sbp.connect(server.address)\nbatch = next(blocking.stream('notebook').read())\nbatch",
    "sum([len(found) async for found in stream.read()])",
    "await client.close()\nblocking.close()\nserver.close()\n'closed'",
]


def test_a_jupyter_kernel(tmp_path: Path) -> None:
    """Cells with top-level await, a blocking client beside it, and a batch shown as a table."""
    import nbformat
    from nbclient import NotebookClient

    made: Any = nbformat.v4  # it has no types
    notebook = made.new_notebook(cells=[made.new_code_cell(source) for source in CELLS])
    NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    results = [
        [output.data for output in cell.outputs if output.output_type == "execute_result"] for cell in notebook.cells
    ]
    assert "127.0.0.1" in results[0][0]["text/plain"]
    assert results[2][0]["text/plain"] == "5"
    assert "<table" in results[3][0]["text/html"]
    assert results[4][0]["text/plain"] == "6"
    assert results[5][0]["text/plain"] == "'closed'"
