"""Comments into a stream while nothing else is written, so that nobody in between takes it for dead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import ClientGoneError
from gateway.transport.sse import EventStream


@asynccontextmanager
async def kept_alive(stream: EventStream, every_s: float) -> AsyncIterator[None]:
    """Until the block ends, send a comment after each `every_s` seconds without a byte; the first one starts it."""
    task = asyncio.create_task(_beat(stream, every_s))
    try:
        yield
    finally:
        task.cancel()


async def _beat(stream: EventStream, every_s: float) -> None:
    loop = asyncio.get_running_loop()
    seen = -1
    began = loop.time()
    while True:
        await asyncio.sleep(began + every_s - loop.time())
        if stream.writes != seen:
            seen = stream.writes
        elif not await _commented(stream):
            return
        began = loop.time()


async def _commented(stream: EventStream) -> bool:
    try:
        await stream.keep_alive()
    except ClientGoneError:
        return False  # whoever writes next meets it, too
    return True
