"""Numbers that no engine can serve are refused before one gets them; what some engine takes passes."""

import json
from typing import Any

import pytest

from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole
from tests.gateway.relay.serving import relaying
from tests.llama_cpp_server import LlamaCppServer

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
REFUSED: list[tuple[str, Any]] = [
    ("top_logprobs", 10**9),
    ("top_logprobs", 1e9),
    ("logprobs", 5000),
    ("n", 10**6),
    ("n", 0),
    ("n", -1),
    ("best_of", 10**6),
    ("max_tokens", -5),
    ("max_tokens", 10**18),
    ("max_completion_tokens", 1e30),
    ("max_output_tokens", 2**31),
    ("min_tokens", -1),
    ("top_k", -10),
    ("seed", 2**64),
    ("stop", ["a"] * 1025),
    ("logit_bias", {str(token): 1 for token in range(65_537)}),
]
PASSED: list[tuple[str, Any]] = [
    ("top_logprobs", 100),
    ("logprobs", True),
    ("n", 128),
    ("max_tokens", -1),
    ("max_tokens", None),
    ("max_tokens", "many"),
    ("seed", 2**63),
    ("top_k", -1),
    ("stop", ["a"] * 100),
    ("logit_bias", {str(token): 1 for token in range(1000)}),
]


def test_each_is_refused_by_its_name_and_the_rest_is_for_the_engine() -> None:
    with (
        fake_engine(lambda connection, _: connection.reply(whole(0))) as engine,
        relaying([Remote(OpenAICompatibleEngine("fake", engine.url, (MODEL,)), {MODEL: MODEL})]) as gateway,
    ):
        for name, value in REFUSED:
            body = json.dumps({"model": MODEL, "messages": MESSAGES, name: value})
            answer = gateway.http.post(CHAT, content=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, name), error
            assert error["code"] in ("invalid_value", "invalid_json")
        assert engine.asked == []
        for name, value in PASSED:
            body = json.dumps({"model": MODEL, "messages": MESSAGES, name: value})
            assert gateway.http.post(CHAT, content=body).status_code == 200, name
        assert len(engine.asked) == len(PASSED)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages"])
def test_on_every_route_that_generates(path: str) -> None:
    asks = {"/v1/completions": {"prompt": "Hi"}, "/v1/responses": {"input": "Hi"}}
    with (
        fake_engine() as engine,
        relaying([Remote(OpenAICompatibleEngine("fake", engine.url, (MODEL,)), {MODEL: MODEL})]) as gateway,
    ):
        body = {"model": MODEL, "top_logprobs": 1e9, **asks.get(path, {"messages": MESSAGES})}
        answer = gateway.http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "top_logprobs")


def test_a_real_llama_cpp_does_not_list_its_vocabulary(llama_cpp: LlamaCppServer) -> None:
    remote = Remote(LlamaCppEngine("llama", llama_cpp.url, ("default",)), {"small": "default"})
    with relaying([remote]) as gateway:
        body = {"model": "small", "messages": MESSAGES, "max_tokens": 1, "logprobs": True}
        assert gateway.http.post(CHAT, json={**body, "top_logprobs": 1e9}).status_code == 400
        (token,) = gateway.http.post(CHAT, json={**body, "top_logprobs": 30}).json()["choices"][0][
            "logprobs"
        ]["content"]
        assert len(token["top_logprobs"]) == 30
