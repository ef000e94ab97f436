from hypothesis import given
from hypothesis import strategies as st

from canon.slots import SlotLearner

PROSE = ["You are the help desk of a shop.", "Answer in two sentences at most.", "Never promise a date."]


def taught(values: int, line: str = "Build channel: {}", learner: SlotLearner | None = None) -> SlotLearner:
    learner = learner or SlotLearner(confirmations=4)
    for value in range(values):
        learner.observe([*PROSE, line.format(f"c{value}")])
    return learner


def test_a_line_that_differs_often_enough_is_a_slot():
    assert taught(3).confirmed() == frozenset()
    assert taught(4).confirmed() == {"Build channel: ␣"}


def test_the_same_value_again_confirms_nothing():
    learner = SlotLearner(confirmations=4)
    for _ in range(20):
        learner.observe(["Build channel: a"])
        learner.observe(["Build channel: b"])
    assert learner.confirmed() == frozenset()


def test_a_value_in_the_middle_of_a_sentence_is_told_but_may_not_act():
    learner = taught(6, "Write for the {} readers of the shop.")
    slots = learner.observe(["Write for the young readers of the shop."])
    assert [(slot.template, slot.whole) for slot in slots] == [
        ("Write for the ␣ readers of the shop.", False)
    ]
    assert learner.is_confirmed(slots[0])
    assert learner.confirmed() == frozenset()


def test_lines_that_a_text_has_several_of_are_a_list():
    learner = SlotLearner(confirmations=4)
    for value in range(9):
        learner.observe([f"Item name: a{value}", f"Item name: b{value}"])
    assert learner.confirmed() == frozenset()


def test_a_further_gap_has_to_be_confirmed_again():
    learner = taught(5, "Build channel: {} x")
    learner.observe(["Build channel: c1 y"])
    assert learner.confirmed() == frozenset()


def test_what_was_learned_survives_a_store_and_broken_bytes_are_nothing():
    learner = taught(4)
    assert SlotLearner.load(learner.dump(), confirmations=4).confirmed() == learner.confirmed()
    for broken in (
        b"",
        b"{",
        b"[]",
        b'{"format":1}',
        b'{"format":1,"groups":[[1]]}',
        b'{"format":2,"groups":[]}',
    ):
        assert SlotLearner.load(broken).confirmed() == frozenset()


def test_it_says_when_there_is_nothing_new_to_store():
    learner = SlotLearner.load(taught(4).dump(), confirmations=4)
    learner.observe([*PROSE, "Build channel: c99"])
    assert not learner.changed
    learner.observe(["A line that nobody has sent before."])
    assert learner.changed


def test_it_forgets_rather_than_grow():
    learner = SlotLearner()
    for at in range(700):
        learner.observe(
            [f"word{at}x is first here", *(f"alpha{'ab'[at % 2]} {at} b{at} c{at} {i}" for i in range(3))]
        )
    assert len(learner.dump()) < 200_000


@given(st.lists(st.lists(st.text(max_size=40), max_size=8), max_size=8))
def test_any_lines_can_be_learned_stored_and_learned_again(requests: list[list[str]]):
    learner = SlotLearner(confirmations=2)
    for lines in requests:
        learner.observe(lines)
        learner = SlotLearner.load(learner.dump(), confirmations=2)
    assert all(isinstance(template, str) for template in learner.confirmed())
