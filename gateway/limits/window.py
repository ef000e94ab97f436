"""What was used in the last minute, in this process."""

import math
from collections import Counter, deque
from collections.abc import Iterable

# Seconds that a second counts, so that no 60 seconds, wherever they begin, hold more than the limit.
LASTS = 61


class Window:
    """Amounts by the second they were used in. Times are seconds of a clock that never goes back."""

    __slots__ = ("_parts", "total")

    def __init__(self) -> None:
        self._parts: deque[list[int]] = deque()  # [second, amount], the oldest first
        self.total = 0

    def used(self, now: float) -> int:
        """What counts now."""
        oldest = math.floor(now) - LASTS
        while self._parts and self._parts[0][0] <= oldest:
            self.total -= self._parts.popleft()[1]
        return self.total

    def add(self, now: float, amount: int) -> None:
        """Count `amount`."""
        second = math.floor(now)
        if not self._parts or self._parts[-1][0] < second:
            self._parts.append([second, 0])
        self._parts[-1][1] += amount
        self.total += amount

    def give_back(self, second: int, amount: int) -> None:
        """Count `amount` less of what was added in `second`; nothing where that counts no more."""
        for part in reversed(self._parts):
            if part[0] == second:
                given = min(amount, part[1])
                part[1] -= given
                self.total -= given
                return
            if part[0] < second:
                return

    def parts(self, now: float) -> list[tuple[int, int]]:
        """What counts now: seconds ago, and how many; for a window with another clock."""
        self.used(now)
        return [(math.floor(now) - second, amount) for second, amount in self._parts if amount]

    def merge(self, now: float, parts: Iterable[tuple[int, int]]) -> None:
        """Count what was used elsewhere, seconds ago."""
        amounts = Counter[int]()
        for second, amount in self._parts:
            amounts[second] = amount
        for ago, amount in parts:
            second = math.floor(now) - ago
            amounts[second] += amount
            self.total += amount
        self._parts = deque([second, amount] for second, amount in sorted(amounts.items()))

    def wait(self, now: float, missing: int) -> float:
        """Seconds until `missing` of what counts now counts no more."""
        for second, amount in self._parts:
            missing -= amount
            if missing <= 0:
                return second + LASTS - now
        return LASTS

    def empty_in(self, now: float) -> float:
        """Seconds until nothing of it counts."""
        return self._parts[-1][0] + LASTS - now if self.total else 0.0
