"""Chat completions as the official SDK sees them."""

from typing import Any

import openai
import pytest

from engine_adapters.base import Finished, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL, events, reuse, usage_of

USER = [{"role": "user", "content": "Hi"}]


def tool(name: str = "lookup") -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def test_a_whole_answer_has_text_reason_and_usage(server: Running) -> None:
    answer = server.sdk.chat.completions.create(model=MODEL, messages=USER)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("user: Hi\n")
    assert answer.usage.completion_tokens == 2
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 2
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_a_stream_has_role_text_and_one_finish(server: Running) -> None:
    chunks = list(server.sdk.chat.completions.create(model=MODEL, messages=USER, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_the_async_sdk_streams_and_does_not(server: Running) -> None:
    async with server.async_sdk as sdk:
        answer = await sdk.chat.completions.create(model=MODEL, messages=USER)
        assert answer.choices[0].message.content == "Hello world"
        stream = await sdk.chat.completions.create(model=MODEL, messages=USER, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == "Hello world"


def test_usage_comes_last_in_a_stream_when_asked_for(server: Running) -> None:
    chunks = list(
        server.sdk.chat.completions.create(
            model=MODEL, messages=USER, stream=True, stream_options={"include_usage": True}
        )
    )
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("report", "cached"),
    [(reuse(48), 48), (reuse(None, "not_reported"), None), (reuse(9999, "inconsistent"), None)],
)
def test_cached_tokens_are_what_the_engine_reported_and_absent_where_it_did_not(
    server: Running, report, cached
) -> None:
    server.engine.script = events(TextDelta(0, "x"), Finished(0, "stop"), Usage(50, 1, report))
    usage = server.http.post("/v1/chat/completions", json={"model": MODEL, "messages": USER}).json()["usage"]
    if cached is None:
        assert "prompt_tokens_details" not in usage
    else:
        assert usage["prompt_tokens_details"] == {"cached_tokens": cached}


def test_reasoning_is_apart_from_content(server: Running) -> None:
    async def script(request):
        yield ReasoningDelta(0, "let me ")
        yield ReasoningDelta(0, "think")
        yield TextDelta(0, "42")
        yield Finished(0, "stop")
        yield Usage(len(request.prompt_ids), 5, reuse(), reasoning_tokens=3)

    server.engine.script = script
    answer = server.sdk.chat.completions.create(model=MODEL, messages=USER)
    assert answer.choices[0].message.content == "42"
    assert answer.choices[0].message.reasoning_content == "let me think"
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3
    chunks = list(server.sdk.chat.completions.create(model=MODEL, messages=USER, stream=True))
    thoughts = [getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks]
    assert "".join(thoughts) == "let me think"


def two_calls(request):
    return events(
        ToolCallDelta(0, 0, "", id="call_a", name="lookup"),
        ToolCallDelta(0, 0, '{"q": '),
        ToolCallDelta(0, 0, '"x"}'),
        ToolCallDelta(0, 1, "{}", id="call_b", name="clock"),
        Finished(0, "tool_calls"),
        usage_of(request),
    )(request)


def test_tool_calls_come_whole_with_null_content(server: Running) -> None:
    server.engine.script = two_calls
    answer = server.sdk.chat.completions.create(
        model=MODEL, messages=USER, tools=[tool(), tool("clock")], parallel_tool_calls=True
    )
    choice = answer.choices[0]
    assert choice.message.content is None
    assert choice.finish_reason == "tool_calls"
    assert [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls] == [
        ("call_a", "lookup", '{"q": "x"}'),
        ("call_b", "clock", "{}"),
    ]


def test_tool_calls_stream_as_deltas_the_sdk_can_put_together(server: Running) -> None:
    server.engine.script = two_calls
    with server.sdk.chat.completions.stream(
        model=MODEL, messages=USER, tools=[tool(), tool("clock")]
    ) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert message.content is None
    assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls] == [
        ("call_a", "lookup", '{"q": "x"}'),
        ("call_b", "clock", "{}"),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_choices_interleave_by_index(server: Running, stream: bool) -> None:
    answer = server.sdk.chat.completions.create(model=MODEL, messages=USER, n=3, stream=stream)
    if not stream:
        assert [(c.index, c.message.content) for c in answer.choices] == [
            (i, "Hello world") for i in range(3)
        ]
        return
    texts = {0: "", 1: "", 2: ""}
    roles = []
    for chunk in answer:
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        roles += [choice.index] if choice.delta.role else []
    assert set(texts.values()) == {"Hello world"}
    assert sorted(roles) == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_have_bytes_and_alternatives(server: Running, stream: bool) -> None:
    answer = server.sdk.chat.completions.create(
        model=MODEL, messages=USER, logprobs=True, top_logprobs=2, stream=stream
    )
    if stream:
        found = [e for c in answer if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    else:
        found = answer.choices[0].logprobs.content
    assert [entry.token for entry in found] == ["Hello", " world"]
    assert found[0].bytes == list(b"Hello")
    assert [(top.token, top.logprob) for top in found[0].top_logprobs] == [("Hello", -0.5), ("x", -2.0)]


def test_every_field_reaches_the_engine(server: Running) -> None:
    server.sdk.chat.completions.create(
        model=MODEL,
        messages=USER,
        temperature=0.3,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        logit_bias={"7": -100},
        seed=11,
        stop=["\n\n", "END"],
        max_completion_tokens=17,
        user="someone",
        metadata={"run": "1"},
        tools=[tool()],
        tool_choice={"type": "function", "function": {"name": "lookup"}},
        parallel_tool_calls=False,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "out", "strict": True, "schema": {"type": "object", "properties": {}}},
        },
        extra_body={
            "top_k": 40,
            "min_p": 0.05,
            "repetition_penalty": 1.1,
            "stop_token_ids": [3, 4],
            "ignore_eos": True,
            "chat_template_kwargs": {"enable_thinking": True},
        },
    )
    (request,) = server.engine.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.3, 0.9, 40, 0.05)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, -0.2)
    assert (sampling.repetition_penalty, sampling.logit_bias, sampling.seed) == (1.1, {7: -100.0}, 11)
    assert (sampling.stop, sampling.stop_token_ids) == (("\n\n", "END"), (3, 4))
    assert (sampling.max_tokens, sampling.ignore_eos, sampling.logprobs) == (17, True, None)
    assert sampling.grammar.kind == "json_schema"
    assert sampling.grammar.schema == '{"type":"object","properties":{}}'
    assert (request.tools.choice, request.tools.named, request.tools.parallel) == ("lookup", True, False)
    assert request.starts_in_reasoning
    assert server.prompts.seen[0]["kwargs"] == {"enable_thinking": True}


@pytest.mark.parametrize(
    ("choice", "asked", "parallel"),
    [
        ("auto", None, True),
        ("auto", False, False),
        ("required", True, True),
        ({"type": "function", "function": {"name": "lookup"}}, True, False),
    ],
)
def test_a_named_function_is_called_once_and_others_as_the_client_says(
    server: Running, choice: Any, asked: bool | None, parallel: bool
) -> None:
    server.sdk.chat.completions.create(
        model=MODEL, messages=USER, tools=[tool()], tool_choice=choice, parallel_tool_calls=asked
    )
    (request,) = server.engine.requests
    assert request.tools.parallel is parallel


def test_max_tokens_never_passes_the_context(server: Running) -> None:
    server.sdk.chat.completions.create(model=MODEL, messages=USER, max_tokens=10**12)
    (request,) = server.engine.requests
    assert request.sampling.max_tokens == server.engine.capabilities().context_length - len(
        request.prompt_ids
    )


def test_a_last_assistant_message_can_be_continued(server: Running) -> None:
    messages = [*USER, {"role": "assistant", "content": "It is"}]
    body = {"model": MODEL, "messages": messages, "continue_final_message": True}
    assert server.http.post("/v1/chat/completions", json=body).status_code == 200
    assert server.prompts.seen[0]["continues"] is True
    assert server.prompts.seen[0]["opens"] is False


def test_sdk_errors_are_typed(server: Running) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        server.sdk.chat.completions.create(model="nope", messages=USER)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        server.sdk.chat.completions.create(model=MODEL, messages=[])
    assert wrong.value.param == "messages"
    assert wrong.value.request_id
