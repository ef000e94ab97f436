"""What a prompt begins with in common with earlier ones is what comparing it with each of them says."""

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from gateway.reports.isolation.own_prompts import OwnPrompts

TEXTS = st.text("abä", max_size=6)


@given(st.lists(TEXTS, max_size=12), TEXTS)
def test_it_is_the_most_of_any_other_text(sent: list[str], text: str):
    own = OwnPrompts()
    for each in sent:
        own.add(each)
    pairs = [zip(text.encode(), each.encode(), strict=False) for each in sent if each != text]
    assert own.shared(text) == max(
        (sum(takewhile(bool, (one == other for one, other in pair))) for pair in pairs), default=0
    )


def test_it_keeps_only_beginnings():
    own = OwnPrompts()
    own.add("a" * 100_000)
    assert own.shared("a" * 50_000 + "b") == 0  # they are taken for the same text
    assert own.shared("a" * 500) == 500
