"""Routing and predictions that all workers of a server have in common, over a real socket."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from engine_adapters.base import ReuseReport
from engine_adapters.rpc.link import Link
from engine_adapters.rpc.server import Server
from gateway.ledger.expectation import NOTHING_EXPECTED, Routed, SentRequest
from gateway.ledger.shadow import ShadowPredictor
from gateway.routing.least_loaded import LeastLoaded
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.router import Decision, RouteAsk, Score
from gateway.routing.settings import RoutingSettings
from gateway.settings import CanonSettings
from gateway.tenants.tenant import Tenant
from gateway.workers.fallen import Fallen
from gateway.workers.shared_prediction import WorkerPredictor
from gateway.workers.shared_routing import WorkerRouter, shared_router
from gateway.workers.state_process import StateService
from tests.waiting import PATIENCE_S, until

REPLICAS = ["e/0", "e/1", "e/2"]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


async def serve(folder: Path) -> Server:
    service = StateService(CanonSettings(), Fallen(folder / "counted"), 2).service()
    return await Server(service).listen(folder / "state.sock")


@pytest.fixture
async def state(folder: Path) -> AsyncIterator[Server]:
    server = await serve(folder)
    yield server
    server.close()


@pytest.fixture
async def links(folder: Path, state: Server) -> AsyncIterator[list[Link]]:
    found = [await connected(folder) for _ in range(2)]
    yield found
    for link in found:
        await link.aclose()


async def connected(folder: Path) -> Link:
    link = Link(str(folder / "state.sock"), "the state")
    link.start()
    await link.there(PATIENCE_S)
    return link


def ask(text: str, *, tokens: bool = False, tenant: str = "t", **fields: Any) -> RouteAsk:
    body = {"messages": [{"role": "user", "content": text}]}
    ids = np.arange(len(text), dtype=np.int32) if tokens else None
    return RouteAsk("r", "e", "m", body, len(text), Tenant(tenant, tenant), ids, **fields)


def reuse(prompt: int, reused: int) -> ReuseReport:
    return ReuseReport(prompt, reused, None, "test", "reported")


async def settled(link: Link) -> None:
    """What was told before has arrived."""
    await link.call("memory.get", b"none")


@pytest.mark.parametrize("tokens", [False, True])
async def test_a_prefix_that_one_worker_sent_draws_the_others_requests(
    links: list[Link], tokens: bool
) -> None:
    one, two = (WorkerRouter(link, "e", PrefixRouter()) for link in links)
    text = "a long beginning " * 2000
    homes = set()
    for number in range(6):
        tenant = f"tenant {number}"
        first = await one.choose(ask(text, tokens=tokens, tenant=tenant), REPLICAS)
        one.first_token(first)
        one.ended(first, reuse(8000, 0))
        await settled(links[0])
        again = await two.choose(ask(text, tokens=tokens, tenant=tenant), REPLICAS)
        assert again.replica == first.replica
        assert again.reason == "prefix"
        assert (first.predicted, again.counted) == (0, tokens)
        assert again.predicted
        two.ended(again, reuse(8000, 7990))
        homes.add(first.replica)
    assert homes == set(REPLICAS)


async def test_what_one_worker_sent_counts_as_load_for_the_other(links: list[Link]) -> None:
    one, two = (WorkerRouter(link, "e", PrefixRouter()) for link in links)
    running = [await one.choose(ask(f"{n} " * 4000), REPLICAS) for n in range(3)]
    assert {each.replica for each in running} == set(REPLICAS)
    one.ended(running[1], None)
    await settled(links[0])
    assert (await two.choose(ask("x " * 4000), REPLICAS)).replica == running[1].replica


def _without_time(score: Score) -> Score:
    return msgspec.structs.replace(score, ttft_s=None)


async def test_choices_are_those_of_one_router(links: list[Link]) -> None:
    """Whichever worker asks; what a prompt was hashed from makes no difference either."""
    settings = RoutingSettings()
    shared = [WorkerRouter(link, "e", PrefixRouter(settings)) for link in links]
    alone = PrefixRouter(settings, lambda: 0.0)
    dice = np.random.default_rng(7)
    for _ in range(60):
        which, length = dice.integers(5), int(dice.integers(1, 6))
        asked = ask(f"{which} " * 600 * length, session=f"s{which}")
        worker = int(dice.integers(2))
        got, expected = await shared[worker].choose(asked, REPLICAS), await alone.choose(asked, REPLICAS)
        assert (got.replica, got.reason, got.prompt) == (expected.replica, expected.reason, expected.prompt)
        assert list(map(_without_time, got.scores)) == list(map(_without_time, expected.scores))
        shared[worker].ended(got, reuse(length * 300, 0))
        alone.ended(expected, reuse(length * 300, 0))
        await settled(links[worker])


async def test_when_a_worker_ends_its_load_is_gone(links: list[Link], state: Server, folder: Path) -> None:
    dying = await connected(folder)
    router = WorkerRouter(dying, "e", PrefixRouter())
    lost = [await router.choose(ask(f"{n} " * 4000), REPLICAS) for n in range(30)]
    await dying.aclose()
    other = WorkerRouter(links[0], "e", PrefixRouter())
    assert {each.replica for each in lost} == set(REPLICAS)
    await until(lambda: len(state.connections) == 2, "it is known")
    scores = (await other.choose(ask("x"), REPLICAS)).scores
    assert [score.queued for score in scores] == [0, 0, 0]


async def test_a_replica_that_was_restarted_holds_nothing_for_anyone(links: list[Link]) -> None:
    one, two = (WorkerRouter(link, "e", PrefixRouter()) for link in links)
    first = await one.choose(ask("begin " * 2000), REPLICAS)
    one.ended(first, reuse(3000, 0))
    one.forget(first.replica)
    await settled(links[0])
    assert not any(score.predicted for score in (await two.choose(ask("begin " * 2000), REPLICAS)).scores)


async def test_a_request_that_is_cancelled_while_it_asks_is_no_load(links: list[Link]) -> None:
    router = WorkerRouter(links[0], "e", PrefixRouter())
    for number in range(20):
        asking = asyncio.create_task(router.choose(ask(f"{number} " * 4000), REPLICAS))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            router.ended(await asking, None)
    await settled(links[0])
    scores = (await router.choose(ask("x"), REPLICAS)).scores
    assert [score.queued for score in scores] == [0, 0, 0]


async def test_one_replica_needs_nobody(folder: Path) -> None:
    router = WorkerRouter(Link(str(folder / "state.sock"), "nobody"), "e", PrefixRouter())
    decision = await router.choose(ask("x"), ["e/0"])
    assert (decision.replica, decision.reason) == ("e/0", "only")
    router.first_token(decision)
    router.ended(decision, reuse(1, 0))


async def test_without_the_index_each_worker_goes_on_with_its_own(folder: Path) -> None:
    state = await serve(folder)
    link = await connected(folder)
    router = WorkerRouter(link, "e", PrefixRouter())
    there: Decision = await router.choose(ask("a " * 4000), REPLICAS)
    state.close()
    await until(lambda: not link.is_there)
    here = await router.choose(ask("b " * 4000), REPLICAS)
    again = await router.choose(ask("b " * 4000), REPLICAS)
    assert again.replica == here.replica
    for decision in (there, here, again):
        router.first_token(decision)
        router.ended(decision, reuse(2000, 0))
    state = await serve(folder)
    await until(lambda: link.is_there)
    assert isinstance((await router.choose(ask("b " * 4000), REPLICAS)).token, int)
    await link.aclose()
    state.close()


async def test_other_routers_stay_as_they_are(links: list[Link]) -> None:
    share, own = shared_router(links[0]), LeastLoaded()
    assert share("e", own) is own
    shared = share("e", PrefixRouter())
    assert isinstance(shared, WorkerRouter)
    assert share("e", shared) is shared


def sent(text: str, came: str | None = None, **fields: Any) -> SentRequest:
    body = {"messages": [{"role": "user", "content": text}]}
    before = body if came is None else {"messages": [{"role": "user", "content": came}]}
    return SentRequest("e", "s", before, body, len(text), 16, **fields)


async def test_what_any_worker_sent_is_expected_of_the_engine(links: list[Link]) -> None:
    one, two = map(WorkerPredictor, links)
    alone = ShadowPredictor()
    ids = np.arange(500, dtype=np.int32)
    requests = [
        sent("hello " * 100),
        sent("hello " * 100 + "you"),
        sent("hello " * 100 + "there", came="other"),
        sent("x", tokens=ids),
        sent("x", tokens=ids),
        sent("routed", routed=Routed(predicted=320, anywhere=640, prompt=700, counted=True)),
        *(
            sent("z", tokens=np.arange(n, n + 64, dtype=np.int32), cache_tokens=640)
            for n in range(0, 4000, 64)
        ),
        sent("z", tokens=np.arange(64, dtype=np.int32), cache_tokens=640),
        sent("y" * 50_000),
        sent("y" * 50_000),
    ]
    for number, request in enumerate(requests):
        predictor = (one, two)[number % 2]
        got, expected = await predictor.expecting(request), alone.expect(request)
        assert got == expected
        report = reuse(500, 0)
        assert predictor.cause(got, report) == alone.cause(expected, report)
        await settled(links[number % 2])
    assert (await one.expecting(requests[-1])).predicted
    two.forget()
    await settled(links[1])
    assert not (await one.expecting(requests[-1])).predicted


async def test_without_the_shadows_nothing_is_expected(folder: Path) -> None:
    predictor = WorkerPredictor(Link(str(folder / "state.sock"), "nobody"))
    assert await predictor.expecting(sent("hello " * 100)) == NOTHING_EXPECTED
    assert predictor.cause(NOTHING_EXPECTED, reuse(1, 0)) is None


async def test_what_cannot_be_written_again_is_not_predicted(links: list[Link]) -> None:
    assert await WorkerPredictor(links[0]).expecting(sent("\ud800")) == NOTHING_EXPECTED
    assert await WorkerPredictor(links[0]).expecting(sent("fine")) != NOTHING_EXPECTED
