"""Whatever JSON comes in, the answer has one of two shapes and is never a 500."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.surface.test_errors import check_shape

numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
words = st.sampled_from(
    [
        "user",
        "assistant",
        "tool",
        "system",
        "text",
        "function",
        "auto",
        "required",
        "json_schema",
        MODEL,
        "",
        "\x00",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | words | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens", "n", "max_tokens",
    "max_completion_tokens", "stream", "stream_options", "user", "metadata", "prompt_logprobs", "chat_template",
    "tokenize", "tools", "tool_choice", "parallel_tool_calls", "response_format", "logprobs", "top_logprobs",
    "chat_template_kwargs", "reasoning_effort", "add_generation_prompt", "continue_final_message", "modalities",
    "functions", "echo", "best_of", "suffix", "prompt", "messages", "unknown",
]  # fmt: skip
part = st.fixed_dictionaries({"type": words}, optional={"text": values})
message = st.fixed_dictionaries(
    {"role": words, "content": values | st.text(max_size=5) | st.lists(part, max_size=2)},
    optional={"tool_calls": values, "tool_call_id": values, "name": values},
)
bodies = st.builds(
    lambda base, extra: {**base, **extra},
    st.fixed_dictionaries(
        {"model": st.just(MODEL) | values},
        optional={"messages": st.lists(message, max_size=3), "prompt": st.text(max_size=4) | values},
    ),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
)


def check(server: Running, path: str, body: dict[str, Any]) -> None:
    response = server.http.post(path, json=body)
    if response.status_code == 200:
        streamed = response.headers["content-type"].startswith("text/event-stream")
        assert response.text.endswith("data: [DONE]\n\n") if streamed else response.json()["choices"]
        return
    assert response.status_code in (400, 404)
    check_shape(response)


quiet = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quiet
@given(bodies)
def test_any_chat_body_is_answered_or_refused_in_shape(server: Running, body: dict[str, Any]) -> None:
    check(server, "/v1/chat/completions", body)


@quiet
@given(bodies)
def test_any_completions_body_is_answered_or_refused_in_shape(server: Running, body: dict[str, Any]) -> None:
    check(server, "/v1/completions", body)


@quiet
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_shape(server: Running, raw: bytes) -> None:
    response = server.http.post("/v1/chat/completions", content=raw)
    assert response.status_code == 400
    check_shape(response)
