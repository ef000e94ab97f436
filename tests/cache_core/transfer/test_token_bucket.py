"""The budget holds over time, whatever the sizes of the pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.transfer import TokenBucket


@given(
    rate=st.floats(1, 1e6),
    burst=st.floats(0, 1e6),
    sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=30),
    pauses=st.lists(st.floats(0, 10), min_size=30, max_size=30),
)
def test_no_more_is_begun_than_rate_and_burst_and_one_piece_allow(
    rate: float, burst: float, sizes: list[int], pauses: list[float]
) -> None:
    bucket, now, begun = TokenBucket(rate, burst), 0.0, 0
    for size, pause in zip(sizes, pauses, strict=False):
        now += pause
        delay = bucket.delay(now)
        now += delay
        assert bucket.delay(now) * rate <= 1e-3 * (rate + begun), "waiting as long as it says is enough"
        assert begun <= burst + rate * now + 1e-6 * (begun + rate), "what was begun before is paid"
        bucket.spend(size, now)
        begun += size


def test_without_a_rate_nothing_waits() -> None:
    bucket = TokenBucket(None)
    bucket.spend(1 << 40, 0.0)
    assert bucket.delay(0.0) == 0.0


def test_a_clock_that_jumps_back_gives_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(10.0)
    bucket.spend(100, 50.0)
    assert bucket.delay(50.0) == pytest.approx(10.0)
    assert bucket.delay(1.0) == pytest.approx(10.0)
    assert bucket.delay(55.0) == pytest.approx(5.0)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="moves nothing"):
        TokenBucket(0.0)
