"""The replica with the fewest requests; without any idea of prefixes."""

from collections import Counter
from collections.abc import Sequence

from engine_adapters.base import ReuseReport
from gateway.routing.router import Decision, RouteAsk


class LeastLoaded:
    """Of equals, the one that was used for longest ago."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._used: dict[str, int] = {}
        self._number = 0

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """The emptiest of `candidates`."""
        chosen = min(candidates, key=lambda each: (self._running[each], self._used.get(each, 0)))
        self._number += 1
        self._used[chosen] = self._number
        self._running[chosen] += 1
        return Decision(chosen, "only" if len(candidates) == 1 else "emptiest")

    def first_token(self, decision: Decision) -> None:
        """Nothing that counts here."""

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """One request less there."""
        self._running[decision.replica] -= 1

    def forget(self, replica: str) -> None:
        """It is as good as any other when it is back."""
        self._used.pop(replica, None)
