"""Tail notes stay where they were first sent."""

from typing import Any

import pytest

from canon.memory import ConversationMemory
from canon.requests import view_of
from tests.canon.memory.sender import answer, assistant, calling, send, texts, tool, user

ONE, TWO = [user("one")], [user("one"), assistant("1, as you asked for it"), user("two")]


def test_a_note_is_repeated_at_its_turn_and_a_changed_value_told_at_the_newest() -> None:
    memory = ConversationMemory()
    first = send(memory, ONE, ["Time: 9"])
    second = send(memory, TWO, ["Time: 10"])
    assert "Time: 9" in texts(first, 0)
    assert second["messages"][:2] == first["messages"]
    assert "Time: 10" in texts(second, 2)
    assert "Time: 9" not in texts(second, 2)


def test_an_unchanged_value_is_told_once() -> None:
    memory = ConversationMemory()
    send(memory, ONE, ["Time: 9", "Folder: a"])
    second = send(memory, TWO, ["Time: 10", "Folder: a"])
    third = send(memory, [*TWO, assistant("2"), user("three")], ["Time: 10", "Folder: a"])
    assert "Time: 10" in texts(second, 2)
    assert "Folder: a" not in texts(second, 2)
    assert third["messages"][:4] == second["messages"]
    assert texts(third, 4) == "three"


def test_a_value_that_comes_back_is_told_again() -> None:
    memory = ConversationMemory()
    send(memory, ONE, ["Folder: a"])
    send(memory, TWO, ["Folder: b"])
    third = send(memory, [*TWO, assistant("2"), user("three")], ["Folder: a"])
    assert "Folder: a" in texts(third, 4)


def test_in_a_tool_loop_a_note_stays_and_a_changed_value_goes_behind_the_newest_result() -> None:
    memory = ConversationMemory()
    loop = [user("how many?"), calling("c1", "{}"), tool("c1", "four")]
    first = send(memory, loop[:1], ["Time: 9"])
    second = send(memory, loop, ["Time: 10"])
    third = send(memory, [*loop, calling("c2", "{}"), tool("c2", "five")], ["Time: 10"])
    assert second["messages"][:2] == first["messages"]
    parts = second["messages"][3]["content"]
    assert parts[0] == {"type": "text", "text": "four"}
    assert "Time: 10" in parts[1]["text"]
    assert third["messages"][:4] == second["messages"]
    assert third["messages"][5]["content"] == "five"


def test_two_conversations_that_began_alike_with_two_notes_get_neither() -> None:
    memory = ConversationMemory()
    send(memory, ONE, ["User: Ada"])
    send(memory, ONE, ["User: Ben"])
    second = send(memory, TWO, ["User: Ben"])
    assert texts(second, 0) == "one"
    assert "User: Ben" in texts(second, 2)


def test_the_models_answers_tell_conversations_apart_that_began_alike() -> None:
    memory = ConversationMemory()
    for name in ("Ada", "Ben"):
        memory.record(send(memory, ONE, [f"User: {name}"]), answer(f"Good morning, dear {name}"))
    for name, other in (("Ada", "Ben"), ("Ben", "Ada")):
        turns = [user("one"), assistant(f"Good morning, dear {name}"), user("two")]
        second = send(memory, turns, [f"User: {name}"])
        assert f"User: {name}" in texts(second, 0)
        assert other not in str(second)


def test_a_note_is_not_given_to_another_conversation_whose_answer_was_another() -> None:
    memory = ConversationMemory()
    memory.record(send(memory, ONE, ["User: Ada"]), answer("Good morning, dear Ada"))
    second = send(memory, TWO, ["User: Ben"])
    assert "Ada" not in str(second)


def test_a_retry_in_a_named_session_overwrites_the_last_turns_note_only() -> None:
    memory = ConversationMemory()
    first = send(memory, ONE, ["Time: 9"], session="s")
    send(memory, TWO, ["Time: 10"], session="s")
    again = send(memory, TWO, ["Time: 11"], session="s")
    third = send(memory, [*TWO, assistant("2"), user("three")], ["Time: 12"], session="s")
    assert third["messages"][:2] == first["messages"]
    assert third["messages"][:4] == again["messages"]


def test_a_later_turn_that_comes_again_is_a_retry_without_a_session_too() -> None:
    memory = ConversationMemory()
    first = send(memory, ONE, ["Time: 9"])
    send(memory, TWO, ["Time: 10"])
    again = send(memory, TWO, ["Time: 11"])
    third = send(memory, [*TWO, assistant("2"), user("three")], ["Time: 12"])
    assert third["messages"][:2] == first["messages"]
    assert third["messages"][:4] == again["messages"]
    assert "Time: 12" in texts(third, 4)


def test_a_retry_is_one_where_two_user_turns_came_at_once() -> None:
    memory = ConversationMemory()
    one = [user("one"), user("and more")]
    two = [*one, assistant("1, as you asked for it"), user("two")]
    send(memory, one, ["Time: 9"])
    send(memory, two, ["Time: 10"])
    again = send(memory, two, ["Time: 11"])
    third = send(memory, [*two, assistant("2"), user("three")], ["Time: 12"])
    assert third["messages"][:5] == again["messages"]


def test_conversations_whose_beginnings_could_not_be_told_apart_are_not_later() -> None:
    memory = ConversationMemory()
    for _ in range(2):
        for name in ("Ada", "Ben"):
            send(memory, ONE, [f"User: {name}"])
            send(memory, TWO, [f"User: {name}"])
    third = send(memory, [*TWO, assistant("2"), user("three")], ["User: Ada"])
    assert "Ben" not in str(third)


def test_many_conversations_that_begin_alike_each_keep_their_notes() -> None:
    memory = ConversationMemory(all_recorded=True)
    names = [f"client {n}" for n in range(50)]
    first = {name: send(memory, ONE, [f"User: {name}"]) for name in names}
    for name in names:
        memory.record(first[name], answer(f"Good morning, dear {name}"))
    for name in names:
        turns = [user("one"), assistant(f"Good morning, dear {name}"), user("two")]
        second = send(memory, turns, [f"User: {name}"])
        assert second["messages"][:2] == first[name]["messages"]


def test_equal_answers_to_two_notes_tell_nothing() -> None:
    memory = ConversationMemory()
    for name in ("Ada", "Ben"):
        memory.record(send(memory, ONE, [f"User: {name}"]), answer("Good morning to you"))
    second = send(memory, [user("one"), assistant("Good morning to you"), user("two")], ["User: Ben"])
    assert texts(second, 0) == "one"


def test_where_all_answers_are_recorded_an_unknown_one_is_another_conversations() -> None:
    for all_recorded in (False, True):
        memory = ConversationMemory(all_recorded=all_recorded)
        send(memory, ONE, ["User: Ada"])
        second = send(memory, TWO, ["User: Ben"])
        assert ("Ada" in str(second)) is not all_recorded


def test_a_client_that_cuts_thinking_out_of_answers_keeps_its_notes() -> None:
    memory = ConversationMemory(all_recorded=True)
    said = "It is four, as far as I can see from here."
    first = send(memory, ONE, ["Time: 9"])
    memory.record(first, answer(f"<think>two and two</think>\n\n{said}"))
    second = send(memory, [user("one"), assistant(said), user("two")], ["Time: 9"])
    assert second["messages"][:2] == first["messages"]


def test_scopes_models_sessions_and_users_know_nothing_of_each_other() -> None:
    for own, other in (
        ({"scope": "a"}, {"scope": "b"}),
        ({"session": "a"}, {"session": "b"}),
        ({"user": "a"}, {"user": "b"}),
        ({"prompt_cache_key": "a"}, {"prompt_cache_key": "b"}),
        ({"metadata": {"user_id": "a"}}, {"metadata": {"user_id": "b"}}),
    ):
        memory = ConversationMemory()
        send(memory, ONE, ["Time: 9"], **own)
        assert texts(send(memory, TWO, ["Time: 9"], **other), 0) == "one"
        assert "Time: 9" in texts(send(memory, TWO, ["Time: 9"], **own), 0)


def test_an_edited_history_is_sent_as_it_came() -> None:
    memory = ConversationMemory()
    send(memory, ONE, ["Time: 9"])
    turns = [user("one, rather"), assistant("1"), user("two")]
    second = send(memory, turns, ["Time: 9"])
    assert texts(second, 0) == "one, rather"
    assert "Time: 9" in texts(second, 2)


def test_a_conversation_keeps_the_rules_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ConversationMemory()
    send(memory, ONE, ["Time: 9"])

    def version(messages: list[Any]) -> int:
        view = view_of({"model": "m", "messages": [{"role": "system", "content": "Be brief."}, *messages]})
        assert view is not None
        return memory.open(view, scope="", session="", rules_version=2).rules_version

    monkeypatch.setattr("canon.memory.conversation.RULES_VERSIONS", frozenset({1, 2}))
    assert version(TWO) == 1
    assert version([user("new")]) == 2
    monkeypatch.setattr("canon.memory.conversation.RULES_VERSIONS", frozenset({2}))
    assert version(TWO) == 2  # nothing acts by version 1 any more


def test_a_scope_is_forgotten_as_a_whole_and_no_other() -> None:
    memory = ConversationMemory()
    first = {scope: send(memory, ONE, ["Time: 9"], scope=scope) for scope in ("a", "b")}
    assert memory.forget("a") > 0
    assert memory.forget("a") == 0
    assert send(memory, TWO, ["Time: 9"], scope="b")["messages"][:2] == first["b"]["messages"]
    assert texts(send(memory, TWO, ["Time: 9"], scope="a"), 0) == "one"
