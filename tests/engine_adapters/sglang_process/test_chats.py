"""Chats by the classes behind SGLang's chat route, with a stand-in for them in the child."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_adapters.base import (
    Event,
    Finished,
    GenerateRequest,
    ReasoningDelta,
    SamplingParams,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from engine_adapters.errors import ContextLengthError, EngineFailureError, InvalidRequestError
from engine_adapters.sglang_process.adapter import SGLangProcess
from engine_adapters.sglang_process.config import SGLangConfig
from engine_adapters.sglang_process.proof import PROBES, kinds_of

STAND_IN = Path(__file__).with_name("stand_in")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def as_characters(body: Mapping[str, Any]) -> list[int]:
    """What the stand-in makes of a chat where it does not drift."""
    return list(json.dumps([body["messages"], body.get("tools")]).encode())


@pytest.fixture(scope="module")
def model(tiny_model: Callable[..., Path]) -> Path:
    return tiny_model("qwen3")


Start = Callable[..., Any]


@pytest.fixture
async def start(model: Path) -> AsyncIterator[Start]:
    started: list[SGLangProcess] = []

    async def start(render: Any = as_characters, typed: Any = None, **arguments: object) -> SGLangProcess:
        config = SGLangConfig(
            Path(sys.executable),
            model,
            engine=arguments,
            environ={"PYTHONPATH": str(STAND_IN)},
            start_s=60,
            restarts=0,
        )
        started.append(await SGLangProcess.start(config, render, typed))
        return started[-1]

    yield start
    for each in started:
        await each.aclose()


def chat(
    content: str = "hi", ids: int = 5, sampling: SamplingParams | None = None, **body: Any
) -> GenerateRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **body}
    prompt = np.arange(ids, dtype=np.int32)
    return GenerateRequest(
        "rid", "chat", "m", prompt, sampling or SamplingParams(), scope="tenant a", body=body
    )


async def events_of(engine: SGLangProcess, asked: GenerateRequest) -> list[Event]:
    return [event async for event in engine.generate(asked)]


async def asked_of(engine: SGLangProcess, asked: GenerateRequest) -> dict[str, Any]:
    """What reached SGLang's chat route."""
    events = await events_of(engine, asked)
    fields = json.loads("".join(event.text for event in events if isinstance(event, TextDelta)))
    assert isinstance(fields, dict)
    return fields


async def test_where_every_probe_is_rendered_alike_chats_are_sent_as_our_ids(start: Start):
    engine = await start()
    assert engine.capabilities().chats_as_ids == tuple(PROBES)
    fields = await asked_of(engine, chat(tools=[TOOL]))
    assert fields["input_ids"] == [0, 1, 2, 3, 4]
    assert fields["messages"] == [{"role": "user", "content": "hi"}]


async def test_a_kind_of_chat_that_differs_in_one_probe_is_rendered_by_sglang_and_the_log_says_so(
    start: Start, caplog: pytest.LogCaptureFixture
):
    engine = await start(drifts=["tools"])
    assert "tools" not in engine.capabilities().chats_as_ids
    assert "input_ids" in await asked_of(engine, chat())
    assert "input_ids" not in await asked_of(engine, chat(tools=[TOOL]))
    assert any(
        "tools: probe 0 differs" in line.message for line in caplog.records if line.levelname == "WARNING"
    )


async def test_what_only_one_side_refuses_is_not_proved(start: Start):
    engine = await start(refused=["continue_final_message"])
    assert "continued" not in engine.capabilities().chats_as_ids
    both = await start(
        render=lambda body: None if "tools" in body else as_characters(body), refused=["tools"]
    )
    assert "tools" in both.capabilities().chats_as_ids  # of its other probes


async def test_nothing_is_proved_where_nothing_was_compared(start: Start):
    engine = await start(render=None)
    assert engine.capabilities().chats_as_ids == ()
    assert "input_ids" not in await asked_of(engine, chat())


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "low"},
        {"chat_template_kwargs": {"enable_thinking": True, "mood": "bright"}},
        {"messages": [{"role": "user", "name": "Ann", "content": "hi"}]},
        {"messages": [{"role": "developer", "content": "hi"}]},
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]},
        {"messages": [{"role": "user", "content": None}]},
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "[]"}}],
                },
                {"role": "user", "content": "hi"},
            ]
        },
        {"messages": [{"role": "assistant", "content": "hi", "reasoning_content": "hm"}]},
    ],
)
async def test_what_no_probe_has_is_never_sent_as_ids(start: Start, more: dict[str, Any]):
    assert "input_ids" not in await asked_of(await start(), chat(**more))


@pytest.mark.parametrize("kind", PROBES)
def test_each_probe_is_of_its_kind(kind: str):
    assert all(kind in kinds_of(body) and "other" not in kinds_of(body) for body in PROBES[kind])


async def test_a_turn_left_closed_needs_our_own_rendering(start: Start):
    proved, unproved = await start(), await start(render=None)
    assert "input_ids" in await asked_of(proved, chat(add_generation_prompt=False))
    with pytest.raises(InvalidRequestError) as refused:
        await events_of(unproved, chat(add_generation_prompt=False))
    assert refused.value.param == "add_generation_prompt"


async def test_special_tokens_that_would_act_are_refused_with_their_place(start: Start):
    def typed(body: Mapping[str, Any]) -> str | None:
        return "messages[0].content" if "<|im_end|>" in body["messages"][0]["content"] else None

    engine = await start(drifts=["tools"], typed=typed)
    assert "input_ids" in await asked_of(engine, chat("<|im_end|>"))  # text there
    assert await asked_of(engine, chat(tools=[TOOL]))
    with pytest.raises(InvalidRequestError) as refused:
        await events_of(engine, chat("<|im_end|>", tools=[TOOL]))
    assert refused.value.param == "messages[0].content"


async def test_only_fields_of_a_chat_reach_the_engine_and_its_cache_is_the_tenants(start: Start):
    hostile = {"lora_path": "/x", "cache_salt": "other", "custom_logit_processor": "code", "extra_key": "k"}
    more = {
        "rid": "another",
        "input_ids": [9],
        "return_hidden_states": True,
        "temperature": 0.5,
        "seed": None,
    }
    fields = await asked_of(await start(), chat(**hostile, **more))
    assert fields["cache_salt"] == "tenant a"
    assert fields["rid"] == "rid"
    assert fields["input_ids"] == [0, 1, 2, 3, 4]
    assert fields["temperature"] == 0.5
    assert not {"lora_path", "custom_logit_processor", "extra_key", "return_hidden_states", "seed"} & set(
        fields
    )


async def test_a_limit_is_what_the_client_asked_for_within_the_context(start: Start):
    engine = await start()
    assert "max_completion_tokens" not in await asked_of(engine, chat(sampling=SamplingParams(max_tokens=59)))
    asked = chat(sampling=SamplingParams(max_tokens=40), ids=50, max_tokens=40)
    assert (await asked_of(engine, asked))["max_completion_tokens"] == 13
    with pytest.raises(ContextLengthError):
        await events_of(engine, chat(ids=63))


async def test_the_smallest_nucleus_is_the_most_likely_token(start: Start):
    sampling = SamplingParams(top_p=1.0, top_k=1)
    fields = await asked_of(await start(), chat(sampling=sampling, top_p=0))
    assert (fields["top_p"], fields["top_k"]) == (1.0, 1)


async def test_thinking_calls_finish_and_tiers_come_out(start: Start):
    events = await events_of(await start(), chat(tools=[TOOL], tool_choice="required"))
    assert events[0] == ReasoningDelta(0, "hm")
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert calls == [ToolCallDelta(0, 0, "", "call_7", "look"), ToolCallDelta(0, 0, '{"q": 1}')]
    assert Finished(0, "tool_calls") in events
    usage = events[-1]
    assert isinstance(usage, Usage)
    assert (usage.prompt_tokens, usage.completion_tokens) == (9, 4)
    assert (usage.reuse.reused, usage.reuse.by_tier) == (3, {"device": 2, "host": 1})


async def test_log_probabilities_keep_their_bytes(start: Start):
    events = await events_of(await start(), chat(logprobs=True, top_logprobs=1))
    (one,) = [each for event in events if isinstance(event, TextDelta) for each in event.logprobs]
    assert (one.token, one.raw, one.logprob, len(one.top)) == ("é", b"\xc3\xa9", -0.5, 1)


async def test_a_stop_string_is_named(start: Start):
    assert Finished(0, "stop", "\n") in await events_of(await start(), chat())


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("refuse", InvalidRequestError, "not like this"),
        ("break", EngineFailureError, "broken inside"),
        ("cut", EngineFailureError, "without its usage"),
    ],
)
async def test_what_fails_is_an_error_and_the_next_chat_is_answered(
    start: Start, content: str, error: type[Exception], words: str
):
    engine = await start()
    with pytest.raises(error, match=words):
        await events_of(engine, chat(content))
    assert (await events_of(engine, chat()))[-1].prompt_tokens == 9
    assert (await engine.counters())["failed_requests"] == 1


async def test_who_stops_reading_a_chat_ends_it_in_the_engine(start: Start):
    engine = await start()
    stream = engine.generate(chat("forever"))
    await anext(stream)
    await stream.aclose()
    assert (await engine._child.call("state"))["states"] == [{"aborted": ["rid"]}]


async def test_the_parser_of_calls_is_the_operators_or_what_sglang_finds(start: Start):
    assert (await start()).capabilities().tool_parser == "found"
    assert (await start(tool_call_parser="qwen")).capabilities().tool_parser == "qwen"
    assert (await start(tool_call_parser=None)).capabilities().tool_parser is None
