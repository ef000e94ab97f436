"""Every kind of body shows its texts by role, and hides what has no shape of a text."""

from typing import Any

import pytest

from canon.requests import view_of
from canon.requests.view import RequestView


def view(body: dict[str, Any]) -> RequestView:
    found = view_of(body)
    assert found
    return found


def shown(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(slot.role, slot.text) for slot in view(body).texts()]


def text(kind: str, words: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "text": words, **more}


IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}


CHAT = {
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [text("text", "d"), IMAGE, text("text", "e")]},
        {"role": "user", "content": [IMAGE, text("text", "u")]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}], "reasoning_content": "r"},
        {"role": "tool", "tool_call_id": "1", "content": "t"},
        {"role": "system", "content": "late"},
    ]
}


def test_chat() -> None:
    assert view(CHAT).kind == "chat"
    assert [slot.text for slot in view(CHAT).system_texts()] == ["s", "d", "e"]
    assert shown(CHAT) == [
        ("system", "s"),
        ("system", "d"),
        ("system", "e"),
        ("user", "u"),
        ("tool", "t"),
        ("system", "late"),
    ]
    assert [slot.text for slot in view(CHAT).tool_results()] == ["t"]
    assert view(CHAT).newest_turn() == ("messages", 4)


MESSAGES = {
    "system": [text("text", "s", cache_control={"type": "ephemeral"}), text("text", "r")],
    "messages": [
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "x"}, text("text", "a"), {"type": "tool_use"}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "t"},
                {"type": "tool_result", "tool_use_id": "2", "content": [text("text", "p"), IMAGE]},
                text("text", "v"),
            ],
        },
    ],
}


def test_anthropic_messages() -> None:
    assert view(MESSAGES).kind == "messages"
    assert [slot.path for slot in view(MESSAGES).system_texts()] == [
        ("system", 0, "text"),
        ("system", 1, "text"),
    ]
    assert shown(MESSAGES) == [
        ("system", "s"),
        ("system", "r"),
        ("user", "u"),
        ("assistant", "a"),
        ("tool", "t"),
        ("tool", "p"),
        ("user", "v"),
    ]
    assert [slot.path for slot in view(MESSAGES).tool_results()] == [
        ("messages", 2, "content", 0, "content"),
        ("messages", 2, "content", 1, "content", 0, "text"),
    ]
    assert view(MESSAGES).newest_turn() == ("messages", 2)


@pytest.mark.parametrize(
    "body",
    [
        {"system": "s", "messages": []},
        {"messages": [], "tools": [{"name": "t", "input_schema": {}}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
    ],
)
def test_anthropic_messages_are_known_by_what_only_they_have(body: dict[str, Any]) -> None:
    assert view(body).kind == "messages"


RESPONSES = {
    "instructions": "s",
    "input": [
        {"role": "developer", "content": [text("input_text", "d")]},
        {"type": "message", "role": "user", "content": "u"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "t"},
        {"type": "message", "role": "assistant", "content": [text("output_text", "a", annotations=[])]},
        {"type": "item_reference", "id": "x"},
    ],
}


def test_responses() -> None:
    assert view(RESPONSES).kind == "responses"
    assert [slot.text for slot in view(RESPONSES).system_texts()] == ["s", "d"]
    assert shown(RESPONSES) == [
        ("system", "s"),
        ("system", "d"),
        ("user", "u"),
        ("tool", "t"),
        ("assistant", "a"),
    ]
    assert view(RESPONSES).newest_turn() == ("input", 4)
    assert shown({"input": "u"}) == [("user", "u")]
    assert view({"input": "u"}).newest_turn() == ("input",)


def test_completions_show_texts_and_let_nothing_be_edited() -> None:
    for prompt, texts in (("p", ["p"]), (["p", "q"], ["p", "q"]), ([1, 2], []), ([[1], [2]], [])):
        body = {"prompt": prompt}
        assert [slot.text for slot in view(body).texts()] == texts
        assert not view(body).system_texts()
        assert view(body).newest_turn() is None


@pytest.mark.parametrize(
    "body", [None, [], "text", 1, {}, {"messages": "x"}, {"messages": {}}, {"prompt": None}, {"input": 1}]
)
def test_what_is_no_request_has_no_view(body: Any) -> None:
    assert view_of(body) is None


ODD: list[Any] = [None, 1, "x", [], {}, [[]], {"role": []}, {"role": "user"}, {"role": "user", "content": 1}]
ODD += [{"role": "user", "content": [None, 1, {"type": []}, {"type": "text"}, {"type": "text", "text": 1}]}]
ODD += [
    {"role": "user", "content": [{"type": "tool_result", "content": value}]} for value in (None, 1, [1], {})
]
ODD += [{"type": []}, {"type": "function_call_output", "output": 1}, {"type": "message", "role": 1}]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": ODD},
        {"messages": ODD, "system": [1, None, {}]},
        {"input": ODD, "instructions": {}},
        {"prompt": ODD},
    ],
)
def test_odd_shapes_are_not_shown(body: dict[str, Any]) -> None:
    assert [slot.text for slot in view({**body, "tools": 1}).texts()] == (["x"] if "prompt" in body else [])
    assert not view(body).tool_results()
    assert not view({**body, "tools": {}}).tools()
    view(body).system_texts()
    view(body).newest_turn()
