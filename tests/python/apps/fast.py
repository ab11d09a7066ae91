"""A FastAPI service that appends what it is sent: one client for the life of each worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

import sbp_native as sbp


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connects when the worker starts and closes when it ends."""
    async with sbp.aio.connect(os.environ["SBP_ADDRESS"]) as client:
        app.state.client = client
        app.state.orders = await client.create_stream(os.environ["SBP_STREAM"], exist_ok=True)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def append(request: Request) -> dict[str, int]:
    """Stores one order and says where."""
    ack = await request.app.state.orders.append(await request.body())
    return {"offset": ack.base_offset}


@app.post("/several/{count}")
async def several(count: int, request: Request) -> dict[str, list[int]]:
    """Bare operations in a task group's place: they run together."""
    async with asyncio.timeout(20):
        acks = await asyncio.gather(*(request.app.state.orders.append(b"%d" % n) for n in range(count)))
    return {"offsets": [ack.base_offset for ack in acks]}


@app.get("/orders/{offset}")
async def read(offset: int, request: Request) -> dict[str, str]:
    """One order; 404 where there is none."""
    try:
        async for batch in request.app.state.orders.read(start=offset):
            record = batch.records()[offset - batch.base_offset]
            return {"value": (record.value or b"").decode()}
    except sbp.OffsetOutOfRangeError as error:
        raise HTTPException(404, str(error)) from error
    raise HTTPException(404, "no such order")


@app.get("/loop")
async def loop() -> dict[str, str]:
    """Which loop serves."""
    return {"loop": type(asyncio.get_running_loop()).__module__, "pid": str(os.getpid())}
