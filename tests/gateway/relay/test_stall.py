"""Only the engine's silence counts."""

import asyncio
import socket
import time

import pytest
import uvloop

from engine_adapters.errors import EngineTimeoutError
from gateway.relay.stall import StallGuard


async def test_silence_of_the_engine_ends_the_block() -> None:
    with pytest.raises(EngineTimeoutError, match="sent nothing for"):
        async with StallGuard(0.05):
            await asyncio.Event().wait()


async def test_what_is_done_with_its_pieces_may_take_longer() -> None:
    async with StallGuard(1.0) as guard:
        guard.busy()
        await asyncio.sleep(1.6)
        guard.waiting()
        await asyncio.sleep(0.001)


async def test_an_engine_that_is_slow_but_never_silent_goes_on() -> None:
    async with StallGuard(1.0) as guard:
        for _ in range(16):
            await asyncio.sleep(0.1)
            guard.busy()
            guard.waiting()


def test_a_loop_that_is_held_up_is_no_silence_of_the_engine() -> None:
    """On the gateway's own kind of loop, where timers come before what is to be read."""

    async def held_up(ours: socket.socket, theirs: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        def busy_with_other_things() -> None:
            theirs.send(b"x")
            time.sleep(0.5)

        async with StallGuard(0.2) as guard:
            loop.call_soon(busy_with_other_things)
            assert await loop.sock_recv(ours, 1) == b"x"
            guard.busy()
            guard.waiting()
            await asyncio.sleep(0.001)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        uvloop.run(held_up(ours, theirs))


async def test_other_errors_and_cancellations_stay_what_they_are() -> None:
    with pytest.raises(KeyError):
        async with StallGuard(10):
            raise KeyError("x")

    async def waits() -> None:
        async with StallGuard(10):
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
