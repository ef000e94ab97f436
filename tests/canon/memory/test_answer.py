"""What a model produced is read alike, whole or streamed, from each API."""

from typing import Any

import pytest

from canon.memory.answer import Answer, Call, answers_in

ARGUMENTS = '{"n": 1}'
CHAT = {
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
                ],
            },
        }
    ]
}


def chunk(delta: dict[str, Any]) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk(
        {
            "tool_calls": [
                {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
            ]
        }
    ),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"n":'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}),
    {"object": "chat.completion.chunk", "choices": [], "usage": {}},
]
RESPONSE = {
    "object": "response",
    "output": [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ARGUMENTS},
    ],
}
EVENTS = [{"type": "response.created", "response": {}}, {"type": "response.completed", "response": RESPONSE}]
TOOL_USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 1}}
ANTHROPIC = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello"}, TOOL_USE]}
BLOCKS = [
    {"type": "message_start", "message": {"content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_start", "index": 1, "content_block": {**TOOL_USE, "input": {}}},
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"n"'},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": ": 1}"},
    },
    {"type": "message_stop"},
]


@pytest.mark.parametrize("response", [CHAT, CHUNKS, RESPONSE, EVENTS])
def test_chat_and_responses(response: Any) -> None:
    assert list(answers_in(response)) == [Answer("Hello", (Call("c", "f", ARGUMENTS),))]


@pytest.mark.parametrize("response", [ANTHROPIC, BLOCKS])
def test_anthropic(response: Any) -> None:
    assert list(answers_in(response)) == [Answer("Hello", (Call("c", "f", {"n": 1}),))]


def test_every_choice_is_an_answer() -> None:
    chunks = [
        {"choices": [{"index": 1, "delta": {"content": "b"}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
    ]
    assert list(answers_in(chunks)) == [Answer("a"), Answer("b")]
