"""One choice on its way to the client: what is shown, and how it ends."""

from typing import Any

import numpy as np
import pytest

from engine_adapters.base import (
    Finished,
    GenerateRequest,
    ReasoningDelta,
    SamplingParams,
    TextDelta,
    ToolCallDelta,
    ToolOptions,
)
from engine_adapters.embedded.choice import Choice
from engine_adapters.embedded.job import Output
from engine_adapters.embedded.model_family import ModelFamily
from tests.output_tokenizers import byte_tokenizer

CALLS = "{% if tools %}<tool_call></tool_call>{% endif %}"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def family(template: str) -> ModelFamily:
    return ModelFamily(template, byte_tokenizer(["<tool_call>", "</tool_call>"]))


def request(tools: ToolOptions | None = None, route: Any = "chat") -> GenerateRequest:
    return GenerateRequest("r", route, "m", np.zeros(1, dtype=np.int32), SamplingParams(), tools=tools)


def choice(template: str, tools: ToolOptions | None = None) -> Choice:
    return Choice(family(template).pipeline(request(tools), 0))


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_complete_single_call_ends_with_tool_calls_however_the_engine_went_on(reason: Any) -> None:
    one = choice(CALLS, ToolOptions((TOOL,), parallel=False))
    events = one.take(Output(0, CALL, 20))
    assert one.complete
    events += one.take(Output(0, "and more that", 3))
    events += one.take(Output(0, " nobody sees", 3, finish=reason))
    assert not one.complete
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallDelta)) == '{"a": 1}'
    assert not any(isinstance(e, TextDelta) for e in events)
    assert events[-1] == Finished(0, "tool_calls")


def test_a_call_that_was_cut_off_ends_with_length() -> None:
    one = choice(CALLS, ToolOptions((TOOL,)))
    events = one.take(Output(0, CALL[:30], 10))
    events += one.take(Output(0, "", 1, finish="length"))
    assert events[-1] == Finished(0, "length")


def test_reasoning_tokens_are_those_of_thinking_alone() -> None:
    one = choice("<think></think>")
    parts = [("<think>", 1), ("hm", 1), (" well", 1), ("</think>", 1), ("yes", 1)]
    events = [event for text, tokens in parts for event in one.take(Output(0, text, tokens))]
    events += one.take(Output(0, "", 1, finish="stop"))
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "hm well"
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "yes"
    assert one.can_think
    assert one.reasoning_tokens == 4


def test_only_chats_of_models_that_think_can_think() -> None:
    assert not Choice(family("<think></think>").pipeline(request(route="completions"), 0)).can_think
    assert not choice(CALLS).can_think


@pytest.mark.parametrize(
    ("tools", "visible"),
    [
        (None, set()),
        (ToolOptions((TOOL,)), {"<tool_call>", "</tool_call>"}),
        (ToolOptions((TOOL,), "none"), set()),
        (ToolOptions((TOOL,), "none", named=True), {"<tool_call>", "</tool_call>"}),
    ],
)
def test_control_tokens_of_calls_are_visible_only_where_calls_are_read(
    tools: ToolOptions | None, visible: set[str]
) -> None:
    assert set(family(CALLS).visible_tokens(request(tools))) == visible
