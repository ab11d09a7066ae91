"""The same Rust client behind `pyo3-async-runtimes`: built on demand, in a workspace of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import sbp_native as sbp

SOURCE = Path(__file__).parents[1] / "stock_bridge"
BUILT = Path(__file__).parents[2] / "target" / "bench-python" / "stock"


def module() -> Any:
    """The extension module, built in release mode if it is not there."""
    library = BUILT / "release" / "libstock_bridge.so"
    # The dependencies that both have come in the same versions.
    shutil.copyfile(SOURCE.parents[1] / "Cargo.lock", SOURCE / "Cargo.lock")
    # That bridge drops Python objects on its I/O threads, which the flags of this project forbid.
    environment = os.environ | {
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        "PYO3_PYTHON": sys.executable,
        "RUSTFLAGS": "",
    }
    command = ["cargo", "build", "--release", "--quiet", "--target-dir", str(BUILT)]
    subprocess.run(command, cwd=SOURCE, env=environment, check=True, timeout=1_800)
    specification = importlib.util.spec_from_file_location("stock_bridge", library)
    if specification is None or specification.loader is None:
        raise RuntimeError(f"{library} cannot be loaded")
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded


def awaited_cpu_us(stock: Any, address: str, in_flight: int, total: int) -> float:
    """CPU of the client's process, microseconds for each awaited append of 64 bytes."""
    with sbp.connect(address) as client:
        stream = client.create_stream("stock", exist_ok=True).id

    async def main() -> float:
        client = stock.Client(address)
        body = bytes(64)
        await client.append(stream, body)

        async def worker() -> None:
            for _ in range(total // in_flight):
                await client.append(stream, body)

        cpu = time.process_time()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return (time.process_time() - cpu) / (total // in_flight * in_flight) * 1e6

    return asyncio.run(main())
