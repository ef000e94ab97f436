"""Every refusal has one shape, the right status, and names the field at fault."""

import re
from typing import Any

import httpx
import pytest

from engine_adapters.base import Health
from engine_adapters.errors import (
    ContextLengthError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    InvalidRequestError,
)
from gateway.settings import GatewaySettings
from tests.gateway.running_server import Running, running
from tests.gateway.scripted_engine import CONTEXT, MODEL

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}


def check_shape(response: httpx.Response) -> dict[str, Any]:
    """The error object, after everything that holds for every error was checked."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    assert isinstance(body["error"]["type"], str)
    assert response.headers["x-request-id"]
    assert response.headers["content-type"] == "application/json"
    return body["error"]


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [USER], **fields}


def with_message(message: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [USER, message]}


def schema_format(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": fields}


def assistant_calling(function: Any) -> dict[str, Any]:
    return with_message(
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
    )


CHAT_REFUSALS: list[tuple[str, dict[str, Any], str | None]] = [
    ("no model", {"messages": [USER]}, "model"),
    ("model is a number", chat(model=3), "model"),
    ("no messages", {"model": MODEL}, "messages"),
    ("empty messages", chat(messages=[]), "messages"),
    ("messages is a string", chat(messages="Hi"), "messages"),
    ("a message is a string", with_message("Hi"), "messages[1]"),
    ("no role", with_message({"content": "Hi"}), "messages[1].role"),
    ("unknown role", with_message({"role": "wizard", "content": "x"}), "messages[1].role"),
    ("role is a list", with_message({"role": ["user"], "content": "x"}), "messages[1].role"),
    ("role is null", with_message({"role": None, "content": "x"}), "messages[1].role"),
    ("content is a number", with_message({"role": "user", "content": 3}), "messages[1].content"),
    ("content is null", with_message({"role": "user", "content": None}), "messages[1].content"),
    ("no content", with_message({"role": "user"}), "messages[1].content"),
    ("a part is a string", with_message({"role": "user", "content": ["x"]}), "messages[1].content[0]"),
    (
        "a part without text",
        with_message({"role": "user", "content": [{"type": "text"}]}),
        "messages[1].content[0].text",
    ),
    (
        "an image",
        with_message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        "messages[1].content[0].type",
    ),
    (
        "audio",
        with_message({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}),
        "messages[1].content[0].type",
    ),
    ("an assistant says nothing", with_message({"role": "assistant"}), "messages[1]"),
    ("tool call without a function", assistant_calling(None), "messages[1].tool_calls[0].function"),
    (
        "tool call arguments are an object",
        assistant_calling({"name": "f", "arguments": {}}),
        "messages[1].tool_calls[0].function.arguments",
    ),
    ("tool result without an id", with_message({"role": "tool", "content": "x"}), "messages[1].tool_call_id"),
    (
        "the template takes no tool role",
        with_message({"role": "tool", "content": "x", "tool_call_id": "a"}),
        "messages[1].role",
    ),
    ("temperature is text", chat(temperature="hot"), "temperature"),
    ("temperature is negative", chat(temperature=-0.1), "temperature"),
    ("temperature is too high", chat(temperature=2.1), "temperature"),
    ("temperature is true", chat(temperature=True), "temperature"),
    ("top_p above 1", chat(top_p=1.5), "top_p"),
    ("top_k below -1", chat(top_k=-2), "top_k"),
    ("min_p above 1", chat(min_p=1.5), "min_p"),
    ("presence_penalty", chat(presence_penalty=2.5), "presence_penalty"),
    ("frequency_penalty", chat(frequency_penalty=-2.5), "frequency_penalty"),
    ("repetition_penalty", chat(repetition_penalty=0), "repetition_penalty"),
    ("repetition_penalty that no float32 holds", chat(repetition_penalty=1e-45), "repetition_penalty"),
    ("logit_bias is a list", chat(logit_bias=[]), "logit_bias"),
    ("logit_bias with a word", chat(logit_bias={"cat": 1}), "logit_bias"),
    ("logit_bias too strong", chat(logit_bias={"3": 101}), "logit_bias"),
    ("seed is a float", chat(seed=1.5), "seed"),
    ("seed is too long", chat(seed=10**30), "seed"),
    ("stop is a number", chat(stop=3), "stop"),
    ("stop holds a number", chat(stop=["a", 3]), "stop"),
    ("stop is empty", chat(stop=""), "stop"),
    ("too many stops", chat(stop=["a"] * 17), "stop"),
    ("stop_token_ids", chat(stop_token_ids=[1, "2"]), "stop_token_ids[1]"),
    ("n is 0", chat(n=0), "n"),
    ("n is too big", chat(n=10**6), "n"),
    ("max_tokens is 0", chat(max_tokens=0), "max_tokens"),
    ("max_tokens is a float", chat(max_tokens=1.5), "max_tokens"),
    ("max_completion_tokens is text", chat(max_completion_tokens="9"), "max_completion_tokens"),
    ("logprobs is a number", chat(logprobs=3), "logprobs"),
    ("top_logprobs above 20", chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    ("top_logprobs alone", chat(top_logprobs=2), "top_logprobs"),
    ("prompt_logprobs", chat(prompt_logprobs=1), "prompt_logprobs"),
    ("stream is text", chat(stream="yes"), "stream"),
    ("stream_options without stream", chat(stream_options={"include_usage": True}), "stream_options"),
    (
        "include_usage is text",
        chat(stream=True, stream_options={"include_usage": "y"}),
        "stream_options.include_usage",
    ),
    ("tools is an object", chat(tools={}), "tools"),
    ("a tool of another type", chat(tools=[{"type": "web_search"}]), "tools[0].type"),
    ("a tool without a function", chat(tools=[{"type": "function"}]), "tools[0].function"),
    (
        "a tool's name has spaces",
        chat(tools=[{"type": "function", "function": {"name": "a b"}}]),
        "tools[0].function.name",
    ),
    (
        "a tool's parameters are text",
        chat(tools=[{"type": "function", "function": {"name": "f", "parameters": "x"}}]),
        "tools[0].function.parameters",
    ),
    ("unknown tool_choice", chat(tools=[TOOL], tool_choice="maybe"), "tool_choice"),
    ("tool_choice is a list", chat(tools=[TOOL], tool_choice=[]), "tool_choice"),
    ("required without tools", chat(tool_choice="required"), "tool_choice"),
    (
        "tool_choice names no tool",
        chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}}),
        "tool_choice.function.name",
    ),
    ("parallel_tool_calls", chat(tools=[TOOL], parallel_tool_calls=1), "parallel_tool_calls"),
    ("response_format of another type", chat(response_format={"type": "xml"}), "response_format.type"),
    (
        "json_schema missing",
        chat(response_format={"type": "json_schema"}),
        "response_format.json_schema.schema",
    ),
    ("schema missing", chat(response_format=schema_format(name="x")), "response_format.json_schema.schema"),
    (
        "schema is text",
        chat(response_format=schema_format(name="x", schema="{}")),
        "response_format.json_schema.schema",
    ),
    ("chat_template", chat(chat_template="{{ 1 }}"), "chat_template"),
    ("tokenize", chat(tokenize=False), "tokenize"),
    ("trust_remote_code", chat(trust_remote_code=True), "trust_remote_code"),
    (
        "chat_template in kwargs",
        chat(chat_template_kwargs={"chat_template": "x"}),
        "chat_template_kwargs.chat_template",
    ),
    ("messages in kwargs", chat(chat_template_kwargs={"messages": []}), "chat_template_kwargs.messages"),
    ("audio answers", chat(modalities=["text", "audio"]), "modalities"),
    ("functions", chat(functions=[]), "functions"),
    ("continue a user message", chat(continue_final_message=True), "continue_final_message"),
]

COMPLETIONS_REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("no prompt", {}, "prompt"),
    ("prompt is null", {"prompt": None}, "prompt"),
    ("prompt is a number", {"prompt": 3}, "prompt"),
    ("prompt is an object", {"prompt": {}}, "prompt"),
    ("prompt is an empty list", {"prompt": []}, "prompt"),
    ("prompt is empty", {"prompt": ""}, "prompt"),
    ("second prompt is empty", {"prompt": ["a", ""]}, "prompt[1]"),
    ("mixed prompts", {"prompt": ["a", 3]}, "prompt[1]"),
    ("ids with text", {"prompt": [1, "a"]}, "prompt[1]"),
    ("negative id", {"prompt": [1, -1]}, "prompt[1]"),
    ("huge id", {"prompt": [2**31]}, "prompt[0]"),
    ("ids with a float", {"prompt": [1, 1.5]}, "prompt[1]"),
    ("ids with true", {"prompt": [1, True]}, "prompt[1]"),
    ("batch with an empty list", {"prompt": [[1], []]}, "prompt[1]"),
    ("batch with text", {"prompt": [[1], ["a"]]}, "prompt[1][0]"),
    ("logprobs above 5", {"prompt": "a", "logprobs": 6}, "logprobs"),
    ("logprobs is true", {"prompt": "a", "logprobs": True}, "logprobs"),
    ("best_of other than n", {"prompt": "a", "best_of": 2}, "best_of"),
    ("suffix", {"prompt": "a", "suffix": "z"}, "suffix"),
    ("echo with logprobs", {"prompt": "a", "echo": True, "logprobs": 1}, "logprobs"),
    ("too many choices", {"prompt": ["a"] * 100, "n": 2}, "prompt"),
]


@pytest.mark.parametrize(("body", "param"), [c[1:] for c in CHAT_REFUSALS], ids=[c[0] for c in CHAT_REFUSALS])
def test_a_bad_chat_body_names_its_field(server: Running, body: dict[str, Any], param: str) -> None:
    response = server.http.post(CHAT, json=body)
    assert response.status_code == 400
    error = check_shape(response)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert server.engine.requests == []


@pytest.mark.parametrize(
    ("body", "param"), [c[1:] for c in COMPLETIONS_REFUSALS], ids=[c[0] for c in COMPLETIONS_REFUSALS]
)
def test_a_bad_completions_body_names_its_field(server: Running, body: dict[str, Any], param: str) -> None:
    response = server.http.post(COMPLETIONS, json={"model": MODEL, **body})
    assert response.status_code == 400
    assert check_shape(response)["param"] == param
    assert server.engine.requests == []


BAD_JSON: list[tuple[str, bytes, str]] = [
    ("nothing", b"", "invalid_json"),
    ("cut off", b'{"model": "x", "messages": [', "invalid_json"),
    ("a comma too many", b'{"model": "x",}', "invalid_json"),
    ("NaN", b'{"temperature": NaN}', "invalid_json"),
    ("a number past every float", b'{"temperature": 1e999}', "invalid_json"),
    ("a lone surrogate", b'{"model": "\\ud800"}', "invalid_json"),
    ("bytes that are no UTF-8", b'{"model": "\xff\xfe"}', "invalid_json"),
    ("UTF-16", '{"model": "x"}'.encode("utf-16"), "invalid_json"),
    ("a byte order mark", b"\xef\xbb\xbf{}", "invalid_json"),
    ("a NUL byte", b'{"model": "\x00"}', "invalid_json"),
    ("nested 100,000 deep", b"[" * 100_000, "invalid_json"),
    ("nested 500 deep", b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "invalid_json"),
    ("of too many objects", b'{"metadata":{"a":[' + b"{}," * 300_000 + b"{}]}}", "invalid_json"),
    ("of too many members", b"{" + b",".join(b'"%d":1' % i for i in range(300_001)) + b"}", "invalid_json"),
    ("an array", b"[]", "invalid_type"),
    ("a string", b'"x"', "invalid_type"),
    ("a number", b"1", "invalid_type"),
    ("null", b"null", "invalid_type"),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("raw", "code"), [c[1:] for c in BAD_JSON], ids=[c[0] for c in BAD_JSON])
def test_what_is_no_json_object_is_refused(server: Running, path: str, raw: bytes, code: str) -> None:
    response = server.http.post(path, content=raw)
    assert response.status_code == 400
    assert check_shape(response)["code"] == code


def test_invalid_json_says_where(server: Running) -> None:
    error = check_shape(server.http.post(CHAT, content=b'{"model": "x",\n "n": }'))
    assert "line 2 column 7" in error["message"]


def test_nul_inside_text_is_text(server: Running) -> None:
    assert server.http.post(CHAT, json=chat(messages=[{**USER, "content": "a\x00b"}])).status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_tolerated(server: Running, content_type: str) -> None:
    raw = httpx.Request("POST", "http://x", json=chat()).content
    response = server.http.post(CHAT, content=raw, headers={"content-type": content_type})
    assert response.status_code == 200


def test_compressed_bodies_are_refused(server: Running) -> None:
    response = server.http.post(CHAT, content=b"x", headers={"content-encoding": "gzip"})
    assert response.status_code == 415
    check_shape(response)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [USER]}),
        (COMPLETIONS, {"prompt": "a"}),
    ],
)
@pytest.mark.parametrize("model", ["other", "", "a\nb\x00", "x" * 5000])
def test_an_unknown_model_is_404(server: Running, path: str, body: dict[str, Any], model: str) -> None:
    response = server.http.post(path, json={"model": model, **body})
    assert response.status_code == 404
    error = check_shape(response)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert len(error["message"]) < 300


@pytest.mark.parametrize("metrics", [True, False])
def test_an_unknown_path_is_told_those_that_are_there(metrics: bool) -> None:
    with running(GatewaySettings(metrics=metrics)) as server:
        response = server.http.get("/nothing")
        assert response.status_code == 404
        error = check_shape(response)
        assert error["code"] == "unknown_url"
        told = re.findall(r"/[a-z0-9_/]+", error["message"])
        assert len(told) > 10
        assert ("/metrics" in told) == metrics
        for path in told:
            assert server.http.get(path).status_code != 404, path


@pytest.mark.parametrize("size", [CONTEXT, CONTEXT + 1, 10 * CONTEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_longer_than_the_context_says_both_numbers(server: Running, size: int, stream: bool) -> None:
    body = {"model": MODEL, "prompt": "a" * size, "stream": stream}
    response = server.http.post(COMPLETIONS, json=body)
    assert response.status_code == 400
    error = check_shape(response)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert str(size) in error["message"]
    assert str(CONTEXT) in error["message"]


def test_a_long_chat_is_refused_alike_and_off_the_event_loop(server: Running) -> None:
    response = server.http.post(CHAT, json=chat(messages=[{**USER, "content": "a" * 50_000}]))
    error = check_shape(response)
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert all(name.startswith("kvgate-prompt") for name in server.prompts.threads)


def test_forcing_a_call_needs_a_parser(server: Running) -> None:
    server.engine._tool_parser = None
    for choice in ("required", {"type": "function", "function": {"name": "lookup"}}):
        response = server.http.post(CHAT, json=chat(tools=[TOOL], tool_choice=choice))
        assert (response.status_code, check_shape(response)["param"]) == (400, "tool_choice")
    assert server.http.post(CHAT, json=chat(tools=[TOOL])).status_code == 200


def test_the_longest_prompt_that_fits_gets_one_token(server: Running) -> None:
    assert (
        server.http.post(COMPLETIONS, json={"model": MODEL, "prompt": "a" * (CONTEXT - 1)}).status_code == 200
    )
    assert server.engine.requests[0].sampling.max_tokens == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/other", 404),
        ("GET", CHAT, 405),
        ("DELETE", COMPLETIONS, 405),
        ("POST", "/v1/models", 405),
        ("OPTIONS", CHAT, 405),
    ],
)
def test_unknown_routes_and_methods_have_the_same_shape(
    server: Running, method: str, path: str, status: int
) -> None:
    response = server.http.request(method, path)
    assert response.status_code == status
    check_shape(response)
    assert status != 405 or response.headers["allow"]


ENGINE_ERRORS: list[tuple[Exception, int, str | None]] = [
    (InvalidRequestError("no such token", param="logit_bias", code="bad"), 400, "bad"),
    (ContextLengthError("7 is more than 5", prompt_tokens=7, limit=5), 400, "context_length_exceeded"),
    (EngineOverloadedError("the queue is full"), 429, "engine_overloaded"),
    (EngineNotReadyError("it drains"), 503, "engine_not_ready"),
    (EngineFailureError("secret detail"), 500, "engine_failure"),
    (ZeroDivisionError("secret detail"), 500, "internal_error"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code"), ENGINE_ERRORS, ids=lambda value: type(value).__name__)
def test_an_engine_error_before_the_first_event_has_its_status(
    server: Running, error: Exception, status: int, code: str | None, stream: bool
) -> None:
    async def script(_):
        raise error
        yield

    server.engine.script = script
    response = server.http.post(CHAT, json=chat(stream=stream))
    assert response.status_code == status
    shown = check_shape(response)
    assert shown["code"] == code
    assert "secret" not in shown["message"]
    assert (status in (429, 503)) == ("retry-after" in response.headers)


def test_a_stream_that_ends_early_is_a_failure(server: Running) -> None:
    async def script(_):
        return
        yield

    server.engine.script = script
    response = server.http.post(CHAT, json=chat())
    assert (response.status_code, check_shape(response)["code"]) == (500, "engine_failure")


def test_before_the_model_is_there_only_health_answers(server: Running) -> None:
    server.served.withdraw("the model is being loaded")
    assert server.http.get("/health").status_code == 200
    for method, path in (("GET", "/ready"), ("POST", CHAT), ("GET", "/v1/models"), ("GET", "/v1/models/x")):
        response = server.http.request(method, path, json=chat() if method == "POST" else None)
        assert response.status_code == 503
        assert "being loaded" in check_shape(response)["message"]
        assert response.headers["retry-after"]


def test_ready_follows_the_engines_health(server: Running) -> None:
    assert server.http.get("/ready").status_code == 200
    server.engine.ready = Health(False, "the device is lost")
    response = server.http.get("/ready")
    assert response.status_code == 503
    assert "the device is lost" in check_shape(response)["message"]


def test_models_are_listed_and_found_with_a_slash_in_the_name(server: Running) -> None:
    assert [model.id for model in server.sdk.models.list()] == [MODEL]
    assert server.sdk.models.retrieve(MODEL).id == MODEL
    assert server.http.get(f"/v1/models/{MODEL}").json()["object"] == "model"


def test_too_many_requests_at_once_get_429(serve_with) -> None:
    server = serve_with(max_in_flight=0)
    response = server.http.post(CHAT, json=chat())
    assert (response.status_code, check_shape(response)["code"]) == (429, "engine_overloaded")


def test_a_plain_request_id_is_kept_and_another_is_replaced(server: Running) -> None:
    assert server.http.get("/health", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    odd = server.http.get("/health", headers={"x-request-id": 'a" b'}).headers["x-request-id"]
    assert odd.startswith("req_")


def test_the_docs_name_every_route(server: Running) -> None:
    document = server.http.get("/openapi.json").json()
    assert {CHAT, COMPLETIONS, "/v1/models", "/health", "/ready"} <= set(document["paths"])
    assert "422" not in str(document["paths"][CHAT])
