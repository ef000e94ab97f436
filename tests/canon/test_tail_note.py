from typing import Any

import pytest

import canon
from canon.requests import view_of
from canon.tail_note import carrier, compose, with_note

CLOCK = "Current time: 10:31:07"
PROSE = "You are the help desk of a bicycle shop."
NOTE = f"[context]\n{CLOCK}\n[/context]"
SYSTEM = {"role": "system", "content": f"{CLOCK}\n{PROSE}"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}


def turns(*messages: Any) -> list[Any]:
    sent: list[Any] = canon.canonicalize({"messages": [SYSTEM, *messages]}, "full").body["messages"][1:]
    return sent


def test_the_note_is_short_and_carries_texts_word_for_word():
    assert compose(["a: 1", "\nb\n\nc\n"]) == "[context]\na: 1\nb\n\nc\n[/context]"


def test_a_user_text_stays_the_beginning_of_its_turn():
    assert turns({"role": "user", "content": "hi "})[-1]["content"] == f"hi \n\n{NOTE}"


def test_a_user_turn_of_parts_gets_one_more():
    content = [{"type": "text", "text": "what is this?"}, IMAGE]
    sent = turns({"role": "user", "content": content})[-1]["content"]
    assert sent == [*content, {"type": "text", "text": NOTE}]


def test_in_a_tool_loop_the_note_is_a_part_of_its_own_behind_the_newest_result():
    question = {"role": "user", "content": "how many?"}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": ""}}],
    }
    result = {"role": "tool", "tool_call_id": "c", "content": "4"}
    sent = turns(question, call, result)
    assert sent[:2] == [question, call]
    assert sent[2]["content"] == [{"type": "text", "text": "4"}, {"type": "text", "text": NOTE}]


def test_an_answer_that_is_begun_stays_last():
    begun = {"role": "assistant", "content": "It is"}
    sent = turns({"role": "user", "content": "hi"}, begun)
    assert sent == [{"role": "user", "content": f"hi\n\n{NOTE}"}, begun]


@pytest.mark.parametrize(
    ("body", "newest"),
    [
        ({"instructions": SYSTEM["content"], "input": "hi"}, f"hi\n\n{NOTE}"),
        (
            {
                "instructions": SYSTEM["content"],
                "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
            },
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}, {"type": "input_text", "text": NOTE}],
            },
        ),
        (
            {
                "instructions": SYSTEM["content"],
                "input": [
                    {"role": "user", "content": "hi"},
                    {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": "4"},
                ],
            },
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": NOTE}],
            },
        ),
    ],
)
def test_responses_bodies_carry_it_in_their_own_form(body: dict[str, Any], newest: Any):
    sent = canon.canonicalize(body, "full").body
    assert sent["instructions"] == PROSE
    assert (sent["input"] if isinstance(sent["input"], str) else sent["input"][-1]) == newest


def test_anthropic_tool_results_are_followed_by_it():
    result = {"type": "tool_result", "tool_use_id": "c", "content": "4"}
    body = {"system": SYSTEM["content"], "messages": [{"role": "user", "content": [result]}]}
    sent = canon.canonicalize(body, "full").body
    assert sent["messages"][-1]["content"] == [result, {"type": "text", "text": NOTE}]


@pytest.mark.parametrize("item", [None, 7, {"role": "user"}, {"role": "user", "content": 7}, []])
def test_an_item_of_another_shape_carries_nothing(item: Any):
    assert with_note(item, NOTE) is None
    view = view_of({"messages": [item]})
    assert view is not None
    assert carrier(view) is None


def test_values_stay_where_nothing_can_carry_them():
    body = {"messages": [SYSTEM, {"role": "user", "content": None}]}
    assert canon.canonicalize(body, "full").body == body
