"""Requests on their way through canon: what goes on to the engine, what is told, what is remembered."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import orjson
import pytest

from canon import CanonResult, canonicalize
from engine_adapters.base import Event, Finished, GenerateRequest, ToolCallDelta
from gateway.canonical.policies import PolicyFor
from gateway.settings import CanonSettings
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL, usage_of
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "Be brief.\r\nBe kind."}
CLEAN = {"role": "system", "content": "Be brief.\nBe kind."}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("b", "a")
]


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [*messages, {"role": "user", "content": "Hello"}], **fields}


def policies(*names: str) -> CanonSettings:
    return CanonSettings(policies=tuple(PolicyFor(name) for name in names))


def test_an_unchanged_body_goes_on_as_the_bytes_it_came_in(server: Running) -> None:
    raw = (
        b'{ "messages": [{"role": "user","content":"Hello"}],\n "model": "%s", "temperature": 1E0}'
        % MODEL.encode()
    )
    response = server.http.post(CHAT, content=raw)
    assert response.headers["x-kvgate-canon"] == "safe; edits=0"
    assert server.engine.requests[0].raw == raw


def test_a_changed_body_goes_on_changed_and_its_prompt_with_it(server: Running) -> None:
    response = server.http.post(CHAT, json=chat(SYSTEM, unknown={"kept": [1.5]}))
    assert response.headers["x-kvgate-canon"] == "safe; edits=1; newlines=1"
    (request,) = server.engine.requests
    assert request.raw is None
    assert request.body == chat(CLEAN, unknown={"kept": [1.5]})
    assert b"\r" not in bytes(request.prompt_ids.tolist())


def test_what_cannot_be_written_again_goes_on_as_it_came(server: Running) -> None:
    raw = orjson.dumps(chat(SYSTEM))[:-1] + b', "metadata": {"a": 1E2}}'
    response = server.http.post(CHAT, content=raw)
    assert response.headers["x-kvgate-canon"] == "safe; bypassed"
    assert server.engine.requests[0].raw == raw
    assert server.engine.requests[0].body["messages"][0] == SYSTEM


def test_a_client_may_lower_the_policy_and_not_raise_it(server: Running) -> None:
    for wanted, told, text in (("off", "off; edits=0", SYSTEM), ("observe", "observe; would-edit=1", SYSTEM),
                               ("full", "safe; edits=1", CLEAN)):  # fmt: skip
        server.put_fresh()
        response = server.http.post(CHAT, json=chat(SYSTEM, tools=TOOLS), headers={"x-kvgate-policy": wanted})
        assert response.headers["x-kvgate-canon"].startswith(told)
        (request,) = server.engine.requests
        assert request.body["messages"][0] == text
        assert request.body["tools"] == TOOLS


def test_a_policy_that_does_not_exist_is_refused_in_the_error_shape(server: Running) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.sdk.chat.completions.create(**chat(), extra_headers={"x-kvgate-policy": "best"})
    body: Any = caught.value.body
    assert (body["param"], body["code"]) == ("x-kvgate-policy", "invalid_value")
    assert "safe" in body["message"]
    assert not server.engine.requests


def test_operators_choose_by_route_and_model(serve_with: Callable[..., Running]) -> None:
    chosen = (PolicyFor("full", "chat", MODEL), PolicyFor("off", "completions"))
    server = serve_with(canon=CanonSettings(policies=chosen))
    response = server.http.post(CHAT, json=chat(tools=TOOLS))
    assert response.headers["x-kvgate-canon"] == "full; edits=1; tool_order=1"
    (request,) = server.engine.requests
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["a", "b"]
    assert request.tools is not None
    assert [tool["function"]["name"] for tool in request.tools.tools] == ["a", "b"]
    response = server.http.post("/v1/completions", json={"model": MODEL, "prompt": "Hello "})
    assert response.headers["x-kvgate-canon"] == "off; edits=0"


def test_a_raw_prompt_is_never_touched(serve_with: Callable[..., Running]) -> None:
    server = serve_with(canon=policies("full"))
    prompt = "\ufeffCurrent time: 2031-03-04 10:11:12\r\nsay  \n\n\n\nhi "
    response = server.http.post("/v1/completions", json={"model": MODEL, "prompt": prompt})
    assert response.headers["x-kvgate-canon"] == "full; edits=0"
    assert bytes(server.engine.requests[0].prompt_ids.tolist()).decode() == prompt


def test_only_large_bodies_leave_the_event_loop(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(*arguments: Any, **more: Any) -> CanonResult:
        threads.append(threading.current_thread().name)
        return canonicalize(*arguments, **more)

    monkeypatch.setattr("gateway.canonical.stage.canonicalize", noted)
    for lines in (1, 4000):
        long = {"role": "system", "content": "Be brief.\r\n" * lines + "Be kind."}
        response = server.http.post(CHAT, json=chat(long))
        assert response.headers["x-kvgate-canon"] == "safe; edits=1; newlines=1"
    assert [name.startswith("kvgate-prompt") for name in threads] == [False, True]


def test_observe_changes_nothing_and_counts_the_gain(
    serve_with: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kvgate")
    server = serve_with(canon=policies("observe"))
    for ending in ("\r\n", "\n"):
        text = f"Be brief.{ending}" + "Words that all requests share, " * 20 + "and more."
        server.http.post(CHAT, json=chat({"role": "system", "content": text}))
        assert server.engine.requests[-1].body["messages"][0]["content"] == text
        assert server.engine.requests[-1].raw is not None

    def lines() -> list[dict[str, Any]]:
        access = [record for record in caplog.records if record.name == "kvgate.access"]
        fields: list[dict[str, Any]] = [record.fields for record in access]  # type: ignore[attr-defined]
        return [each for each in fields if each.get("canon") == "observe"]  # and not of the test before

    wait_until(lambda: len(lines()) == 2, "both lines are written")
    first, second = lines()
    assert first["canon_would_edit"] == "newlines=1"
    assert "canon_gain_tokens" not in first
    assert second["canon_gain_tokens"] > 100
    assert "Words" not in str(lines())


def calls(id_: str, arguments: str) -> Callable[[GenerateRequest], AsyncIterator[Event]]:
    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        yield ToolCallDelta(0, 0, arguments[:3], id=id_, name="a")
        await asyncio.sleep(0)
        yield ToolCallDelta(0, 0, arguments[3:])
        yield Finished(0, "tool_calls")
        yield usage_of(request)

    return script


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_model_produced_comes_back_as_it_wrote_it(
    serve_with: Callable[..., Running], stream: bool
) -> None:
    server = serve_with(canon=policies("full"))
    server.engine.script = calls("c1", '{"n":1,"at":"x"}')
    answer = server.http.post(CHAT, json=chat(tools=TOOLS, stream=stream))
    assert answer.status_code == 200
    call = {"id": "other", "type": "function", "function": {"name": "a", "arguments": '{"at": "x", "n": 1}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    second = chat({"role": "user", "content": "Hello"}, asked, tools=TOOLS)
    response = server.http.post(CHAT, json=second)
    assert "conversation_memory=2" in response.headers["x-kvgate-canon"]
    sent = server.engine.requests[1].body["messages"][1]["tool_calls"][0]
    assert (sent["id"], sent["function"]["arguments"]) == ("c1", '{"n":1,"at":"x"}')
    changed = json.loads(json.dumps(second).replace('\\"n\\": 1', '\\"n\\": 1.0'))
    server.http.post(CHAT, json=changed)
    kept = server.engine.requests[2].body["messages"][1]["tool_calls"][0]
    assert kept["function"]["arguments"] == '{"at": "x", "n": 1.0}'


def test_an_answer_that_broke_off_is_not_remembered(serve_with: Callable[..., Running]) -> None:
    server = serve_with(canon=policies("full"))

    async def breaks(request: GenerateRequest) -> AsyncIterator[Event]:
        yield ToolCallDelta(0, 0, '{"n":1}', id="c1", name="a")
        raise ZeroDivisionError

    server.engine.script = breaks
    assert server.http.post(CHAT, json=chat(tools=TOOLS)).status_code == 500
    call = {"id": "other", "type": "function", "function": {"name": "a", "arguments": '{"n": 1}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    server.http.post(CHAT, json=chat({"role": "user", "content": "Hello"}, asked, tools=TOOLS))
    assert server.engine.requests[1].body["messages"][1]["tool_calls"][0] == call
