"""Which replicas a request may go to, at random: never nobody where somebody is there, never too many left alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.base import Health, ReuseReport
from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from gateway.replicas.address import ReplicaAddress
from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.outliers import OutlierOptions
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool
from gateway.replicas.selection import ejected, may_be_ejected
from gateway.routing.least_loaded import LeastLoaded
from gateway.routing.router import Decision, RouteAsk
from tests.gateway.replicas.test_breaker import Clock

ASK = RouteAsk("id", "fleet", "m", {}, 10)
POLICY = PoolPolicy(
    BreakerOptions(failures=2, open_s=5),
    OutlierOptions(factor=2, above_s=0.1, samples=4),
    slow_start_s=0,
)


class Forgetting(LeastLoaded):
    """Tells what it was told to forget, and what ended."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[str] = []
        self.open = 0

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        self.open += 1
        return await super().choose(ask, candidates)

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        self.open -= 1
        super().ended(decision, reuse)

    def forget(self, replica: str) -> None:
        self.forgotten.append(replica)
        super().forget(replica)


def remote(address: ReplicaAddress) -> Remote:
    engine = OpenAICompatibleEngine("fleet", address.url, ("m",))
    return Remote(engine, {"m": "m"}, replica=f"fleet/{address.name}")


def address(number: int, url: str | None = None) -> ReplicaAddress:
    return ReplicaAddress(f"r{number}", url or f"http://127.0.0.1:{number + 1}")


def pool_of(count: int, clock: Clock, policy: PoolPolicy = POLICY) -> EnginePool:
    return EnginePool(
        "fleet", [remote(address(number)) for number in range(count)], Forgetting(), policy, clock=clock
    )


async def once(pool: EnginePool, outcome: Any, tried: frozenset[str] = frozenset()) -> str:
    visit = await pool.choose(ASK, tried)
    visit.ended(outcome)
    return visit.remote.replica


def runs(pool: EnginePool) -> int:
    """Requests, by what is known of each replica."""
    return sum(member.running for member in pool.members)


@given(st.integers(0, 100), st.floats(0, 1))
def test_the_last_one_is_never_left_alone(members: int, share: float) -> None:
    allowed = may_be_ejected(members, share)
    assert 0 <= allowed < max(1, members)
    assert allowed <= max(1, members * share)


async def test_who_fails_is_left_alone_and_asked_again_later() -> None:
    clock = Clock()
    pool = pool_of(3, clock)
    bad = pool.members[0]
    for _ in range(2):
        visit = await pool.choose(ASK, only=bad.id)
        visit.ended("bad")
    assert bad.state == "ejected"
    assert {await once(pool, "good") for _ in range(10)} == {"fleet/r1", "fleet/r2"}
    clock.now += 5
    assert await once(pool, "good") == "fleet/r0"  # a probe, which only a request can be
    assert await once(pool, "good") == "fleet/r0"
    assert bad.state == "ready"


async def test_while_a_probe_runs_no_second_one_goes() -> None:
    clock = Clock()
    pool = pool_of(2, clock)
    for _ in range(2):
        (await pool.choose(ASK, only="fleet/r0")).ended("bad")
    clock.now += 5
    probe = await pool.choose(ASK)
    assert probe.remote.replica == "fleet/r0"
    others = [await pool.choose(ASK) for _ in range(5)]
    assert {visit.remote.replica for visit in others} == {"fleet/r1"}


async def test_requests_that_came_together_are_all_routed_before_one_is_sent() -> None:
    pool, running = pool_of(3, Clock()), list[int]()
    first = await pool.choose(ASK)

    async def request() -> None:
        visit = await pool.choose(ASK)
        running.append(runs(pool))
        visit.ended("good")

    await asyncio.gather(*(request() for _ in range(4)))
    assert running == [5, 4, 3, 2]
    first.ended("good")
    assert runs(pool) == 0


async def test_a_request_that_is_alone_waits_for_nobody() -> None:
    pool = pool_of(2, Clock())
    for _ in range(2):
        with pytest.raises(StopIteration) as chosen:
            pool.choose(ASK).send(None)
        chosen.value.value.ended("good")


async def test_a_request_that_goes_away_before_it_is_sent_runs_nowhere() -> None:
    pool = pool_of(2, Clock())
    other = await pool.choose(ASK)
    task = asyncio.create_task(pool.choose(ASK))
    await asyncio.sleep(0)  # it has been routed
    assert runs(pool) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runs(pool) == 1
    other.ended("good")
    assert runs(pool) == 0


@settings(deadline=None, max_examples=30)  # a client of HTTP takes a while to make
@given(st.integers(1, 6), st.data())
async def test_somebody_is_always_asked_however_they_fail(members: int, data: st.DataObject) -> None:
    clock = Clock()
    pool = pool_of(members, clock)
    for _ in range(40):
        visit = await pool.choose(ASK)
        visit.ended(data.draw(st.sampled_from(["bad", "bad", "good", "unknown"])))
        clock.now += data.draw(st.sampled_from([0.0, 1.0, 6.0]))
        assert len(ejected(pool.members, 0.5)) <= may_be_ejected(members, 0.5)
    assert pool.router.open == 0  # type: ignore[attr-defined]
    assert all(member.running == 0 for member in pool.members)


async def test_who_is_away_is_not_asked_even_where_nobody_else_is_left() -> None:
    pool = pool_of(2, Clock())
    for member in pool.members:
        member.remote._now(Health(False, "away"))
    with pytest.raises(EngineNotReadyError):
        await pool.choose(ASK)
    assert pool.router.forgotten == ["fleet/r0", "fleet/r1"]  # type: ignore[attr-defined]


async def test_who_has_not_the_model_is_not_asked_for_it() -> None:
    pool = pool_of(2, Clock())
    pool.members[0].remote._names = {"other": "other"}
    assert {await once(pool, "good") for _ in range(4)} == {"fleet/r1"}


async def test_only_means_only() -> None:
    pool = pool_of(3, Clock())
    assert {(await pool.choose(ASK, only="fleet/r2")).remote.replica for _ in range(3)} == {"fleet/r2"}
    with pytest.raises(EngineNotReadyError):
        await pool.choose(ASK, only="fleet/r9")


async def test_a_slow_replica_is_left_alone_but_never_more_than_the_share() -> None:
    clock = Clock()
    pool = pool_of(4, clock)
    for member, ttft in zip(pool.members, (0.1, 0.1, 9.0, 8.0), strict=True):
        for _ in range(4):
            visit = await pool.choose(ASK, only=member.id)
            pool.took(visit, ttft)
            visit.ended("good")
    assert [member.state for member in pool.members] == ["ready", "ready", "ejected", "ejected"]
    assert {await once(pool, "good") for _ in range(8)} == {"fleet/r0", "fleet/r1"}
    clock.now += POLICY.outliers.away_s  # type: ignore[union-attr]
    assert {await once(pool, "good") for _ in range(8)} == {f"fleet/r{number}" for number in range(4)}


async def test_replicas_come_and_go_and_what_runs_at_one_that_left_ends_in_peace() -> None:
    closed: list[str] = []

    class Closing(Remote):
        async def aclose(self) -> None:
            closed.append(self.replica)
            await super().aclose()

    def make(given_: ReplicaAddress) -> Remote:
        made = remote(given_)
        return Closing(made.engine, {"m": "m"}, replica=made.replica)

    class Never:
        failing = False

        async def watch(self):  # type: ignore[no-untyped-def]
            return
            yield

    pool = EnginePool("fleet", (), Forgetting(), POLICY, discovery=Never(), make=make, names={"m": "m"})
    assert dict(pool.models) == {"m": "m"}
    pool.update([address(0), address(1)])
    visit = await pool.choose(ASK, only="fleet/r0")
    pool.update([address(1)])
    assert [each.replica for each in pool.replicas] == ["fleet/r1"]
    assert pool.router.forgotten == ["fleet/r0"]  # type: ignore[attr-defined]
    assert closed == []
    visit.ended("good")
    await pool.aclose()
    assert sorted(closed) == ["fleet/r0", "fleet/r1"]


async def test_another_url_under_the_same_name_is_another_replica() -> None:
    class Never:
        failing = False

        async def watch(self):  # type: ignore[no-untyped-def]
            return
            yield

    pool = EnginePool("fleet", (), Forgetting(), POLICY, discovery=Never(), make=remote)
    pool.update([address(0)])
    before = pool.replicas[0]
    pool.update([address(0)])
    assert pool.replicas[0] is before
    pool.update([address(0, "http://127.0.0.1:99")])
    (after,) = pool.replicas
    assert after is not before
    assert after.replica == before.replica
    await pool.aclose()


async def test_a_source_that_fails_in_an_unknown_way_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.pool._ASK_AGAIN_S", 0.001)

    class Odd:
        failing = False
        times = 0

        async def watch(self):  # type: ignore[no-untyped-def]
            self.times += 1
            if self.times == 1:
                raise KeyError("items")
            yield [address(0)]
            await asyncio.Event().wait()

    pool = EnginePool("fleet", (), Forgetting(), POLICY, discovery=Odd(), make=remote)
    pool.start()
    async with asyncio.timeout(10):
        await pool.asked()
    assert [each.replica for each in pool.replicas] == ["fleet/r0"]
    await pool.aclose()


async def test_a_source_that_says_nothing_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.pool._DISCOVERED_S", 0.01)

    class Silent:
        failing = True

        async def watch(self):  # type: ignore[no-untyped-def]
            await asyncio.Event().wait()
            yield []

    pool = EnginePool("fleet", (), Forgetting(), POLICY, discovery=Silent(), make=remote, names={"m": "m"})
    pool.start()
    async with asyncio.timeout(10):
        await pool.asked()
    assert not (await pool.health()).ready
    await pool.aclose()
