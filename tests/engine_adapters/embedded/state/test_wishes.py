"""Whatever is wished, somebody makes room, nobody keeps more than a share, and time ends every wish."""

from hypothesis import given
from hypothesis import strategies as st

from cache_core import RetentionHints
from engine_adapters.embedded.state.wishes import Wishes

ROOM = 8
hints = st.builds(
    RetentionHints,
    pin_s=st.sampled_from([0.0, 10.0, 1e6]),
    ttl_s=st.sampled_from([None, 0.0, 5.0]),
    priority=st.sampled_from([-1, 0, 1]),
)


@given(st.lists(st.tuples(st.integers(0, ROOM - 1), st.sampled_from("ab"), hints), max_size=20))
def test_kept_ones_stay_within_their_shares_and_not_for_ever(
    wishes: list[tuple[int, str, RetentionHints]],
) -> None:
    now = [0.0]
    all_of_them: Wishes[tuple[int, str]] = Wishes(ROOM, lambda: now[0])
    for number, scope, wish in wishes:
        all_of_them.wish((number, scope), scope, wish)
        now[0] += 1
    keys = [(number, scope) for scope in "ab" for number in range(ROOM)]
    for scope, most in (("a", ROOM // 4), ("b", ROOM // 4)):
        kept = [key for key in keys if key[1] == scope and all_of_them.victim([key, (-1, "x")]) != key]
        assert len(kept) <= most
    now[0] += 3600
    assert all_of_them.victim([*keys]) in keys
    still = [key for key in keys if all_of_them.victim([key, (-1, "x")]) != key]
    assert not still


def test_the_least_recently_used_goes_first_among_equals() -> None:
    wishes: Wishes[str] = Wishes(ROOM, lambda: 0.0)
    assert wishes.victim(["old", "new"]) == "old"
    for key in ("old", "new"):
        wishes.wish(key, key, RetentionHints(pin_s=5))
    assert wishes.victim(["old", "new"]) == "old"
    assert wishes.victim(["old", "new", "any"]) == "any"
    wishes.forget("new")
    assert wishes.victim(["old", "new"]) == "new"
