"""llama.cpp's own server: what it is found to be able to do, its counters, its tokens, and an empty cache."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from engine_adapters.embedded.models.default_model import find_gguf
from engine_adapters.errors import EngineNotReadyError, UnsupportedByEngineError
from engine_adapters.remote.llama_cpp import LlamaCppEngine, _shown
from engine_adapters.remote.relay import RelayRequest
from tests.llama_cpp_server import CONTEXT, LlamaCppServer, llama_cpp_server

TEXT = "The tide comes in and the tide goes out. " * 12


@pytest.fixture
async def engine(llama_cpp: LlamaCppServer) -> AsyncIterator[LlamaCppEngine]:
    it = LlamaCppEngine("llama", llama_cpp.url)
    yield it
    await it.aclose()


async def reused(engine: LlamaCppEngine, text: str) -> tuple[int | None, int | None]:
    body = {"model": "any", "prompt": text, "max_tokens": 1}
    request = RelayRequest("r", "completions", json.dumps(body).encode(), stream=False, model="any")
    async with engine.relay(request) as answer:
        async for _ in answer.chunks():
            pass
        return answer.account.reuse.prompt, answer.account.reuse.reused


async def test_what_it_can_is_found(engine: LlamaCppEngine) -> None:
    able = await engine.detect()
    assert (able.reports_reuse, able.missing) == (True, ())
    assert (able.context_length, able.block_size, able.takes_token_ids) == (CONTEXT, 1, True)
    assert len(able.models) == 1
    assert (await engine.health()).ready


async def test_an_erased_cache_reuses_nothing(engine: LlamaCppEngine) -> None:
    await reused(engine, TEXT)
    prompt, warm = await reused(engine, TEXT)
    assert warm == prompt - 1
    await engine.flush()
    assert await reused(engine, TEXT) == (prompt, 0)


async def test_counters_agree_with_what_answers_say(engine: LlamaCppEngine) -> None:
    before = await engine.counters()
    prompt, cached = await reused(engine, TEXT + "Count this.")
    after = await engine.counters()
    name = "llamacpp:prompt_tokens_total"
    assert after[name] - before[name] == prompt - cached


async def test_tokens_are_those_of_the_prompt(engine: LlamaCppEngine) -> None:
    ids = await engine.tokenize(TEXT)
    prompt, _ = await reused(engine, TEXT)
    assert ids.dtype == "int32"
    assert len(ids) == prompt


@pytest.fixture(scope="module")
def bare_server() -> Iterator[LlamaCppServer]:
    gguf = find_gguf()
    assert gguf is not None
    with llama_cpp_server(gguf.path, None) as server:
        yield server


async def test_missing_flags_are_named(llama_cpp: LlamaCppServer, bare_server: LlamaCppServer) -> None:
    engine = LlamaCppEngine("llama", bare_server.url)
    able = await engine.detect()
    assert able.reports_reuse
    assert [flag.split(" ")[0] for flag in able.missing] == ["--metrics"]
    with pytest.raises(UnsupportedByEngineError, match="--slot-save-path"):
        await engine.flush()
    with pytest.raises(EngineNotReadyError, match="501"):
        await engine.counters()
    await engine.aclose()


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ("/models/small.Q4.gguf", "small.Q4"),
        ("C:\\models\\small.gguf", "small"),
        ("models/small.gguf", "small"),
        ("small.gguf", "small.gguf"),
        ("ggml-org/small-GGUF:Q4", "ggml-org/small-GGUF:Q4"),
        ("small", "small"),
    ],
)
def test_a_files_name_is_shown_without_its_folders(own: str, shown: str) -> None:
    assert _shown(own) == shown
