"""A ring of replicas: what begins alike goes to one of them, and on to the next one where that has too much.

Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads (2016).
"""

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from engine_adapters.base import ReuseReport
from gateway.routing.prompt_chain import chain_of
from gateway.routing.router import Decision, Reason, RouteAsk

_POINTS = 100  # of a replica on the ring
_BOUND = 1.25  # requests in flight over the mean
_CHUNKS = 2  # of a prompt that say where it belongs: those that a whole conversation keeps


class ConsistentHash:
    """By session where there is one, else by a prompt's beginning."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._rings: dict[tuple[str, ...], list[tuple[int, str]]] = {}

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """The first replica on the ring behind the key that is within its bound."""
        ring = self._ring(tuple(sorted(candidates)))
        most = _BOUND * (sum(self._running[each] for each in candidates) + 1) / len(candidates)
        start = bisect(ring, (_key_of(ask), ""))
        ordered = [replica for _, replica in (*ring[start:], *ring[:start])]
        chosen = next((each for each in ordered if self._running[each] < most), ordered[0])
        self._running[chosen] += 1
        reason: Reason = "only" if len(candidates) == 1 else "prefix" if chosen == ordered[0] else "balance"
        return Decision(chosen, reason)

    def first_token(self, decision: Decision) -> None:
        """Nothing that counts here."""

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """One request less there."""
        self._running[decision.replica] -= 1
        if not self._running[decision.replica]:
            del self._running[decision.replica]

    def forget(self, replica: str) -> None:
        """The ring is made of the candidates, so there is nothing to forget."""

    def _ring(self, replicas: tuple[str, ...]) -> list[tuple[int, str]]:
        ring = self._rings.get(replicas)
        if ring is None:
            if len(self._rings) > 64:  # who is there has changed often
                self._rings.clear()
            points = (
                (_hash(f"{each}\0{point}".encode()), each) for each in replicas for point in range(_POINTS)
            )
            ring = self._rings[replicas] = sorted(points)
        return ring


def _key_of(ask: RouteAsk) -> int:
    if ask.session is not None:
        return _hash(f"{ask.scope}\0{ask.session}".encode())
    chain = chain_of(ask)
    return chain.keys[min(_CHUNKS, len(chain.keys)) - 1] if chain.keys else _hash(chain.root)


def _hash(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
