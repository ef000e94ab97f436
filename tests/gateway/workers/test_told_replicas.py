"""What one worker hears of replicas' caches is what all workers' index believes, and nothing that was lost."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine_adapters.base import ReuseReport
from gateway.routing.chain import PromptChain
from gateway.routing.kv_changes import Complete, Removed, Stored, seed_of
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.router import RouteAsk
from gateway.routing.settings import RoutingSettings
from gateway.routing.told import told_as
from gateway.workers.shared_routing import ListeningRouter, RoutingKeeper, WorkerRouter, shared_router

IDS = np.arange(1024, dtype="<i4")
FIRST = Stored(list(range(32)), None, IDS[:512].tobytes(), seed_of(None), "device")
SECOND = Stored(list(range(32, 64)), 31, IDS[512:].tobytes(), seed_of(None), "device")


class Keeper:
    def __init__(self) -> None:
        self.keeper = RoutingKeeper()
        self.calls = self.keeper.calls()

    def told(self, connection: object, number: int, *changes: Any) -> None:
        settings = asdict(RoutingSettings())
        self.calls["routing.told"](connection, settings, "fleet", "fleet/a", number, told_as(changes))

    @property
    def router(self) -> PrefixRouter:
        (router,) = self.keeper._routers["fleet"].values()
        assert isinstance(router, PrefixRouter)
        return router

    @property
    def held(self) -> int:
        return self.router.index.matched(PromptChain(seed_of(None), IDS.tobytes()), ["fleet/a"])[0]


@pytest.fixture
def it() -> Keeper:
    return Keeper()


def test_what_is_told_in_order_is_believed(it: Keeper) -> None:
    one = object()
    it.told(one, 1, FIRST)
    it.told(one, 2, SECOND)
    assert it.held == 1024
    it.told(one, 3, Removed([40], "device"))
    assert it.held == 512
    assert it.router.events.flows("fleet/a")


def test_what_was_lost_on_the_way_clears_the_replica(it: Keeper) -> None:
    one = object()
    chain = PromptChain(seed_of(None), IDS[::-1].tobytes())
    it.told(one, 1, FIRST, Complete())
    assert it.router.events.knows("fleet/a", chain)
    it.told(one, 3, SECOND)
    assert it.held == 0
    assert not it.router.events.knows("fleet/a", chain)


def test_another_listener_begins_anew(it: Keeper) -> None:
    it.told(object(), 1, FIRST)
    it.told(object(), 1, SECOND)
    assert it.held == 0


def test_where_the_listener_has_ended_nobody_is_taken_at_its_word(it: Keeper) -> None:
    one = object()
    it.told(one, 1, FIRST)
    it.keeper.gone(one)
    assert not it.router.events.flows("fleet/a")


async def test_tokens_of_prompts_that_ended_are_forgotten_on_demand(it: Keeper) -> None:
    one = object()
    it.told(one, 1, FIRST)
    kept = it.router.events._ended
    for number in (1, 2):
        chain = PromptChain(seed_of(None), IDS.tobytes())
        ask = RouteAsk("r", "fleet", "m", {}, 1, tokens=IDS, seed=seed_of(None), chain=chain)
        decision = await it.router.choose(ask, ["fleet/a", "fleet/b"])
        it.router.ended(decision, ReuseReport(1024, 0, None, "test", "reported"))
        assert len(kept) == 1
        if number == 1:
            it.calls["routing.forget_prompts"](one, "another")
            assert len(kept) == 1
        it.calls["routing.forget_prompts"](one, "fleet")
        assert not kept
        assert it.held == 512  # what the replica has told of
    told: list[tuple[object, ...]] = []
    link = SimpleNamespace(tell=lambda *args: told.append(args))
    assert WorkerRouter(link, "fleet", PrefixRouter()).forget_prompts() == 0
    assert told == [("routing.forget_prompts", "fleet")]


def test_one_worker_listens(it: Keeper) -> None:
    said: list[tuple[Any, ...]] = []

    class Link:
        def tell(self, *args: Any) -> None:
            said.append(args)

    other = shared_router(Link())("fleet", PrefixRouter())
    assert type(other) is WorkerRouter
    leader = shared_router(Link(), listens=True)("fleet", PrefixRouter())
    assert type(leader) is ListeningRouter
    leader.told("fleet/a", [FIRST])
    leader.told("fleet/a", [SECOND])
    assert [args[4] for args in said] == [1, 2]
