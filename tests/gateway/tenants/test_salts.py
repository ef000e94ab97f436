"""What engines get of salts: a client's own never arrives as it is, by whatever name, on whatever route."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine_adapters.remote.anthropic import AnthropicEngine
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import RelayRequest, RemoteCapabilities, Route
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.vllm import VllmEngine
from gateway.relay.guard import Guard
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from tests.gateway.relay.fake_engine import MODEL, FakeEngine, fake_engine, whole
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.tenants.people import ALICE, BOB, CARL, three

URL = "http://127.0.0.1:1"
ENGINES = {
    "vllm": VllmEngine("v", URL, probe=False),
    "sglang": SGLangEngine("s", URL),
    "llama_cpp": LlamaCppEngine("l", URL),
    "openai": OpenAICompatibleEngine("o", URL),
    "anthropic": AnthropicEngine("a", URL),
}
ROUTES: tuple[Route, ...] = ("chat", "completions", "responses", "embeddings", "messages", "rerank")
OWN = [
    '{"cache_salt": "own"}',
    '{"extra_key": "own"}',
    '{"cache_salt": "own", "extra_key": "own"}',
    '{"model": "m", "cache_salt": "own", "messages": []}',
    '{"cache_salt": "x", "messages": [{"cache_salt": "in here it is text"}], "cache_salt": "own"}',
    '{"cache_\\u0073alt": "own"}',
    '{"cache_salt" : {"own": 1}, "x": 1}',
    '{"extra_key": ["own", "own"], "prompt": ["a", "b"]}',
]


def sent(engine: HttpEngine, route: Route, body: str, salt: str | None = "tenant") -> dict[str, Any]:
    raw = engine.upstream_body(RelayRequest("r", route, body.encode(), False, "", salt=salt))
    return json.loads(raw)


def own_values(body: dict[str, Any]) -> list[Any]:
    return [body.get(name) for name in ("cache_salt", "extra_key") if name in body]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("body", OWN)
def test_a_client_s_own_salt_never_arrives(kind: str, route: Route, body: str) -> None:
    engine = ENGINES[kind]
    arrived = sent(engine, route, body)
    assert "own" not in json.dumps(own_values(arrived))
    assert "extra_key" not in arrived
    assert ("cache_salt" in arrived) is (route in engine.salted)
    if route in engine.salted:
        assert arrived["cache_salt"] != "tenant"  # divided further
        assert arrived["cache_salt"] != sent(engine, route, body, "other")["cache_salt"]


@pytest.mark.parametrize("kind", ENGINES)
def test_all_the_rest_is_spelled_as_it_came(kind: str) -> None:
    body = b'{"temperature": 1E2, "extra_key" : "own" , "n":-0, "big": 123456789012345678901234567890}'
    raw = ENGINES[kind].upstream_body(RelayRequest("r", "embeddings", body, False, "", salt="tenant"))
    assert b'"temperature": 1E2' in raw
    assert b'"n":-0' in raw
    assert b'"big": 123456789012345678901234567890' in raw
    assert b"own" not in raw


def test_one_salt_a_prompt_stays_one_a_prompt() -> None:
    body = '{"prompt": ["a", "b", "c"], "cache_salt": ["x", "y", "x"]}'
    first, second, third = sent(ENGINES["sglang"], "completions", body)["cache_salt"]
    assert first == third != second
    alone = sent(ENGINES["sglang"], "completions", '{"prompt": "a", "cache_salt": "x"}')["cache_salt"]
    assert alone == first


@pytest.mark.parametrize("own", ["[]", '""', "{}", "[[]]", "0", "false", '["a", "b"]'])
@pytest.mark.parametrize("route", ["chat", "completions"])
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_whatever_a_client_says_there_is_a_salt(kind: str, route: Route, own: str) -> None:
    salt = sent(ENGINES[kind], route, f'{{"cache_salt": {own}}}')["cache_salt"]
    assert salt
    assert all(each and isinstance(each, str) for each in (salt if isinstance(salt, list) else [salt]))
    assert isinstance(salt, str) or route == "completions"


@pytest.mark.parametrize("kind", ENGINES)
def test_where_there_is_one_tenant_only_its_own_salt_passes(kind: str) -> None:
    assert sent(ENGINES[kind], "responses", OWN[2], None) == json.loads(OWN[2])


class Salted(OpenAICompatibleEngine):
    """Answers as the fake does, and takes salts."""

    salted = ("chat", "completions")
    takes: bool | None = True

    async def detect(self) -> RemoteCapabilities:
        return RemoteCapabilities(models=(MODEL,), reports_reuse=None, takes_salt=self.takes)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as it:
        yield it


def serving(engine: FakeEngine, kind: type[OpenAICompatibleEngine], guard: Guard) -> Any:
    pool = EnginePool("fake", [Remote(kind("fake", engine.url))], guard=guard)
    return relaying([], pools=[pool], tenants=three())


def ask(gateway: Relaying, key: str, **more: Any) -> None:
    messages = [{"role": "user", "content": "hi"}]
    gateway.sdk_of(key).chat.completions.create(model=MODEL, messages=messages, extra_body=more)


def test_tenants_of_one_group_have_one_salt_and_others_another(engine: FakeEngine) -> None:
    with serving(engine, Salted, Guard(apart=True)) as gateway:
        for key in (ALICE, CARL, BOB):
            ask(gateway, key)
        ask(gateway, BOB, cache_salt=engine.asked[0].body["cache_salt"])  # a stolen one is of no use
    alice, carl, bob, thief = (each.body["cache_salt"] for each in engine.asked)
    assert alice == carl
    assert len({alice, bob, thief}) == 3


def test_a_gateway_s_keys_do_not_reach_the_engine(engine: FakeEngine) -> None:
    with serving(engine, Salted, Guard(apart=True)) as gateway:
        ask(gateway, ALICE)
    assert not any(ALICE in value for value in engine.asked[0].headers.values())


def test_two_tenants_that_choose_one_request_id_have_two_at_the_engine(engine: FakeEngine) -> None:
    with serving(engine, Salted, Guard(apart=True)) as gateway:
        for key in (ALICE, BOB):
            body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
            headers = {"authorization": f"Bearer {key}", "x-request-id": "mine"}
            answer = gateway.http.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.headers["x-request-id"] == "mine"
    alice, bob = (each.headers["x-request-id"] for each in engine.asked)
    assert alice.startswith("mine-")
    assert bob.startswith("mine-")
    assert alice != bob


def test_a_route_without_salts_is_not_there_for_several_groups(engine: FakeEngine) -> None:
    with serving(engine, Salted, Guard(apart=True)) as gateway:
        headers = {"x-api-key": ALICE}
        answer = gateway.http.post("/v1/embeddings", json={"model": MODEL, "input": "x"}, headers=headers)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unsupported_route"
    assert not engine.asked


def test_an_engine_that_was_found_to_take_no_salt_gets_nothing(engine: FakeEngine) -> None:
    class Old(Salted):
        takes = False

    with serving(engine, Old, Guard(apart=True)) as gateway:
        answer = gateway.http.post(
            "/v1/chat/completions",
            json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
            headers={"x-api-key": ALICE},
        )
    assert answer.status_code == 503
    assert "takes no salt" in answer.json()["error"]["message"]
    # To wait does not help, and neither does the SDK's trying again.
    assert "retry-after" not in answer.headers
    assert answer.headers["x-should-retry"] == "false"
    assert not engine.asked


def test_where_sharing_is_meant_everything_passes(engine: FakeEngine) -> None:
    with serving(engine, OpenAICompatibleEngine, Guard()) as gateway:
        ask(gateway, ALICE, cache_salt="own", extra_key="own")
    assert not {"cache_salt", "extra_key"} & engine.asked[0].body.keys()
