"""Which engine answers, and what each kind has to be started with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine_adapters.remote.anthropic import AnthropicEngine
from engine_adapters.remote.http_engine import HttpEngine, HttpOptions
from engine_adapters.remote.kvgate import OWNER, KvgateEngine
from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import Route
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.vllm import VllmEngine
from engine_adapters.reuse.profiles import PROFILES


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change at one kind of engine."""

    report: str = "Nothing can be added: this API does not say what it reused."
    hit: str = "Turn prefix caching on in the engine, or give it more memory for its KV cache."
    stream: str = "Use a version that takes stream_options.include_usage."
    takes_salt: bool = False


_ADVICE: Mapping[str, Advice] = {
    "vllm": Advice(
        report="Start vLLM with --enable-prompt-tokens-details.",
        hit="Start vLLM with --enable-prefix-caching, and without --no-enable-prefix-caching.",
        takes_salt=True,
    ),
    "sglang": Advice(
        report="Start SGLang with --enable-cache-report.",
        hit="Start SGLang without --disable-radix-cache.",
        takes_salt=True,
    ),
    "llama_cpp": Advice(
        report="Use a newer llama.cpp: its server reports cached_tokens and timings.cache_n by itself.",
        hit="Leave cache_prompt on, and start llama.cpp with a context (-c) that is large enough for the prompt.",
    ),
    "lmdeploy": Advice(hit="Start LMDeploy with --enable-prefix-caching."),
    "ollama": Advice(
        report="Ollama reports no reuse: serve the same GGUF with llama.cpp's server, which does."
    ),
}

# What engines write into `owned_by` of GET /v1/models.
_OWNERS: Mapping[str, str] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama_cpp",
    "library": "ollama",
    "lmdeploy": "lmdeploy",
    OWNER: "kvgate",
}

KINDS = tuple(PROFILES)

_Make: TypeAlias = Callable[[str, str, tuple[str, ...], HttpOptions], HttpEngine]
_ENGINES: Mapping[str, _Make] = {
    "kvgate": KvgateEngine,
    "sglang": SGLangEngine,
    "llama_cpp": LlamaCppEngine,
    "anthropic": AnthropicEngine,
}


def advice_for(kind: str) -> Advice:
    """What to say to whoever runs it."""
    return _ADVICE.get(kind, Advice())


UNKNOWN = "openai"  # how an engine is asked that does not say what it is


def kind_of(owner: object) -> str | None:
    """The kind that a model list's `owned_by` tells; None where it tells nothing."""
    return _OWNERS.get(owner) if isinstance(owner, str) else None


async def model_cards(engine: HttpEngine) -> list[Mapping[str, Any]]:
    """What `GET /v1/models` lists; raises EngineNotReadyError."""
    listed = (await engine.ask("GET", f"{engine.server}/v1/models")).get("data")
    return [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []


def engine_of(kind: str, url: str, options: HttpOptions) -> HttpEngine:
    """An engine of that kind at `url`, without asking it anything."""
    name = "under examination"  # as messages then say
    if kind == "vllm":
        return VllmEngine(name, url, (), options, probe=False)  # the examination asks the same, and more
    if kind in _ENGINES:
        return _ENGINES[kind](name, url, (), options)
    return OpenAICompatibleEngine(name, url, (), options, kind)


def route_of(kind: str) -> Route:
    """The route that chats take."""
    return "messages" if kind == "anthropic" else "chat"
