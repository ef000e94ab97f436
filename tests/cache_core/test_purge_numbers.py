"""No purge is forgotten, however many there are: at worst one counts for others, too."""

from hypothesis import given
from hypothesis import strategies as st

from cache_core.purge_numbers import PurgeNumbers

NAMES = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])


@given(st.lists(NAMES | st.none()), st.lists(NAMES | st.none()), st.integers(1, 6))
def test_what_was_purged_since_a_moment_is_known_to_be(
    before: list[bytes | None], after: list[bytes | None], most: int
) -> None:
    numbers = PurgeNumbers(most)
    for names in (before, after):
        moment = numbers.now
        for name in names:
            numbers.add_all() if name is None else numbers.add(name)
    purged = {name for name in (b"a", b"b", b"c", b"d", b"e") if name in after or None in after}
    found = {name for name in (b"a", b"b", b"c", b"d", b"e") if numbers.last(name) > moment}
    assert purged <= found
    if most > 5:
        assert purged == found


def test_memory_is_bounded() -> None:
    numbers = PurgeNumbers(most=10)
    for number in range(1000):
        numbers.add(str(number).encode())
    assert len(numbers._last) == 10
    assert numbers.last(b"999") == 1000
    assert numbers.last(b"0") == numbers.last(b"never") == 990
