"""Workers count together; one that dies leaves its slots; while nobody counts, each keeps to its share."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.rpc.errors import SilentError
from engine_adapters.rpc.server import Server
from gateway.limits.known import Used, left
from gateway.limits.tenant_limits import NO_LIMITS, TenantLimits
from gateway.limits.window import LASTS
from gateway.workers.shared_limits import WorkerCounter
from gateway.workers.worker import OtherWorkers
from tests.gateway.limits.clock import Clock
from tests.gateway.workers.test_state import folder, serve, state
from tests.waiting import PATIENCE_S, until

__all__ = ["folder", "state"]


async def counter(
    folder: Path, name: str, clock: Callable[[], float] = time.monotonic, workers: int = 2
) -> tuple[OtherWorkers, WorkerCounter]:
    others = OtherWorkers(folder / "state.sock", name)
    its = WorkerCounter(others.link, workers, clock)
    others.greetings.append(its.resume)
    others.offer("limits.used", its.used)
    others.link.start()
    await others.link.there(PATIENCE_S)
    return others, its


async def passed(counter: WorkerCounter, limits: TenantLimits, n: int, name: str) -> int:
    asked = (counter.admit("a", limits, f"{name}{i}", 1) for i in range(n))
    return sum(not verdict.over for verdict in await asyncio.gather(*asked))


async def test_exactly_as_many_pass_as_may_at_all_workers_together(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=50)
    assert sum(await asyncio.gather(passed(a, limits, 200, "x"), passed(b, limits, 200, "y"))) == 50
    verdict = await a.admit("a", limits, "late", 1)
    assert (verdict.over, verdict.requests) == (("requests",), 50)
    for each in (one, two):
        await each.link.aclose()


async def test_what_ends_or_leaves_is_given_back(folder: Path, state: Server) -> None:
    others, a = await counter(folder, "a")
    limits = TenantLimits(tokens_per_minute=100, concurrency=1)
    first = await a.admit("a", limits, "one", 90)
    assert (await a.admit("a", limits, "two", 1)).over == ("concurrency",)
    a.settle("a", "one", first, -80)
    leaving = asyncio.create_task(a.admit("a", limits, "three", 50))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    last = await a.admit("a", limits, "four", 90)
    assert (last.over, last.tokens) == ((), 100)
    await others.link.aclose()


async def test_slots_of_a_worker_that_died_are_free(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(concurrency=3)
    assert await passed(a, limits, 5, "x") == 3
    assert (await b.admit("a", limits, "no", 1)).over == ("concurrency",)
    await one.link.aclose()
    await until(lambda: len(state.connections) == 1)
    assert await passed(b, limits, 5, "y") == 3
    await two.link.aclose()


async def test_requests_of_two_workers_may_have_the_same_name(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(concurrency=4)
    first = await a.admit("a", limits, "0", 1)
    assert await passed(b, limits, 5, "") == 3
    a.settle("a", "0", first, 0)
    assert await passed(b, limits, 5, "more") == 1
    assert (await a.admit("a", limits, "1", 1)).over == ("concurrency",)
    await two.link.aclose()
    await until(lambda: len(state.connections) == 1)
    assert await passed(a, limits, 9, "") == 4
    await one.link.aclose()


async def test_a_process_that_counts_anew_is_told_what_runs(folder: Path) -> None:
    server = await serve(folder)
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(concurrency=6)
    first = await a.admit("a", limits, "0", 1)
    assert await passed(b, limits, 2, "") == 2
    server.close()
    await until(lambda: not one.link.is_there and not two.link.is_there)
    alone = await a.admit("a", limits, "1", 1)  # within its share
    assert not alone.over
    there = await serve(folder)
    await until(lambda: one.link.is_there and two.link.is_there)
    assert await passed(b, limits, 9, "more") == 2  # beside four that run
    a.settle("a", "1", alone, 0)
    a.settle("a", "0", first, 0)
    assert await passed(a, limits, 9, "again") == 2
    for each in (one, two):
        await each.link.aclose()
    there.close()


async def ended(state: Server, *workers: OtherWorkers) -> None:
    state.close()
    await until(lambda: not any(each.link.is_there for each in workers), "they know")


async def knows(counter: WorkerCounter, requests: int) -> None:
    """A worker has been told what all of them used."""
    await until(lambda: counter._known("a").requests == requests, "it is told")


async def test_while_nobody_counts_each_keeps_to_its_part_of_what_was_left(folder: Path) -> None:
    server = await serve(folder)
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=20, concurrency=20)
    assert [await passed(a, limits, 5, "x"), await passed(b, limits, 2, "y")] == [5, 2]
    await knows(a, 7)
    await knows(b, 7)
    await ended(server, one, two)
    assert [await passed(a, limits, 20, "z"), await passed(b, limits, 20, "z")] == [6, 6]  # of 13 for both
    there = await serve(folder)
    await until(lambda: one.link.is_there and two.link.is_there)
    assert await passed(a, limits, 9, "back") + await passed(b, limits, 9, "back") == 1
    for each in (one, two):
        await each.link.aclose()
    there.close()


async def test_who_let_nothing_pass_lets_nothing_more_pass_where_others_took_all(folder: Path) -> None:
    server = await serve(folder)
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=6, tokens_per_minute=100)
    first = await a.admit("a", limits, "all", 100)
    assert not first.over
    await knows(b, 1)
    await ended(server, one, two)
    refused = await b.admit("a", limits, "more", 1)
    assert (refused.over, refused.tokens) == (("tokens",), 100)
    a.settle("a", "all", first, 20)  # nobody can be told, and it is known later all the same
    there = await serve(folder)
    await until(lambda: one.link.is_there and two.link.is_there)
    refused = await b.admit("a", limits, "more", 1)
    assert (refused.over, refused.tokens) == (("tokens",), 120)
    for each in (one, two):
        await each.link.aclose()
    there.close()


async def test_what_a_worker_let_pass_that_has_ended_is_known_to_the_next_process_by_the_others(
    folder: Path,
) -> None:
    server = await serve(folder)
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=10)
    assert [await passed(a, limits, 2, "x"), await passed(b, limits, 5, "y")] == [2, 5]
    await knows(a, 7)
    await two.link.aclose()
    await ended(server, one)
    there = await serve(folder)
    await until(lambda: one.link.is_there)
    late = await a.admit("a", limits, "late", 1)
    assert (late.over, late.requests) == ((), 8)
    assert await passed(a, limits, 9, "z") == 2
    await one.link.aclose()
    there.close()


async def test_a_connection_that_breaks_counts_nothing_twice(folder: Path, state: Server) -> None:
    others, a = await counter(folder, "a")
    limits = TenantLimits(requests_per_minute=10, concurrency=8)
    assert await passed(a, limits, 4, "x") == 4
    before = others.link.connection
    before.close()
    await until(lambda: others.link.is_there and others.link.connection is not before)
    verdict = await a.admit("a", limits, "y", 1)
    assert verdict.requests == 5
    assert await passed(a, limits, 9, "z") == 3  # beside five that run
    await others.link.aclose()


async def test_what_passed_while_nobody_answered_is_counted_then(
    folder: Path, state: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=10, concurrency=9)
    assert await passed(a, limits, 2, "x") == 2

    async def silent(*_: object, **__: object) -> object:
        raise SilentError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(one.link, "call", silent)
        assert await passed(a, limits, 3, "y") == 3
    assert await passed(a, limits, 1, "z") == 1
    await knows(a, 6)
    verdict = await b.admit("a", limits, "w", 1)
    assert verdict.requests == 7
    assert await passed(b, limits, 9, "v") == 2  # nine run
    for each in (one, two):
        await each.link.aclose()


async def test_after_a_minute_what_was_used_counts_no_more(folder: Path) -> None:
    server, clock = await serve(folder), Clock()
    others, a = await counter(folder, "a", clock, workers=1)
    limits = TenantLimits(requests_per_minute=4)
    assert await passed(a, limits, 9, "x") == 4
    await ended(server, others)
    assert await passed(a, limits, 9, "y") == 0
    clock.now += LASTS
    assert await passed(a, limits, 9, "z") == 4
    await others.link.aclose()


Amounts = st.integers(0, 50)


@given(st.integers(1, 100), st.builds(Used, Amounts, Amounts, Amounts), st.integers(1, 8))
def test_all_parts_together_are_no_more_than_what_is_left(limit: int, used: Used, processes: int) -> None:
    part = left(TenantLimits(limit, limit, limit), used, processes)
    for each, of in (
        (part.requests_per_minute, used.requests),
        (part.tokens_per_minute, used.tokens),
        (part.concurrency, used.running),
    ):
        assert each is not None
        assert each >= 0
        if of:
            assert each * processes <= max(0, limit - of)
        else:
            assert each == max(1, limit // processes)
    assert left(NO_LIMITS, used, processes) == NO_LIMITS
