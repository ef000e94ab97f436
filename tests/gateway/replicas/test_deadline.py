"""How long a request may take: what is said where, and what is no time."""

import asyncio

import pytest

from gateway.errors import ApiError
from gateway.replicas.deadline import NO_DEADLINE, Deadline, deadline_of


def left(
    headers: dict[bytes, bytes], *, stream: bool = False, elapsed_s: float = 0, engine_s: float | None = None
) -> float | None:
    found = deadline_of(headers, stream=stream, elapsed_s=elapsed_s, engine_s=engine_s).left_s
    return None if found is None else round(found, 1)


async def test_the_nearest_counts() -> None:
    assert left({}) is None
    assert left({}, engine_s=30) == 30
    assert left({b"x-kvgate-timeout": b"2.5"}, engine_s=30) == 2.5
    assert left({b"x-kvgate-timeout": b"60"}, engine_s=30) == 30
    assert left({b"x-kvgate-timeout": b"5"}, elapsed_s=2) == 3
    assert left({b"x-kvgate-timeout": b"5"}, elapsed_s=20) == 0


async def test_the_sdks_wait_for_a_byte_bounds_whole_answers_only() -> None:
    sdk = {b"x-stainless-read-timeout": b"20.0"}
    assert left(sdk) == 20
    assert left(sdk, stream=True) is None  # a stream is kept alive
    assert left({b"x-stainless-read-timeout": b"None"}) is None


@pytest.mark.parametrize(
    "value", [b"", b"0", b"-1", b"nan", b"inf", b"1e999", b"x", b"1_0", b"1" * 40, b"\xff"]
)
async def test_what_is_no_time_is_refused(value: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        left({b"x-kvgate-timeout": value})
    assert (refused.value.status, refused.value.param) == (400, "x-kvgate-timeout")
    assert left({b"x-stainless-read-timeout": value}) is None


async def test_a_block_ends_when_its_time_has_come() -> None:
    with pytest.raises(ApiError) as ended:
        async with Deadline(asyncio.get_running_loop().time() + 0.01).kept():
            await asyncio.Event().wait()
    assert (ended.value.status, ended.value.code) == (504, "deadline_exceeded")
    async with NO_DEADLINE.kept():
        pass


async def test_other_timeouts_in_a_block_stay_what_they_are() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(asyncio.get_running_loop().time() + 60).kept():
            raise TimeoutError
