"""What tests of limits take for certain is never more than what happened, and all of it where a machine is quick."""

from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.limits.passed import Passed

Asks = st.lists(st.tuples(st.floats(0, 200), st.floats(0, 50), st.floats(0, 1)), max_size=30)


@given(Asks)
def test_what_is_certain_did_happen(asks: list[tuple[float, float, float]]) -> None:
    passed, at = Passed(), []
    for asked, took, share in asks:
        passed.add(asked, asked + took)
        at.append(asked + share * took)
    happened = max((sum(begin <= each <= begin + 60 for each in at) for begin in at), default=0)
    assert passed.most_in_a_minute() <= happened


def test_where_nothing_waits_all_of_it_is_certain() -> None:
    passed = Passed()
    for number in range(10):
        passed.add(number, number + 0.5)
    passed.add(300, 301)
    assert passed.most_in_a_minute() == 10
    assert (passed.before(10), passed.before(64.5), passed.before(301)) == (10, 5, 1)
