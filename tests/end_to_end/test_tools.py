"""Tools through the SDK, over a model whose template renders them; forced calls make a random model call."""

import json

import openai
import pytest

from tests.end_to_end.conftest import Serving

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "colour": {"enum": ["red", "blue"]},
                    "size": {"type": "integer", "maximum": 9},
                },
                "required": ["colour", "size"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("paint", "mix")
]


def ask(client: openai.OpenAI, **options: object) -> object:
    messages = [{"role": "user", "content": "Paint it."}]
    options = {"tools": TOOLS, "max_tokens": 400, "seed": 3, "parallel_tool_calls": False} | options
    return client.chat.completions.create(  # type: ignore[call-overload]
        model=client.models.list().data[0].id, messages=messages, **options
    )


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "mix"}}])
def test_a_forced_call_is_made_and_its_arguments_fit_the_schema(
    tiny_with_tools: Serving, choice: object
) -> None:
    answer = ask(tiny_with_tools.client(), tool_choice=choice).choices[0]  # type: ignore[attr-defined]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls
    assert call.id.startswith("call_")
    assert call.function.name in ("paint", "mix") if choice == "required" else call.function.name == "mix"
    arguments = json.loads(call.function.arguments)
    assert list(arguments) == ["colour", "size"]
    assert arguments["colour"] in ("red", "blue")
    assert arguments["size"] <= 9


def test_a_streamed_call_adds_up_to_the_whole_one(tiny_with_tools: Serving) -> None:
    client = tiny_with_tools.client()
    whole = ask(client, tool_choice="required").choices[0].message.tool_calls[0]  # type: ignore[attr-defined]
    name, arguments, ids = "", "", set()
    for chunk in ask(client, tool_choice="required", stream=True):  # type: ignore[attr-defined]
        for delta in chunk.choices[0].delta.tool_calls or []:
            name += delta.function.name or ""
            arguments += delta.function.arguments or ""
            ids |= {delta.id} - {None}
    assert (name, arguments) == (whole.function.name, whole.function.arguments)
    assert len(ids) == 1


def test_with_choice_none_the_tools_stay_in_the_prompt_and_nothing_is_called(
    tiny_with_tools: Serving,
) -> None:
    client = tiny_with_tools.client()
    forced = ask(client, tool_choice="required")
    free = ask(client, tool_choice="none", max_tokens=5)
    assert free.choices[0].message.tool_calls is None  # type: ignore[attr-defined]
    assert free.usage.prompt_tokens == forced.usage.prompt_tokens  # type: ignore[attr-defined]
    assert free.usage.prompt_tokens_details.cached_tokens > 0  # type: ignore[attr-defined]
