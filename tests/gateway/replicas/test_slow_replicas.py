"""Who is found slow in a fleet that prefills by a clock of its own: the machine's speed has no say."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from engine_adapters.base import ReuseReport
from gateway.replicas.outliers import OutlierOptions
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool
from gateway.replicas.visit import Visit
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.router import RouteAsk
from tests.gateway.replicas.test_breaker import Clock
from tests.gateway.replicas.test_selection import address, remote

POLICY = PoolPolicy(outliers=OutlierOptions(samples=16, window_s=1e6), slow_start_s=0)
START_S = 0.05  # before any prefill begins


@dataclass
class Arrival:
    """One request, whose tokens nobody has seen. `only`: it has to go there."""

    at: float
    tokens: int
    only: str | None = None


class Fleet:
    """Replicas that prefill one prompt after the other, each at its own tokens a second."""

    def __init__(self, rates: Sequence[float]) -> None:
        self.clock = Clock()
        self.pool = EnginePool(
            "fleet",
            [remote(address(number)) for number in range(len(rates))],
            PrefixRouter(clock=self.clock),
            POLICY,
            clock=self.clock,
        )
        self._rates = {member.id: rate for member, rate in zip(self.pool.members, rates, strict=True)}
        self._free_at = dict.fromkeys(self._rates, 0.0)

    async def run(self, arrivals: Sequence[Arrival]) -> set[str]:
        """Replicas that were ever found slow."""
        order = count()
        events: list[tuple[float, int, Arrival | tuple[Visit, float, int]]] = [
            (each.at, next(order), each) for each in arrivals
        ]
        heapq.heapify(events)
        while events:
            self.clock.now, _, event = heapq.heappop(events)
            if isinstance(event, Arrival):
                visit = await self.pool.choose(_ask(next(order), event.tokens), only=event.only)
                replica = visit.remote.replica
                begins = max(self.clock.now + START_S, self._free_at[replica])
                done = self._free_at[replica] = begins + event.tokens / self._rates[replica]
                heapq.heappush(events, (done, next(order), (visit, self.clock.now, event.tokens)))
            else:
                visit, sent_at, tokens = event
                visit.first_token()
                self.pool.took(visit, self.clock.now - sent_at)
                visit.ended("good", ReuseReport(tokens, 0, None, "test", "reported"))
        return {member.id for member in self.pool.members if member.slow_ejections}


def _ask(seed: int, tokens: int) -> RouteAsk:
    ids = np.random.default_rng(seed).integers(0, 50_000, tokens).astype(np.int32)
    return RouteAsk(str(seed), "fleet", "m", {"prompt": ids.tolist()}, 4 * tokens, tokens=ids)


def skewed(every_s: float, long: int = 20_000, short: int = 300, requests: int = 240) -> list[Arrival]:
    """A session of long prompts that stays at the first replica; short ones go to the others."""
    return [
        Arrival(number * every_s, short if number % 4 else long, f"fleet/r{number % 4}")
        for number in range(requests)
    ]


def mixed(every_s: float, *, in_turn: bool = False) -> list[Arrival]:
    """Prompts of all lengths that go where the router likes, or to one replica after the other."""
    lengths = np.random.default_rng(1).lognormal(7, 1.5, 400).clip(20, 60_000)
    return [
        Arrival(number * every_s, int(tokens), f"fleet/r{number % 4}" if in_turn else None)
        for number, tokens in enumerate(lengths)
    ]


async def test_a_replica_that_happens_to_get_long_prompts_is_not_slow() -> None:
    assert await Fleet([10_000] * 4).run(skewed(1.0)) == set()


async def test_nor_is_one_where_long_prompts_wait_for_each_other() -> None:
    assert await Fleet([10_000] * 4).run(skewed(0.45)) == set()  # nearly as fast as it prefills


async def test_equal_replicas_are_equal_under_all_lengths_and_loads() -> None:
    for every_s in (0.05, 0.1, 0.5):
        assert await Fleet([10_000] * 4).run(mixed(every_s)) == set()


async def test_a_replica_that_is_really_slow_is_found() -> None:
    assert await Fleet([10_000, 10_000, 700, 10_000]).run(mixed(4.0, in_turn=True)) == {"fleet/r2"}


async def test_also_where_its_prompts_are_the_long_ones() -> None:
    slow_too = [Arrival(each.at * 40, each.tokens, each.only) for each in skewed(1.0)]
    assert await Fleet([700, 10_000, 10_000, 10_000]).run(slow_too) == {"fleet/r0"}


async def test_also_where_the_others_have_the_long_ones() -> None:
    turned = [
        Arrival(each.at, each.tokens, f"fleet/r{(number + 1) % 4}") for number, each in enumerate(skewed(4.0))
    ]
    assert await Fleet([30, 10_000, 10_000, 10_000]).run(turned) == {"fleet/r0"}


async def test_where_all_are_as_slow_nobody_is() -> None:
    for in_turn in (False, True):
        assert await Fleet([700] * 4).run(mixed(4.0, in_turn=in_turn)) == set()
