"""How tests wait for what happens elsewhere: poll a condition that is false before it has happened.

Never sleep for "long enough". A wait may last long, since only a test that fails waits so long: on a loaded machine a
process takes many seconds to start, and a thread may stand still for one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

PATIENCE_S = 60.0
_TRIES_S = 120.0

T = TypeVar("T")


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Poll from a test's thread; fails when it does not become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.005)


async def until(condition: Callable[[], object], what: str = "", seconds: float = PATIENCE_S) -> None:
    """The same on an event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.002)


def steady(attempt: Callable[[], T], within: float) -> T:
    """What one try returns; a try that fails counts only where it took less than `within` seconds.

    For what must happen before some bound has passed, as when a connection that may idle for three seconds is used
    again: where the machine stood still meanwhile, the bound has passed rightly, and the test has seen nothing. Choose
    `within` so that no wait of a shorter try reaches the bound. Each try begins anew, with parts of its own.
    """
    last = time.monotonic() + _TRIES_S
    while True:
        began = time.monotonic()
        try:
            return attempt()
        except (Exception, pytest.fail.Exception):
            if time.monotonic() - began < within or time.monotonic() > last:
                raise


async def steadily(attempt: Callable[[], Awaitable[T]], within: float) -> T:
    """The same on an event loop."""
    last = time.monotonic() + _TRIES_S
    while True:
        began = time.monotonic()
        try:
            return await attempt()
        except (Exception, pytest.fail.Exception):
            if time.monotonic() - began < within or time.monotonic() > last:
                raise
