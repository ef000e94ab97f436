"""As many as may be are taken, never more; whoever waits gets the next one, and a wait that ends loses none."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.remote.transport.slots import Slots


async def test_who_waits_longest_gets_the_next_one() -> None:
    slots, order = Slots(1), list[int]()
    assert slots.take()
    assert not slots.take()

    async def wait(number: int) -> None:
        await slots.wait(60)
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    for _ in waiting:
        slots.give_back()
        assert not slots.take()  # it is the one's who waits
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2]


async def test_a_wait_that_is_over_takes_none() -> None:
    slots = Slots(1)
    assert slots.take()
    with pytest.raises(TimeoutError):
        await slots.wait(0.01)
    slots.give_back()
    assert slots.take()


async def test_one_that_comes_as_its_wait_is_cancelled_is_given_on() -> None:
    slots = Slots(1)
    assert slots.take()
    first, second = (asyncio.create_task(slots.wait(60)) for _ in range(2))
    await asyncio.sleep(0)
    slots.give_back()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert second.exception() is None
    slots.give_back()
    assert slots.take()


@given(st.integers(1, 4), st.lists(st.booleans(), max_size=40))
async def test_never_more_than_there_are(count: int, steps: list[bool]) -> None:
    slots, taken = Slots(count), 0
    for take in steps:
        if take:
            got = slots.take()
            assert got == (taken < count)
            taken += got
        elif taken:
            slots.give_back()
            taken -= 1
