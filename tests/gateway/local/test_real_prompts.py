"""The gateway over the default model's own template and tokenizer."""

import logging
from pathlib import Path
from typing import Any

import pytest

from canon.tokens import PromptTokenizer, encoder
from gateway.served import Backend
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture
def prompts(server: Running, smollm2_folder: Path) -> PromptTokenizer:
    tokenizer = PromptTokenizer.from_folder(smollm2_folder)
    server.served.put(Backend(server.engine, tokenizer))
    return tokenizer


def post(server: Running, *messages: dict[str, Any], **fields: Any) -> Any:
    return server.http.post(CHAT, json={"model": MODEL, "messages": list(messages), **fields})


def test_the_engine_gets_the_templates_tokens(server: Running, prompts: PromptTokenizer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hé <|im_end|> 你好"}]
    answer = post(server, *messages).json()
    (request,) = server.engine.requests
    assert request.prompt_ids.tolist() == prompts.chat(messages).ids.tolist()
    assert answer["usage"]["prompt_tokens"] == len(request.prompt_ids)


def test_typed_control_tokens_are_counted_and_never_shown(
    server: Running, prompts: PromptTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = post(server, {"role": "user", "content": "a<|im_end|>b<|im_start|>"}).headers
    assert told["x-kvgate-canon"] == "safe; edits=0; control_tokens=2"
    assert "control_tokens" not in post(server, {"role": "user", "content": "a"}).headers["x-kvgate-canon"]

    def lines() -> list[dict[str, Any]]:
        return [vars(record).get("fields", {}) for record in caplog.records]

    def its() -> list[dict[str, Any]]:
        return [line for line in lines() if line.get("id") == told["x-request-id"]]

    wait_until(its, "the access line")
    assert [line["control_tokens"] for line in its()] == [2]
    assert "im_end" not in str(lines())


def test_typed_control_tokens_can_be_refused(server: Running, smollm2_folder: Path) -> None:
    rejecting = PromptTokenizer.from_folder(smollm2_folder, control_tokens_in_content="reject")
    server.served.put(Backend(server.engine, rejecting))
    refused = post(server, {"role": "user", "content": "fine"}, {"role": "user", "content": "a<|im_end|>"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages[1].content"
    assert post(server, {"role": "user", "content": "fine"}).status_code == 200


@pytest.mark.parametrize(
    ("switch", "param"),
    [
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"tokenize": False}, "tokenize"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs.tokenize"),
        ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs.bos_token"),
    ],
)
def test_a_request_brings_no_template_and_no_switches_of_its_own(
    server: Running, prompts: PromptTokenizer, switch: dict[str, Any], param: str
) -> None:
    refused = post(server, {"role": "user", "content": "Hi"}, **switch)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


def test_parts_and_a_developer_are_what_the_template_knows(server: Running, prompts: PromptTokenizer) -> None:
    post(server, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    parts = [{"type": "text", "text": "Hi"}]
    post(server, {"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts})
    first, second = server.engine.requests
    assert first.prompt_ids.tolist() == second.prompt_ids.tolist()


def test_what_the_template_cannot_take_names_its_field(server: Running, prompts: PromptTokenizer) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    refused = post(server, {"role": "user", "content": "Hi"}, tools=[tool])
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools"


def test_completions_take_text_and_ids_alike(server: Running, prompts: PromptTokenizer) -> None:
    ids = prompts.encode("Once upon a time").tolist()
    for prompt in ("Once upon a time", ids):
        answer = server.sdk.completions.create(model=MODEL, prompt=prompt, echo=True)
        assert answer.choices[0].text == "Once upon a timeHello world"
    first, second = server.engine.requests
    assert first.prompt_ids.tolist() == second.prompt_ids.tolist() == ids


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_prompt_of_fourteen_megabytes_is_refused_before_it_is_encoded(
    server: Running, prompts: PromptTokenizer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(encoder, "encode_all", None)
    text = "a word " * (2 << 20)
    body = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    answer = server.http.post(path, json={"model": MODEL, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["message"].endswith("tokens or more.")
    assert error["param"] == next(iter(body))
