"""How tests wait for what happens elsewhere: poll a condition that is false before it has happened.

Never sleep for "long enough". A wait may last long, since only a test that fails waits so long: on a loaded machine a
process takes many seconds to start, and a thread may stand still for one.
"""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 60.0


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
