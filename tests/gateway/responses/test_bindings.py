"""Which responses are remembered, and for whom."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.responses.bindings import LONGEST_ID, Binding, LocalBindings

HERE = Binding("engine", "a")


async def test_a_response_is_known_to_its_tenant_alone() -> None:
    bindings = LocalBindings()
    await bindings.bind("one", "resp", HERE)
    assert await bindings.find("one", "resp") == HERE
    assert await bindings.find("two", "resp") is None
    await bindings.forget("two", "resp")
    await bindings.forget("one", "resp")
    assert await bindings.find("one", "resp") is None
    assert len(bindings) == 0


async def test_it_is_forgotten_after_a_while() -> None:
    now = 0.0
    bindings = LocalBindings(ttl_s=10, clock=lambda: now)
    await bindings.bind("one", "resp", HERE)
    now = 10.0
    assert await bindings.find("one", "resp") == HERE
    now = 10.5
    assert await bindings.find("one", "resp") is None
    assert len(bindings) == 0


async def test_who_has_most_loses_what_was_not_used_for_longest() -> None:
    bindings = LocalBindings(most=4)
    await bindings.bind("small", "s", HERE)
    for name in "abcde":
        await bindings.bind("large", name, HERE)
        await bindings.find("large", "a")
    assert await bindings.find("small", "s") == HERE
    assert [name for name in "abcde" if await bindings.find("large", name)] == ["a", "d", "e"]


async def test_what_is_no_id_is_not_kept() -> None:
    bindings = LocalBindings()
    await bindings.bind("one", "x" * (LONGEST_ID + 1), HERE)
    assert len(bindings) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12345"), st.booleans())))
def test_the_count_is_what_is_there_and_never_more_than_the_most(steps) -> None:
    async def run() -> None:
        bindings = LocalBindings(most=3)
        for tenant, response, bind in steps:
            await (bindings.bind(tenant, response, HERE) if bind else bindings.forget(tenant, response))
            there = [1 for who in "ab" for name in "12345" if await bindings.find(who, name)]
            assert len(bindings) == len(there) <= 3

    asyncio.run(run())
