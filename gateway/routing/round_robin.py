"""One replica after the other."""

from collections.abc import Sequence

from engine_adapters.base import ReuseReport
from gateway.routing.router import Decision, RouteAsk


class RoundRobin:
    """Whatever is asked, whatever runs where."""

    def __init__(self) -> None:
        self._number = 0

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """The next one."""
        self._number += 1
        chosen = candidates[self._number % len(candidates)]
        return Decision(chosen, "only" if len(candidates) == 1 else "turn")

    def first_token(self, decision: Decision) -> None:
        """Nothing that counts here."""

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """Nothing that counts here."""

    def forget(self, replica: str) -> None:
        """Its turn is left out."""
