from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from canon.lint.segments import segments_of
from gateway.ledger.shadow.prompt_tree import PromptTree

SYSTEM = "You are a careful assistant of the harbour office."


def chat(*turns: str, system: str = SYSTEM) -> Any:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return segments_of({"messages": [{"role": "system", "content": system}, *said]})


def test_a_prompt_that_goes_on_from_an_earlier_one_has_lost_nothing() -> None:
    tree = PromptTree(1 << 20)
    tree.add("s", chat("When does the ferry leave?"), 1)
    found = tree.add("s", chat("When does the ferry leave?", "At nine.", "And the next?"), 2)
    assert (found.goes_on, found.request, found.shared) == (True, 1, 2)
    again = tree.add("s", chat("When does the ferry leave?", "At nine.", "And the next?"), 3)
    assert (again.goes_on, again.request) == (True, 2)


def test_the_earlier_prompt_is_found_by_what_stands_behind_the_difference() -> None:
    tree = PromptTree(1 << 20)
    mine = chat("first question of mine", "a long answer to the first question", "second question")
    tree.add("s", mine, 1)
    for number in range(30):
        tree.add("s", chat(f"somebody else's question {number}"), 2 + number)
    found = tree.add("s", chat("FIRST question of mine", "a long answer to the first question", "more"), 99)
    assert not found.goes_on
    assert list(found.old) == mine


def test_a_changed_head_finds_the_head_it_is_most_like() -> None:
    tree = PromptTree(1 << 20)
    rules = "\n".join(f"Rule number {n} of the office stands." for n in range(9))
    tree.add("s", chat("q", system=f"It is 10:00.\n{rules}"), 1)
    tree.add("s", chat("q", system="A poet, who answers in rhymes and not otherwise."), 2)
    found = tree.add("s", chat("other", system=f"It is 10:05.\n{rules}"), 3)
    assert found.old[0].text.startswith("It is 10:00.")


def test_scopes_share_nothing() -> None:
    tree = PromptTree(1 << 20)
    tree.add("a", chat("hello there, harbour"), 1)
    found = tree.add("b", chat("hello there, harbour"), 2)
    assert (found.shared, found.request, list(found.old)) == (0, None, [])


@given(
    st.lists(
        st.lists(st.sampled_from(["one" * 9, "two" * 9, "three" * 9, "x"]), min_size=1, max_size=6),
        max_size=40,
    ),
    st.integers(0, 6_000),
)
def test_it_stays_in_its_bound_and_forgets_ends_before_beginnings(
    prompts: list[list[str]], bound: int
) -> None:
    tree = PromptTree(bound)
    for number, turns in enumerate(prompts):
        found = tree.add("s", chat(*turns), number)
        assert found.shared <= len(turns) + 1
        assert tree._size <= bound
        assert tree._size == sum(node.size for node in tree._nodes.values())
        for node in tree._nodes.values():
            assert node.parent in tree._nodes or node.parent in tree._roots
        assert set(tree._by_piece.values()) <= tree._nodes.keys()
