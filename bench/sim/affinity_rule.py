"""The rule that anybody would write first, as the peer of the router: it sees the caches themselves, not a shadow."""

from collections.abc import Sequence

from bench.sim.fleet import Fleet
from engine_adapters.base import ReuseReport
from gateway.routing.router import Decision, RouteAsk

_OVER = 1.05  # times the mean of recomputed blocks, and some
_SOME = 50


class AffinityRule:
    """The longest match among replicas that have not computed more than their share; of equals, the least worked."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.ids: Sequence[int] = ()  # of the request that is asked for

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """Ten lines."""
        replicas = self._fleet.replicas
        most = _OVER * sum(replicas[each].recomputed for each in candidates) / len(candidates) + _SOME
        fair = [each for each in candidates if replicas[each].recomputed <= most]
        matched = {each: replicas[each].cache.matched(self.ids) for each in fair}
        longest = max(matched.values())
        best = [each for each in fair if matched[each] == longest]
        chosen = min(best, key=lambda each: replicas[each].recomputed)
        return Decision(chosen, "prefix" if longest else "emptiest")

    def first_token(self, decision: Decision) -> None:
        """Nothing that counts here."""

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """Nothing that counts here."""

    def forget(self, replica: str) -> None:
        """No replica goes."""
