"""What clients read as the model's name is one that they may ask for, on every route; never an engine's file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.aliases import Alias
from gateway.relay.remote import Remote
from gateway.settings import GatewaySettings
from tests.gateway.relay.fake_engine import Asked, Connection, event, fake_engine
from tests.gateway.relay.serving import Relaying, relaying
from tests.llama_cpp_server import LlamaCppServer

OWN = "/models/qwen3/weights"
MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": MESSAGES},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("names", [{"small": "default"}, None])
def test_a_real_llama_cpp_that_calls_its_model_by_its_path(
    llama_cpp: LlamaCppServer, names: dict[str, str] | None, path: str, stream: bool
) -> None:
    remote = Remote(LlamaCppEngine("llama", llama_cpp.url, tuple((names or {}).values())), names)
    with relaying([remote]) as gateway:
        (listed,) = [each["id"] for each in gateway.http.get("/v1/models").json()["data"]]
        assert listed == ("small" if names else Path(listed).name)
        body = {"model": listed, "max_tokens": 3, "stream": stream, **BODIES[path]}
        answer = gateway.http.post(path, json=body)
        assert answer.status_code == 200
        assert ".gguf" not in answer.text
        assert f'"model":"{listed}"' in answer.text.replace(": ", ":")


def answers(connection: Connection, asked: Asked) -> None:
    """As servers do that say the name which they were asked for."""
    own = asked.body["model"] if asked.raw else OWN
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    response = {
        "id": "resp_1",
        "object": "response",
        "model": own,
        "usage": usage,
        "metadata": {"model": own},
    }
    if not asked.raw:
        connection.reply(json.dumps(response).encode())
    elif not asked.body.get("stream"):
        connection.reply(json.dumps({**response, "choices": []}).encode())
    else:
        connection.stream()
        if asked.path.endswith("/responses"):
            connection.chunk(event({"type": "response.created", "response": {**response, "usage": None}}))
            connection.chunk(event({"type": "response.completed", "response": response}))
        else:
            for text in ("a", "b"):
                connection.chunk(event({"choices": [{"index": 0, "text": text}], "model": own}))
            connection.chunk(b"data: [DONE]\n\n")
        connection.end()


@pytest.fixture
def made() -> Callable[..., Any]:
    def make(url: str) -> Remote:
        return Remote(OpenAICompatibleEngine("fake", url, (OWN,)), {"named": OWN})

    return make


@pytest.mark.parametrize("name", ["named", "gpt-4o"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_a_name_that_is_mapped_comes_back_as_it_was_asked_for(
    made, path: str, stream: bool, name: str
) -> None:
    settings = GatewaySettings(aliases={"gpt-4o": Alias("fake", "named")})
    with fake_engine(answers) as engine, relaying([made(engine.url)], settings) as gateway:
        answer = gateway.http.post(path, json={"model": name, "stream": stream, **BODIES[path]})
        assert f'"model":"{name}"' in answer.text.replace(": ", ":")
        assert OWN not in answer.text.replace(f'"metadata": {{"model": "{OWN}"}}', "").replace(
            f'"metadata":{{"model":"{OWN}"}}', ""
        )


def test_without_a_name_and_by_its_id_a_response_has_one_that_can_be_asked_for(made) -> None:
    with fake_engine(answers) as engine, relaying([made(engine.url)]) as gateway:
        said = gateway.http.post("/v1/responses", json={"model": "named", "input": "Hi"}).json()
        assert (said["model"], engine.asked[0].body["model"]) == ("named", OWN)
        assert kept(gateway, said["id"])["model"] == "named"
        assert kept(gateway, said["id"])["metadata"] == {"model": OWN}


def kept(gateway: Relaying, name: str) -> dict[str, Any]:
    answer = gateway.http.get(f"/v1/responses/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json()
