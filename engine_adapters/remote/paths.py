"""Where routes are found at an engine, behind the root of its API (`/v1`)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from engine_adapters.remote.relay import Route

# Of models, as OpenAI's API has them.
MODEL_PATHS: Final[Mapping[Route, str]] = MappingProxyType(
    {
        "chat": "/chat/completions",
        "completions": "/completions",
        "responses": "/responses",
        "embeddings": "/embeddings",
    }
)
MESSAGE_PATHS: Final[Mapping[Route, str]] = MappingProxyType(
    {"messages": "/messages", "count_tokens": "/messages/count_tokens"}
)
# Beside OpenAI's API, alike at vLLM, SGLang and llama.cpp.
RERANK_PATHS: Final[Mapping[Route, str]] = MappingProxyType({"rerank": "/rerank"})
TOKEN_PATHS: Final[Mapping[Route, str]] = MappingProxyType(
    {"tokenize": "/tokenize", "detokenize": "/detokenize"}
)
# Of responses that the engine keeps.
KEPT_PATHS: Final[Mapping[Route, str]] = MappingProxyType(
    {"response": "/responses/{id}", "response_cancel": "/responses/{id}/cancel"}
)
CHANGED_PATHS: Final[Mapping[Route, str]] = MappingProxyType(
    {"response_delete": "/responses/{id}", "response_items": "/responses/{id}/input_items"}
)
SELF_HOSTED_PATHS: Final[Mapping[Route, str]] = MappingProxyType(
    {**MODEL_PATHS, **MESSAGE_PATHS, **RERANK_PATHS, **TOKEN_PATHS, **KEPT_PATHS}
)

BESIDE_THE_API: Final[frozenset[Route]] = frozenset({"tokenize", "detokenize"})  # not below its root
METHODS: Final[Mapping[Route, str]] = MappingProxyType(
    {"response": "GET", "response_items": "GET", "response_delete": "DELETE"}
)  # the others: POST
