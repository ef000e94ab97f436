"""What kvgate does not read passes untouched, both ways: unknown fields, and numbers that nothing here could write."""

import base64
import json

import pytest

from gateway.canonical.policies import PolicyFor
from gateway.settings import CanonSettings
from tests.gateway.relay.fake_engine import MODEL, usage

OFF = CanonSettings(policies=(PolicyFor("off"),))
PATHS = {
    "/v1/chat/completions": b'"messages":[{"role":"user","content":"Hi"}]',
    "/v1/completions": b'"prompt":"Hi"',
    "/v1/responses": b'"input":"Hi"',
    "/v1/embeddings": b'"input":["a","b"]',
    "/v1/messages": b'"messages":[{"role":"user","content":"Hi"}],"max_tokens":5',
    "/v1/messages/count_tokens": b'"messages":[{"role":"user","content":"Hi"}]',
    "/v1/rerank": b'"query":"a","documents":["b"]',
    "/tokenize": b'"prompt":"Hi"',
    "/detokenize": b'"tokens":[1,2]',
}
ODD = [
    b'"x": 1E2, "y" :-0, "z":1.10',
    b'"x":123456789012345678901234567890',
    b'"x":{"a":1,"a":2}',
    b'"x":"\\u00e9\\/\\ud83d\\ude00","y":"\xc3\xa9"',
    b'"x":[ 1 , 2 ]\r\n\t,"unknown":{"deep":[{}]}',
    b'"x":"' + b"a" * 100_000 + b'"',
]


def echo(connection, asked):
    connection.reply(asked.raw)


@pytest.mark.parametrize("path", PATHS)
def test_every_byte_of_body_and_answer_passes(relay_to, path: str) -> None:
    pair = relay_to(echo, canon=OFF)
    for odd in ODD:
        raw = b' {"model":"' + MODEL.encode() + b'",' + PATHS[path] + b" , " + odd + b"}\n"
        answer = pair.gateway.http.post(path, content=raw)
        assert answer.status_code == 200
        assert pair.engine.asked[-1].raw == raw
        assert answer.content == raw


ANSWERS = [
    b'{"id":"c","choices":[],"big":123456789012345678901234567890,"huge":1e400,"x": 1E2}',
    b'{"id":"c","choices":[],"lone":"\\ud800","a":1,"a":2}',
    b'{"object":"list","data":[],"usage":{"prompt_tokens":3,"total_tokens":3, "odd":-0.0}}',
    b'{"id":"c","choices":[],"usage":' + json.dumps(usage(None)).encode() + b', "x" : 1E2}',
    b"[1,2]",
    b"no JSON at all",
    b"",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_byte_of_an_answer_passes_whatever_it_is(relay_to, path: str) -> None:
    bodies = iter(ANSWERS)
    pair = relay_to(lambda connection, _: connection.reply(next(bodies)))
    raw = b'{"model":"' + MODEL.encode() + b'",' + PATHS[path] + b"}"
    for body in ANSWERS:
        answer = pair.gateway.http.post(path, content=raw)
        assert answer.status_code == 200
        assert answer.content == body


@pytest.mark.parametrize("bad", [b"1e400", b'"\\ud800"', b"NaN", b"01"])
def test_what_no_parser_agrees_on_is_refused_and_never_sent(relay_to, bad: bytes) -> None:
    pair = relay_to(echo)
    raw = b'{"model":"' + MODEL.encode() + b'","prompt":"Hi","x":' + bad + b"}"
    answer = pair.gateway.http.post("/v1/completions", content=raw)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert pair.engine.asked == []


@pytest.mark.parametrize("prompt", ["Hi", ["a", "b"], [1, 2, 3], [[1, 2], [3]]])
def test_every_form_of_a_prompt_goes_on(relay_to, prompt: object) -> None:
    pair = relay_to(echo)
    pair.gateway.sdk.post("/completions", body={"model": MODEL, "prompt": prompt}, cast_to=object)
    assert pair.engine.asked[0].body == {"model": MODEL, "prompt": prompt}


def test_the_sdk_gets_embeddings_in_the_base64_that_it_asks_for_unasked(relay_to) -> None:
    packed = base64.b64encode(b"\x00\x00\x80\x3f\x00\x00\x00\x40").decode()
    data = [{"object": "embedding", "index": 0, "embedding": packed}]
    body = json.dumps({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 3}}).encode()
    pair = relay_to(lambda connection, _: connection.reply(body))
    answer = pair.gateway.sdk.embeddings.create(model=MODEL, input=["Hi"])
    assert answer.data[0].embedding == [1.0, 2.0]
    assert pair.engine.asked[0].body["encoding_format"] == "base64"
    assert pair.gateway.rows.one().prompt == 3


def test_versions_of_anthropics_api_go_on_with_their_routes(relay_to) -> None:
    pair = relay_to(echo)
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "secret"}
    for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/rerank"):
        pair.gateway.http.post(path, json={"model": MODEL}, headers=headers)
    messages, count, rerank = (asked.headers for asked in pair.engine.asked)
    assert messages["anthropic-version"] == count["anthropic-version"] == "2023-06-01"
    assert "anthropic-version" not in rerank
    assert all("x-api-key" not in asked.headers for asked in pair.engine.asked)


def test_what_runs_no_model_leaves_no_row(relay_to) -> None:
    pair = relay_to(echo)
    for path in ("/tokenize", "/detokenize", "/v1/messages/count_tokens", "/rerank"):
        pair.gateway.http.post(path, json={"model": MODEL})
    assert pair.gateway.rows.one().route == "rerank"
    assert [asked.path for asked in pair.engine.asked] == [
        "/tokenize",
        "/detokenize",
        "/v1/messages/count_tokens",
        "/v1/rerank",
    ]
