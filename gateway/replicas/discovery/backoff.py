"""Waits between tries at a source that does not answer."""

import random
from collections.abc import Callable

_FIRST_S = 0.2
_LONGEST_S = 30.0


class Backoff:
    """Twice as long each time, and a part of it at random: gateways that lost one source do not come back as one."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._next_s = _FIRST_S

    def wait_s(self) -> float:
        """How long to wait now."""
        wait, self._next_s = self._next_s, min(2 * self._next_s, _LONGEST_S)
        return wait * (0.5 + self._chance() / 2)

    def worked(self) -> None:
        """The source has answered."""
        self._next_s = _FIRST_S
