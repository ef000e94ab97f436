"""Routes beside chat, as real vLLM and SGLang servers answer them behind the gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.relay.remote import Remote
from tests.engines.record import Session
from tests.engines.running import MODEL_NAME
from tests.gateway.relay.serving import Relaying, relaying

pytestmark = [pytest.mark.engines, pytest.mark.parametrize("session_url", ["vllm", "sglang"], indirect=True)]

MESSAGES = [{"role": "user", "content": "Say one word about the sea."}]


@pytest.fixture
def gateway(session_url: tuple[Session, str, Path]) -> Iterator[Relaying]:
    session, url, _ = session_url
    with relaying([Remote(session.adapter("real", url))]) as it:
        yield it


def test_tokens_go_there_and_back(gateway: Relaying) -> None:
    said = gateway.http.post("/tokenize", json={"model": MODEL_NAME, "prompt": "Hello world"}).json()
    assert said["count"] == len(said["tokens"]) > 0
    asked = {"model": MODEL_NAME, "tokens": said["tokens"]}
    back = gateway.http.post("/detokenize", json=asked).json()
    assert "Hello world" in back.get("prompt", back.get("text"))
    chat = gateway.http.post("/tokenize", json={"model": MODEL_NAME, "messages": MESSAGES}).json()
    answer = gateway.sdk.chat.completions.create(model=MODEL_NAME, messages=MESSAGES, max_tokens=1)
    assert chat["count"] == answer.usage.prompt_tokens


def test_a_message_is_answered_and_counted(gateway: Relaying) -> None:
    body = {"model": MODEL_NAME, "max_tokens": 4, "messages": MESSAGES}
    usage = gateway.http.post("/v1/messages", json=body).json()["usage"]
    counted = gateway.http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
    assert counted == usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0)


def test_a_response_is_made_and_found_or_refused_as_one(gateway: Relaying) -> None:
    """Each keeps responses only where it was started for it."""
    made = gateway.sdk.responses.create(model=MODEL_NAME, input="Hi", max_output_tokens=4)
    found = gateway.http.get(f"/v1/responses/{made.id}")
    if found.status_code == 200:
        assert found.json()["id"] == made.id
    else:
        assert found.status_code in (400, 404)
        assert found.json()["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
def test_what_a_model_that_writes_cannot_do_is_refused_in_the_one_shape(gateway: Relaying, path: str) -> None:
    body = {"model": MODEL_NAME, "input": "Hi", "query": "a", "documents": ["b"]}
    answer = gateway.http.post(path, json=body)
    assert answer.status_code in (400, 404, 501)
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
