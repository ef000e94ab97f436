import asyncio
from collections.abc import Generator

import pytest

from canon.tokens.steps import finished
from gateway.side_by_side import SideBySide


def steps(name: str, seen: list[str], count: int = 3) -> Generator[None, None, str]:
    for number in range(count):
        seen.append(f"{name}{number}")
        yield
    return name


def failing(seen: list[str]) -> Generator[None, None, str]:
    seen.append("f0")
    yield
    raise ValueError("f")


def test_all_steps_taken_at_once_give_the_same() -> None:
    seen: list[str] = []
    assert finished(steps("a", seen)) == "a"
    assert seen == ["a0", "a1", "a2"]
    with pytest.raises(ValueError, match="f"):
        finished(failing(seen))


async def test_what_comes_together_takes_each_step_together() -> None:
    together, seen = SideBySide(), list[str]()

    async def one(name: str) -> str:
        return await together.do(steps(name, seen, 2 if name == "b" else 3))

    assert await asyncio.gather(one("a"), one("b"), one("c")) == ["a", "b", "c"]
    assert seen == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "c2"]
    assert await one("d") == "d"
    assert seen[8:] == ["d0", "d1", "d2"]


async def test_who_fails_fails_alone() -> None:
    together, seen = SideBySide(), list[str]()
    given = [together.do(steps("a", seen)), together.do(failing(seen)), together.do(steps("b", seen))]
    first, failed, last = await asyncio.gather(*given, return_exceptions=True)
    assert (first, last) == ("a", "b")
    assert isinstance(failed, ValueError)


async def test_of_who_is_gone_no_step_is_taken() -> None:
    together, seen = SideBySide(), list[str]()
    gone, there = together.do(steps("a", seen)), together.do(steps("b", seen))
    gone.cancel()
    assert await there == "b"
    assert seen == ["b0", "b1", "b2"]


async def test_what_comes_from_a_step_is_done_behind_it() -> None:
    together, seen = SideBySide(), list[str]()

    def first() -> Generator[None, None, asyncio.Future[str]]:
        yield
        return together.do(steps("b", seen))

    assert await (await together.do(first())) == "b"
