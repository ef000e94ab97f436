"""The directory is asked for what nobody here knows, told what was computed, and never in the way."""

from collections.abc import Sequence

import numpy as np
import pytest

from cache_core.prefix_directory import PrefixOwner
from gateway.directory.directed_router import DirectedRouter, directed
from gateway.routing.known_runs import RUN
from gateway.routing.kv_changes import Change, Cleared, Complete, Silent, Stored, seed_of
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.round_robin import RoundRobin
from gateway.routing.router import HearsReplicas, RouteAsk

IDS = np.arange(2048, dtype=np.int32)
BOTH = ["f/a", "f/b"]
OTHER = Stored([7], None, np.arange(9000, 9016, dtype="<i4").tobytes(), seed_of(None), "device")


class Directory:
    def __init__(self, *found: PrefixOwner) -> None:
        self.found = found
        self.asked: list[int] = []
        self.told: list[tuple[str, int]] = []
        self.gone: list[str] = []

    async def owners(self, scope: str, keys: Sequence[int], known: int = 0) -> Sequence[PrefixOwner]:
        self.asked.append(known)
        return self.found

    def holds(self, scope: str, keys: Sequence[int], owner: str, tier: str = "device") -> None:
        self.told.append((owner, len(keys)))

    def cleared(self, owner: str) -> None:
        self.gone.append(owner)


def ask(ids: np.ndarray = IDS, **more: object) -> RouteAsk:
    return RouteAsk("r", "f", "m", {}, 100, tokens=ids, **more)


async def test_what_others_know_decides_and_what_was_computed_is_told_once() -> None:
    directory = Directory(PrefixOwner("f/b", 4, "device", 1), PrefixOwner("f/gone", 4, "device", 9))
    router = directed(PrefixRouter(), directory)
    decision = await router.choose(ask(), BOTH)
    assert (decision.replica, decision.reason, decision.predicted) == ("f/b", "prefix", 2047)
    assert directory.told == []
    router.first_token(decision)
    router.ended(decision, None)
    assert directory.told == [("f/b", 4)]


async def test_a_request_that_was_never_computed_is_not_told() -> None:
    directory = Directory()
    router = directed(PrefixRouter(), directory)
    router.ended(await router.choose(ask(), BOTH), None)
    assert directory.told == []


async def test_only_what_is_not_known_here_is_asked_for() -> None:
    directory = Directory()
    router = directed(PrefixRouter(), directory)
    for ids in (IDS[:1024], IDS, IDS):
        router.first_token(await router.choose(ask(ids), BOTH))
    assert directory.asked == [0, 2]


async def test_where_there_is_one_replica_nobody_is_asked() -> None:
    directory = Directory()
    router = directed(PrefixRouter(), directory)
    await router.choose(ask(), BOTH[:1])
    await router.choose(ask(prompt=False), BOTH)
    assert directory.asked == []


async def test_a_hint_counts_nothing_where_the_replica_says_itself_what_it_holds() -> None:
    own = PrefixRouter()
    router = directed(own, Directory(PrefixOwner("f/b", 4, "device", 1)))
    assert isinstance(router, HearsReplicas)
    router.told("f/b", [Stored([1], None, IDS[:16].tobytes(), seed_of(None), "device")])
    decision = await router.choose(ask(seed=seed_of(None)), BOTH)
    assert decision.predicted == 16


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ([], True),
        ([Complete()], False),  # it was heard from its start on
        ([Complete(), Cleared(), Silent()], True),  # something was missed
        ([Complete(), Silent(), OTHER], True),
    ],
)
async def test_a_hint_counts_for_what_a_replica_held_before_anybody_listened(
    told: list[Change], counts: bool
) -> None:
    own = PrefixRouter()
    router = directed(own, Directory(PrefixOwner("f/b", 4, "device", 1)))
    router.told("f/b", [OTHER])
    router.told("f/b", told)
    decision = await router.choose(ask(seed=seed_of(None)), BOTH)
    assert decision.predicted == (2047 if counts else 0)
    router.ended(decision, None)
    router.forget("f/b")
    router.told("f/b", [OTHER])  # another process, that nobody has heard from its start on
    found = await router.choose(ask(IDS[::-1].copy(), seed=seed_of(None)), BOTH)
    assert found.predicted == 2047


async def test_hints_beyond_a_prompt_are_cut() -> None:
    router = directed(PrefixRouter(), Directory(PrefixOwner("f/b", 10**9, "device", 1)))
    assert (await router.choose(ask(), BOTH)).predicted == 2047


async def test_a_replica_that_is_forgotten_is_forgotten_by_all() -> None:
    directory = Directory()
    directed(PrefixRouter(), directory).forget("f/a")
    assert directory.gone == ["f/a"]


def test_who_hears_nothing_does_not_seem_to() -> None:
    assert not isinstance(directed(RoundRobin(), Directory()), HearsReplicas)
    assert isinstance(directed(RoundRobin(), Directory()), DirectedRouter)


async def test_tokens_that_were_hashed_are_forgotten_on_demand() -> None:
    router = directed(PrefixRouter(), Directory())
    ids = np.arange(2 * RUN, dtype=np.int32)
    await router.choose(ask(ids), BOTH)
    assert router.forget_prompts() == 2
    assert router.forget_prompts() == 0
