import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.garbage import keep_what_is_there, let_go


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_is_there_is_not_looked_at_again_and_new_things_seldom() -> None:
    before = gc.get_threshold()
    kept: list[object] = [[]]
    keep_what_is_there()
    assert gc.get_freeze_count() > 0
    assert not any(each is kept for each in gc.get_objects())
    assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold()[1:] == before[1:]


def test_cycles_of_requests_are_collected_all_the_same() -> None:
    keep_what_is_there()
    cycle = Cycle()
    last_seen = weakref.ref(cycle)
    assert any(each is cycle for each in gc.get_objects())
    del cycle
    gc.collect()  # or another thread's allocation before
    assert last_seen() is None


def test_at_the_end_all_of_it_is_let_go() -> None:
    keep_what_is_there()
    let_go()
    assert gc.get_freeze_count() == 0
