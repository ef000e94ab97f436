"""Which routes each kind of engine has, where they are, and what a tenant's salt does there."""

import json

import pytest

from engine_adapters.errors import UnsupportedByEngineError
from engine_adapters.remote.anthropic import AnthropicEngine
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import ROUTES, RelayRequest, Route
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.vllm import VllmEngine

URL = "http://127.0.0.1:9"
SELF_HOSTED = set(ROUTES) - {"response_delete", "response_items"}


def request(route: Route, **more) -> RelayRequest:
    return RelayRequest("r", route, b'{"model":"m","prompt":"x"}', False, "m", **more)


@pytest.mark.parametrize(
    ("kind", "routes"),
    [
        (SGLangEngine, SELF_HOSTED),
        (VllmEngine, SELF_HOSTED),
        (LlamaCppEngine, SELF_HOSTED - {"response", "response_cancel"}),
        (OpenAICompatibleEngine, set(ROUTES)),
        (AnthropicEngine, {"messages", "count_tokens"}),
    ],
)
async def test_each_kind_has_its_routes(kind: type[HttpEngine], routes: set[Route]) -> None:
    engine = kind("e", URL)
    assert set(engine.routes) == routes
    for route in ROUTES:
        if route in routes:
            assert engine.url(request(route, target="resp_1")).startswith(URL)
        else:
            with pytest.raises(UnsupportedByEngineError):
                engine.url(request(route))
    await engine.aclose()


@pytest.mark.parametrize("base", [URL, f"{URL}/v1", f"{URL}/v1/"])
async def test_paths_are_below_the_apis_root_but_for_tokens(base: str) -> None:
    engine = OpenAICompatibleEngine("e", base)
    assert engine.url(request("chat")) == f"{URL}/v1/chat/completions"
    assert engine.url(request("count_tokens")) == f"{URL}/v1/messages/count_tokens"
    assert engine.url(request("tokenize")) == f"{URL}/tokenize"
    kept = request("response_items", target="a/../b?c", query="limit=1")
    assert engine.url(kept) == f"{URL}/v1/responses/a%2F..%2Fb%3Fc/input_items?limit=1"
    await engine.aclose()


@pytest.mark.parametrize("route", ["chat", "completions", "responses", "messages", "embeddings", "rerank"])
async def test_vllm_takes_a_salt_wherever_prefixes_are_kept(route: Route) -> None:
    engine = VllmEngine("e", URL)
    assert json.loads(engine.upstream_body(request(route, salt="s")))["cache_salt"] == "s"
    await engine.aclose()


async def test_sglang_takes_a_salt_where_its_requests_have_a_field_for_it() -> None:
    engine = SGLangEngine("e", URL)
    assert set(engine.salted) == {"chat", "completions", "responses"}
    assert b"cache_salt" not in engine.upstream_body(request("messages", salt="s"))
    await engine.aclose()


@pytest.mark.parametrize("route", ["tokenize", "detokenize", "count_tokens"])
async def test_what_leaves_no_prefix_needs_no_salt(route: Route) -> None:
    for kind in (SGLangEngine, VllmEngine):
        engine = kind("e", URL)
        assert engine.upstream_body(request(route, salt="s")) == request(route).body
        await engine.aclose()


async def test_a_request_that_names_no_model_is_given_none() -> None:
    engine = OpenAICompatibleEngine("e", URL)
    body = b'{"input":"x"}'
    assert engine.upstream_body(RelayRequest("r", "responses", body, False, "")) == body
    await engine.aclose()
