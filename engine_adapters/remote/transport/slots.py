"""How many connections may be in use at once. Taking a free one is a step that every request makes."""

import asyncio
from collections import deque


class Slots:
    """Given out in the order in which they were asked for. Used from one event loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take one at once; False: none is free, and `wait` gets the next one."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self, seconds: float) -> None:
        """Take the next one that is given back; raises TimeoutError when none was by then."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException:
            # Its turn may have come in the same moment.
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Whoever waits for longest has it now, if there is anybody."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
