"""Tries that count and tries that do not."""

import pytest

from tests import waiting
from tests.waiting import steadily, steady


class Clock:
    """Goes on by what each try takes."""

    def __init__(self, *tries_s: float) -> None:
        self.now, self.tries_s, self.tries = 0.0, list(tries_s), 0

    def monotonic(self) -> float:
        return self.now

    def fail(self) -> None:
        self.now += self.tries_s[self.tries]
        self.tries += 1
        raise AssertionError("it failed")

    def fail_first(self) -> str:
        if self.tries == len(self.tries_s):
            return "well"
        self.fail()
        raise AssertionError

    async def fail_later(self) -> None:
        self.fail()


@pytest.mark.parametrize("tries_s", [[0.5], [3.0, 7.0, 0.5]], ids=["at once", "behind slow ones"])
async def test_a_try_that_took_less_than_the_bound_fails_for_good(
    tries_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, other = Clock(*tries_s), Clock(*tries_s)
    monkeypatch.setattr(waiting, "time", clock)
    with pytest.raises(AssertionError, match="it failed"):
        steady(clock.fail, within=1.0)
    monkeypatch.setattr(waiting, "time", other)
    with pytest.raises(AssertionError, match="it failed"):
        await steadily(other.fail_later, within=1.0)
    assert clock.tries == other.tries == len(tries_s)


def test_a_try_in_which_the_machine_stood_still_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(3.0, 3.0)
    monkeypatch.setattr(waiting, "time", clock)
    assert steady(clock.fail_first, within=1.0) == "well"


def test_tries_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(*[10.0] * 100)
    monkeypatch.setattr(waiting, "time", clock)
    with pytest.raises(AssertionError, match="it failed"):
        steady(clock.fail, within=1.0)
    assert clock.tries < 20
