from hypothesis import given
from hypothesis import strategies as st

from canon.lint.alignment import common_end, common_start

SIDES = st.tuples(
    st.text("ab", max_size=70),
    st.text("abc", max_size=9),
    st.text("abc", max_size=9),
    st.text("ab", max_size=70),
)


@given(SIDES)
def test_two_texts_have_the_longest_start_and_end_in_common(sides: tuple[str, str, str, str]) -> None:
    start, mine, other, end = sides
    a, b = start + mine + end, start + other + end
    assert common_start(a, b) == _same(a, b)
    assert common_end(a, b) == _same(a[::-1], b[::-1])


@given(st.text(max_size=40), st.text(max_size=3))
def test_a_text_has_all_of_itself_in_common(text: str, more: str) -> None:
    assert common_start(text, text + more) == common_end(text, more + text) == len(text)


def _same(a: str, b: str) -> int:
    """One character after the other."""
    return next(
        (at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b))
    )
