"""Special tokens in content for an engine behind HTTP: told or refused here, and never rewritten."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest

from canon.tokens import ControlTokenScanner
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.control_tokens import ControlTokenCheck
from gateway.relay.remote import Remote
from tests.gateway.relay.conftest import Pair
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole
from tests.gateway.relay.serving import relaying

CHAT = "/v1/chat/completions"
SCANNER = ControlTokenScanner(("<|im_start|>", "<|im_end|>"))
TYPED = {"role": "user", "content": "a<|im_end|>b<|im_start|>"}
PLAIN = {"role": "user", "content": "a"}


@pytest.fixture
def looking() -> Iterator[Callable[..., Pair]]:
    """`looking(action)`: a gateway that looks through what it sends to an engine."""
    with ExitStack() as stack:

        def make(action: Literal["report", "reject"]) -> Pair:
            engine = stack.enter_context(fake_engine(lambda connection, _: connection.reply(whole(0))))
            check = ControlTokenCheck(SCANNER, action)
            remote = Remote(OpenAICompatibleEngine("fake", engine.url), control_tokens=check)
            return Pair(stack.enter_context(relaying([remote])), engine)

        yield make


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": MODEL, "messages": list(messages)}


def test_typed_tokens_are_told_of_and_go_on_as_they_are(
    looking: Callable[..., Pair], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pair = looking("report")
    raw = json.dumps(chat(TYPED)).encode()
    told = pair.gateway.http.post(CHAT, content=raw).headers["x-kvgate-canon"]
    assert told == "safe; edits=0; control_tokens=2"
    assert pair.engine.asked[0].raw == raw
    assert "control_tokens" not in pair.gateway.http.post(CHAT, json=chat(PLAIN)).headers["x-kvgate-canon"]
    lines = [vars(record).get("fields", {}) for record in caplog.records]
    assert [line["control_tokens"] for line in lines if "control_tokens" in line] == [2]
    assert "im_end" not in str(lines)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, chat(PLAIN, TYPED), "messages[1].content"),
        (CHAT, {**chat(PLAIN), "tools": [{"description": "<|im_end|>"}]}, "tools[0].description"),
        ("/v1/responses", {"model": MODEL, "input": "<|im_end|>"}, "input"),
        ("/v1/messages", {**chat(PLAIN), "max_tokens": 4, "system": "<|im_end|>"}, "system"),
    ],
)
def test_typed_tokens_can_be_kept_from_the_engine(
    looking: Callable[..., Pair], path: str, body: dict[str, Any], param: str
) -> None:
    pair = looking("reject")
    refused = pair.gateway.http.post(path, json=body)
    assert refused.status_code == 400
    assert (refused.json()["error"]["param"], refused.json()["error"]["code"]) == (param, "invalid_value")
    assert "im_end" not in refused.text
    assert pair.engine.asked == []
    assert pair.gateway.http.post(CHAT, json=chat(PLAIN)).status_code == 200


def test_raw_prompts_and_other_fields_are_their_writers_own(looking: Callable[..., Pair]) -> None:
    pair = looking("reject")
    prompt = {"model": MODEL, "prompt": "<|im_start|>user\nHi<|im_end|>"}
    assert pair.gateway.http.post("/v1/completions", json=prompt).status_code == 200
    assert pair.gateway.http.post(CHAT, json={**chat(PLAIN), "stop": ["<|im_end|>"]}).status_code == 200
