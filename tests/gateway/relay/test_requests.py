"""What goes to the engine: canonical bytes, its own model name, its key, and nothing of the client's secrets."""

import gzip
import json
import time

import pytest

from engine_adapters.remote.anthropic import AnthropicEngine
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.canonical.policies import PolicyFor
from gateway.relay.remote import Remote
from gateway.served import Backend
from gateway.settings import CanonSettings
from tests.gateway.relay.fake_engine import DONE, FINISH, MODEL, content, event, fake_engine, whole
from tests.gateway.relay.serving import relaying
from tests.gateway.scripted_engine import MODEL as SCRIPTED
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}


def hello(connection, _):
    connection.reply(whole(0))


def test_an_unchanged_body_goes_on_as_the_bytes_it_came_in(relay_to) -> None:
    pair = relay_to(hello)
    raw = b'{ "messages":[{"role":"user","content":"\\u0048i"}],"model":"fake-1", "odd": 1E2, "temperature":0.50 }'
    assert pair.gateway.http.post(CHAT, content=raw).status_code == 200
    assert pair.engine.asked[0].raw == raw
    assert pair.engine.asked[0].path == "/v1/chat/completions"


def test_canon_rewrites_what_goes_on(relay_to) -> None:
    pair = relay_to(hello)
    system = {"role": "system", "content": "Be brief.\r\nBe kind.  \r\n"}
    answer = pair.gateway.http.post(CHAT, json={"model": MODEL, "messages": [system, USER]})
    assert pair.engine.asked[0].body["messages"][0]["content"] == "Be brief.\nBe kind."
    assert "edits=" in answer.headers["x-kvgate-canon"]
    assert pair.gateway.rows.one().canon_edits > 0


def test_the_extension_stays_here_and_unknown_fields_go_on(relay_to) -> None:
    pair = relay_to(hello)
    body = {"model": MODEL, "messages": [USER], "kvgate": {"ttl": 5}, "mine": [1], "min_p": 0.1}
    pair.gateway.http.post(CHAT, json=body)
    assert pair.engine.asked[0].body == {k: v for k, v in body.items() if k != "kvgate"}


@pytest.mark.parametrize(
    ("switch", "param"),
    [
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"tokenize": False}, "tokenize"),
        ({"trust_remote_code": True}, "trust_remote_code"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs.tokenize"),
    ],
)
@pytest.mark.parametrize(
    ("path", "prompt"), [(CHAT, {"messages": [USER]}), ("/v1/completions", {"prompt": "Hi"})]
)
def test_no_engine_gets_a_template_or_a_switch_of_its_rendering_from_a_client(
    relay_to, path, prompt, switch, param
) -> None:
    pair = relay_to(hello)
    refused = pair.gateway.http.post(path, json={"model": MODEL, **prompt, **switch})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert pair.engine.asked == []


def test_template_variables_go_on(relay_to) -> None:
    pair = relay_to(hello)
    body = {"model": MODEL, "messages": [USER], "chat_template": None}
    body["chat_template_kwargs"] = {"enable_thinking": False}
    assert pair.gateway.http.post(CHAT, json=body).status_code == 200
    assert pair.engine.asked[0].body == body


def test_the_clients_key_stays_here_and_the_engines_goes_on() -> None:
    with fake_engine(hello) as engine:
        options = HttpOptions(headers={"authorization": "Bearer the-engines"})
        remote = Remote(OpenAICompatibleEngine("fake", engine.url, (), options), {"mine": MODEL})
        with relaying([remote]) as gateway:
            headers = {
                "authorization": "Bearer the-clients",
                "x-api-key": "the-clients",
                "cookie": "a=the-clients",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "x-stainless-retry-count": "2",
                "x-request-id": "req-7",
            }
            gateway.http.post(CHAT, json={"model": "mine", "messages": [USER]}, headers=headers)
            (asked,) = engine.asked
            assert asked.headers["authorization"] == "Bearer the-engines"
            assert "the-clients" not in json.dumps(asked.headers)
            assert asked.headers["traceparent"] == headers["traceparent"]
            assert asked.headers["x-request-id"] == "req-7"
            assert asked.body["model"] == MODEL
            row = gateway.rows.one()
            assert (row.id, row.retries, row.trace_id) == ("req-7", 2, "0af7651916cd43dd8448eb211c80319c")
            assert row.model == "mine"


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_engine(hello) as engine:
        with monkeypatch.context() as environment:
            environment.setenv("HTTP_PROXY", "http://127.0.0.1:9")
            environment.setenv("ALL_PROXY", "http://127.0.0.1:9")
            remote = Remote(OpenAICompatibleEngine("fake", engine.url))
        with relaying([remote]) as gateway:
            assert gateway.http.post(CHAT, json={"model": MODEL, "messages": [USER]}).status_code == 200


def test_embeddings_are_relayed_and_accounted_for(relay_to) -> None:
    body = b'{"object":"list","data":[{"embedding":[0.10]}],"usage":{"prompt_tokens":3,"total_tokens":3}}'
    pair = relay_to(lambda connection, _: connection.reply(body))
    answer = pair.gateway.http.post("/v1/embeddings", json={"model": MODEL, "input": "Hi"})
    assert answer.content == body
    row = pair.gateway.rows.one()
    assert (row.route, row.prompt, row.reused, row.canon_policy) == ("embeddings", 3, None, "off")


@pytest.mark.parametrize(
    "told",
    [
        ("404 Not Found", b'{"detail":"Not Found"}'),
        ("405 Method Not Allowed", b'{"detail":"Method Not Allowed"}'),
        ("404 Not Found", b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
        ("404 Not Found", b"<html>"),
    ],
)
def test_a_route_that_an_engine_does_not_serve_is_told_with_its_name(relay_to, told) -> None:
    status, body = told
    pair = relay_to(lambda connection, _: connection.reply(body, status))
    answer = pair.gateway.http.post("/v1/messages", json={"model": MODEL, "messages": [USER]})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unsupported_route")
    assert "fake" in error["message"]
    assert "/v1/messages" in error["message"]


def test_a_route_that_no_engine_of_the_kind_has_is_refused_before_it_is_asked() -> None:
    with fake_engine(hello) as engine:
        remote = Remote(AnthropicEngine("claude", engine.url, ("m",)), {"m": "m"})
        with relaying([remote]) as gateway:
            answer = gateway.http.post("/v1/chat/completions", json={"model": "m", "messages": [USER]})
            row = gateway.rows.one()
    told = "The engine claude has no /v1/chat/completions; it has /v1/messages, /v1/messages/count_tokens."
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, told)
    assert (row.engine, row.model, row.error) == ("claude", "m", "unsupported_route")
    assert engine.asked == []


def test_a_404_that_says_more_passes(relay_to) -> None:
    body = b'{"error":{"message":"no adapter of that name","type":"NotFoundError","code":404}}'
    pair = relay_to(lambda connection, _: connection.reply(body, "404 Not Found"))
    answer = pair.gateway.http.post("/v1/chat/completions", json={"model": MODEL, "messages": [USER]})
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no adapter of that name")


def test_both_kinds_of_engines_are_served_by_one_gateway() -> None:
    with fake_engine(hello) as engine:
        remote = Remote(OpenAICompatibleEngine("fake", engine.url))
        with relaying([remote], backend=Backend(ScriptedEngine(), BytePrompts())) as gateway:
            listed = [model["id"] for model in gateway.http.get("/v1/models").json()["data"]]
            assert listed == [SCRIPTED, MODEL]
            assert gateway.http.get(f"/v1/models/{MODEL}").json()["id"] == MODEL
            for model in listed:
                answer = gateway.http.post(CHAT, json={"model": model, "messages": [USER]})
                assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
            assert [gateway.rows.last(n).engine for n in (1, 2)] == ["embedded", "fake"]
            refused = gateway.http.post("/v1/responses", json={"model": SCRIPTED, "input": "Hi"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unsupported_route")


def test_a_packed_answer_is_unpacked(relay_to) -> None:
    packed = gzip.compress(whole(3))
    pair = relay_to(lambda connection, _: connection.reply(packed, "200 OK", "content-encoding: gzip"))
    answer = pair.gateway.http.post(CHAT, json={"model": MODEL, "messages": [USER]})
    assert pair.engine.asked[0].headers["accept-encoding"] == "identity"
    assert answer.content == whole(3)
    assert pair.gateway.rows.one().reused == 3


def test_a_connection_that_the_engine_closed_is_not_used_again(relay_to) -> None:
    def script(connection, _):
        connection.reply(whole(0))
        raise OSError  # closes it, though it did not say so

    pair = relay_to(script)
    for _ in range(3):
        assert pair.gateway.http.post(CHAT, json={"model": MODEL, "messages": [USER]}).status_code == 200
        time.sleep(0.05)


def test_relayed_routes_are_documented_where_they_are(relay_to) -> None:
    paths = relay_to(hello).gateway.http.get("/openapi.json").json()["paths"]
    assert {"/v1/responses", "/v1/embeddings", "/v1/messages", CHAT} <= paths.keys()


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1,"b":2}'}}


def _whole_call(connection, _):
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    connection.reply(json.dumps({"choices": [choice]}).encode())


def _streamed_call(connection, _):
    function = CALL["function"]
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    deltas = [first, *({"index": 0, "function": {"arguments": c}} for c in function["arguments"])]
    connection.stream()
    for delta in deltas:
        connection.chunk(event({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]}))
    connection.chunk(FINISH + DONE)
    connection.end()


@pytest.mark.parametrize("script", [_whole_call, _streamed_call])
def test_what_the_model_produced_is_remembered_and_replayed(relay_to, script) -> None:
    pair = relay_to(script, canon=CanonSettings((PolicyFor("full"),)))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = {"model": MODEL, "messages": [USER], "tools": tools, "stream": script is _streamed_call}
    assert pair.gateway.http.post(CHAT, json=body).status_code == 200
    other = {**CALL, "function": {"name": "f", "arguments": '{"b": 2, "a": 1}'}}
    turn = [USER, {"role": "assistant", "content": None, "tool_calls": [other]}]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
    pair.gateway.http.post(CHAT, json={**body, "messages": [*turn, result]})
    sent = pair.engine.asked[1].body["messages"][1]["tool_calls"][0]
    assert sent["function"]["arguments"] == CALL["function"]["arguments"]


def test_a_stream_without_a_recording_is_not_kept(relay_to) -> None:
    def script(connection, _):
        connection.stream()
        connection.chunk(content("Hi") + FINISH + DONE)
        connection.end()

    pair = relay_to(script, canon=CanonSettings((PolicyFor("off"),)))
    pair.gateway.http.post(CHAT, json={"model": MODEL, "messages": [USER], "stream": True})
    assert pair.gateway.rows.one().canon_policy == "off"
